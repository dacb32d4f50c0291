"""All runs, in the order in which they are made."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import product
from typing import Any

import torch

from .train import Settings

#: The paper's figure: these layers, without a write gate, come before all else.
FIRST = ("RLS", "linear attention")

#: What options mean where they are absent; --quick has numbers of its own.
WHOLE: dict[str, Any] = {
    "pairs": [64, 128],
    "widths": [64],
    "lengths": [256, 512, 1024],
    "rates": [1e-2, 2.1544e-3, 4.6416e-4, 1e-4],  # four, evenly apart in their logarithm
    "vocabulary": 8192,
    "examples": 100_000,
    "epochs": 64,
    "tests": 3000,
    "seeds": 1,
}
QUICK: dict[str, Any] = {
    **WHOLE,
    "pairs": [16, 32],
    "widths": [16],
    "lengths": [64, 128],
    "rates": [1e-2],
    "vocabulary": 256,
    "examples": 4000,
    "epochs": 16,
    "tests": 500,
}


def settings_of(options: argparse.Namespace) -> list[Settings]:
    """All runs: seed by seed; the paper's two layers before the others; short texts, relative to
    their pairs, before long ones. ValueError: no length holds the pairs."""
    made = sorted(_all(options), key=_place)
    if not made:
        least = 4 * min(options.pairs)
        raise ValueError(
            f"[mqar] lengths must have one of at least 4 pairs = {least} but are "
            f"{', '.join(map(str, options.lengths))}"
        )
    return made


def _all(options: argparse.Namespace) -> Iterator[Settings]:
    for seed, width, pairs, tokens, how, method, rate in product(
        range(options.seeds),
        options.widths,
        options.pairs,
        options.lengths,
        options.architectures,
        options.methods,
        options.rates,
    ):
        if tokens >= 4 * pairs:
            yield Settings(
                method=method,
                architecture=how,
                pairs=pairs,
                width=width,
                tokens=tokens,
                rate=rate,
                seed=seed,
                vocabulary=options.vocabulary,
                examples=options.examples,
                epochs=options.epochs,
                batch=options.batch or batch_of(tokens),
                tests=options.tests,
                lags=tuple(options.lags),
                learn_lags=not options.fixed_lags,
            )


def _place(s: Settings) -> tuple[Any, ...]:
    """Runs with equal places stay in the order of the options."""
    others = s.method not in FIRST
    first = others or FIRST.index(s.method)
    return s.seed, s.architecture != "strict", others, s.tokens / s.pairs, s.pairs, first


def batch_of(tokens: int) -> int:
    """Zoology's batches: half as many examples of twice the length."""
    return max(64, min(512, 65536 // tokens))


def device_of(asked: str | None) -> str:
    """The device that is asked for; else the GPU where there is one. ValueError: a GPU is asked
    for where there is none."""
    there = torch.cuda.is_available()
    if asked == "cuda" and not there:
        raise ValueError("[mqar] device must be cpu, as PyTorch finds no GPU here, but is cuda")
    return asked or ("cuda" if there else "cpu")


def words_of(s: Settings) -> str:
    return (
        f"{s.method}, {s.architecture}, P = {s.pairs}, d = {s.width}, T = {s.tokens}, "
        f"rate {s.rate:g}, seed {s.seed}"
    )
