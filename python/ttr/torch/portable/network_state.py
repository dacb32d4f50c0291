"""The state of networks that are trained while they read: places, weights, sums, by their names."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
import ttr
from torch import Tensor

from .inputs import Call, fail
from .network_function import Parameters
from .network_steps import Memory
from .recipe import Choices


def places(call: Call) -> list[int]:
    """Tokens of its mini-batch so far, of each memory."""
    given, most = call.state.get("state.position"), int(call.choices.mini_batch) - 1
    if given is None:
        for name in call.state:
            if name.startswith(("state.anchor_", "state.g_")):
                raise fail("state['state.position']", f"given with {name}", "missing")
        return [0] * (call.sizes["N"] * call.sizes["H"])
    if given.dtype != torch.int64:
        raise fail("state['state.position']", "int64", str(given.dtype))
    found = [int(place) for place in given.flatten().tolist()]
    for place in found:
        if not 0 <= place <= most:
            raise fail("state['state.position']", f"a whole number from 0 to {most}", str(place))
    return found


def _names(choices: Choices) -> list[str]:
    """w1, b1, w2, ..."""
    kinds = "wb" if choices.bias else "w"
    return [f"{kind}{layer + 1}" for layer in range(choices.depth) for kind in kinds]


def start(call: Call) -> Memory:
    """From the state; weights that it lacks are the recipe's start, anchors the weights."""

    def found(prefix: str) -> Parameters | None:
        entries = [call.initial(f"state.{prefix}{name}") for name in names]
        if all(x is None for x in entries):
            return None
        filled = (torch.zeros_like(w) if x is None else _rows(x) for x, w in zip(entries, weights))
        return list(filled)

    names = _names(call.choices)
    weights = [_rows(x) for x in _start_weights(call, names)]
    last = found("s_")
    if (sums := found("g_")) is not None:
        last = [-x for x in sums]
    anchors = (call.initial(f"state.anchor_{name}") for name in names)
    anchor = [w if x is None else _rows(x) for x, w in zip(anchors, weights)]
    return Memory(weights, last, anchor, found("squares_"), 0)


def _rows(entry: Tensor) -> Tensor:
    """[N, H, in, out] or [N, H, out] becomes [M, in, out] or [M, 1, out]."""
    return (entry if entry.dim() == 4 else entry.unsqueeze(2)).flatten(0, 1)


def _start_weights(call: Call, names: list[str]) -> list[Tensor]:
    given = [call.initial(f"state.{name}") for name in names]
    if all(x is not None for x in given):
        return [x for x in given if x is not None]
    sizes = call.sizes
    drawn = _constant_start(call.choices.text, sizes["H"], sizes["Dk"], sizes["Dv"])
    weights = []
    for name, x in zip(names, given):
        if x is None:
            x = drawn[f"state.{name}"].to(call.work).to(call.device)
            x = x.expand(sizes["N"], *x.shape[1:])
        weights.append(x)
    return weights


@functools.lru_cache(maxsize=16)
def _drawn(text: str, heads: int, key_dim: int, value_dim: int) -> dict[str, Tensor]:
    """The recipe's start [1, H, ...]: what a call without tokens leaves."""
    lengths = {"B": 1, "T": 0, "Dk": key_dim, "Dv": value_dim}
    empty: dict[str, Any] = {
        spec["keyword"]: np.zeros([lengths.get(axis, heads) for axis in spec["shapes"][0]])
        for spec in ttr.input_specs(text)
        if spec["required"]
    }
    _, state = ttr.Layer(text).forward(**empty)
    return {name: torch.from_numpy(array) for name, array in state.items()}


@torch.compiler.assume_constant_result  # the tracer cannot look into the extension module
def _constant_start(text: str, heads: int, key_dim: int, value_dim: int) -> dict[str, Tensor]:
    return _drawn(text, heads, key_dim, value_dim)


def entries(call: Call, memory: Memory) -> dict[str, Tensor]:
    """What is kept, by the names of the state: [M, in, out] or [M, out]."""
    choices, batches = call.choices, call.choices.mini_batch > 1
    kept: dict[str, Parameters | None] = {"": memory.weights}
    if choices.momentum:
        kept["s_"] = memory.last
    if choices.adapt != "none":
        kept["squares_"] = memory.squares
    elif batches and (choices.momentum or choices.weight_decay != "none"):
        kept["anchor_"] = memory.anchor
    elif batches:
        kept["g_"] = None if memory.last is None else [-x for x in memory.last]
    found = {}
    for prefix, parameters in kept.items():
        for n, name in enumerate(_names(choices)):
            weight = memory.weights[n]
            entry = torch.zeros_like(weight) if parameters is None else parameters[n]
            found[f"state.{prefix}{name}"] = entry.squeeze(1) if name[0] == "b" else entry
    return found
