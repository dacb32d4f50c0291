#!/usr/bin/env python3
"""What a state of two bytes a number costs: errors of outputs after many tokens, by how often it is rounded.

    python bench/narrow_states.py                      the table of docs/decoding.md, some minutes
    python bench/narrow_states.py --tokens 10000       a rough look
    python bench/narrow_states.py --recall             associative recall instead

Each layer reads one stream of random pairs, a head for each decay; keys have length 1, steps are between 0
and 1. A figure is the root mean square, over 256 tokens, of the difference from a decoder in float64, over
that of its outputs. Recall: examples of `python -m ttr.experiments mqar` (32 of Zoology's law, 8192 tokens of
vocabulary) through that experiment's network as it stands before training, and the share of labels that are right.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np
import ttr
from reporting.tables import markdown
from ttr.experiments.mqar import law

LAYERS = ["deltanet", "gated_deltanet", "kda", "gla", "mamba2"]
DECAYS = [0.9, 0.99, 0.999, 1.0]
DIM = 64
BLOCK = 1024
MEASURED = 256
STATES: list[tuple[str, int]] = [
    ("float32", 0),
    ("bfloat16", 1),
    ("bfloat16", 4),
    ("bfloat16", 8),
    ("bfloat16", 16),
    ("bfloat16", 64),
    ("float16", 16),
]


def draw(layer: str, random: np.random.Generator) -> list[dict[str, Any]]:
    """Inputs of BLOCK tokens, one by one."""
    heads = len(DECAYS)
    inputs: dict[str, Any] = {}
    for spec in ttr.input_specs(layer):
        name = spec["keyword"]
        if name in ("q", "k", "v"):
            x = random.standard_normal((BLOCK, 1, 1, heads, DIM))
            inputs[name] = x if name == "v" else x / np.linalg.norm(x, axis=-1, keepdims=True)
        elif name == "log_decay":
            x = np.log(np.array(DECAYS))[None, None, None, :]
            by_channel = len(spec["shapes"][0]) == 4
            inputs[name] = np.broadcast_to(
                x[..., None] if by_channel else x, (BLOCK, 1, 1, heads) + ((DIM,) if by_channel else ())
            )
        elif spec["required"]:
            inputs[name] = random.uniform(0.1, 0.9, (BLOCK, 1, 1, heads))
    return [{key: np.ascontiguousarray(x[t], np.float32) for key, x in inputs.items()} for t in range(BLOCK)]


def decoders(layer: str) -> list[ttr.Decoder]:
    sizes = {"key_dim": DIM, "value_dim": DIM, "heads": len(DECAYS)}
    return [ttr.Decoder(layer, dtype="float64", **sizes)] + [
        ttr.Decoder(layer, dtype=dtype, window=window, **sizes) for dtype, window in STATES
    ]


def errors(layer: str, lengths: list[int]) -> dict[int, np.ndarray]:
    """[state, decay] after so many tokens."""
    random = np.random.default_rng(5)
    running = decoders(layer)
    found = {}
    for begin in range(0, lengths[-1], BLOCK):
        answers = []
        for token in draw(layer, random):
            answers.append([d.step(**token)[0, 0].astype(np.float64) for d in running])
        if begin + BLOCK not in lengths:
            continue
        last = np.array(answers[-MEASURED:])  # [token, decoder, head, Dv]
        off = np.sqrt(((last[:, 1:] - last[:, :1]) ** 2).mean(axis=(0, 3)))
        found[begin + BLOCK] = off / np.sqrt((last[:, 0] ** 2).mean(axis=(0, 2)))
        print(f"{layer}: {begin + BLOCK} tokens", file=sys.stderr, flush=True)
    return found


def recall(layer: str, dtype: str, pairs: int) -> float:
    """The share of labels answered rightly, by the study's law and its network before training: the key
    of a token is the embedding of the one before it, nothing fades, steps are 1."""
    batch, tokens = 32, max(256, 4 * pairs)
    example = law.make(batch, tokens, pairs, vocabulary=8192, seed=7, number=0)
    embedding = np.random.default_rng(7).standard_normal((8192, DIM))
    embedding /= np.linalg.norm(embedding, axis=-1, keepdims=True)
    known = {"log_decay": 0.0, "step": 1.0}
    shapes = {s["keyword"]: s["shapes"][0] for s in ttr.input_specs(layer) if s["required"]}
    sizes = {"B": batch, "T": 1, "H": 1, "Dk": DIM}
    gates = {
        name: np.full([sizes[axis] for axis in shapes[name]], known[name], np.float32)
        for name in shapes
        if name in known
    }
    decoder = ttr.Decoder(layer, dtype=dtype, batch=batch, key_dim=DIM, value_dim=DIM)
    x = embedding[example.tokens].astype(np.float32)[:, :, None, None]  # [B, T, 1, 1, Dk]
    before = np.concatenate([np.zeros_like(x[:, :1]), x[:, :-1]], axis=1)
    answers = [decoder.step(q=x[:, t], k=before[:, t], v=x[:, t], **gates) for t in range(tokens)]
    y = np.stack(answers, axis=1)[:, :, 0, 0]  # [B, T, Dv]
    rows = np.arange(batch)[:, None]
    asked = y[rows, example.places]  # [B, P, Dv]
    best = (asked @ embedding[4096:].T.astype(np.float32)).argmax(-1) + 4096  # of all responses
    return float((best == example.answers).mean())


def print_recall(layers: list[str]) -> None:
    dtypes = ["float32", "bfloat16", "float16"]
    rows = [
        [layer, str(pairs), *(f"{recall(layer, dtype, pairs):.3f}" for dtype in dtypes)]
        for layer in layers
        for pairs in (16, 32, 64)
    ]
    print(markdown(["layer", "pairs", *dtypes], rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tokens", type=int, default=10**6)
    parser.add_argument("--layers", nargs="+", default=LAYERS)
    parser.add_argument("--recall", action="store_true")
    options = parser.parse_args()
    if options.recall:
        return print_recall(options.layers)
    powers = [10**n for n in range(3, 10) if 10**n <= options.tokens]
    lengths = [-(-length // BLOCK) * BLOCK for length in powers]
    names = [f"{dtype}, every {n}" if n else dtype for dtype, n in STATES]
    rows = []
    for layer in options.layers:
        found = errors(layer, lengths)
        has_decay = any(s["keyword"] == "log_decay" for s in ttr.input_specs(layer))
        for head, decay in enumerate(DECAYS):
            if not has_decay and head > 0:
                continue
            for power, length in zip(powers, lengths):
                figures = (f"{x:.1e}" for x in found[length][:, head])
                rows.append([layer, str(decay) if has_decay else "none", str(power), *figures])
    print(markdown(["layer", "decay", "tokens", *names], rows))


if __name__ == "__main__":
    main()
