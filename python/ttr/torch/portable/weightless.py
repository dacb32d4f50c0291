"""Pairs of weight 0: a factor of exactly 0 takes nothing, not even NaN."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import torch
from torch import Tensor

from .inputs import Call
from .recipe import Choices

#: A factor, the number at which it takes nothing, and the rows that it weighs.
_Weight = tuple[str, float, tuple[str, ...]]

_IMPORTANCES: list[_Weight] = [
    ("importance", 0, ("k", "v", "v_im")),
    ("log_importance", -math.inf, ("k", "v")),
]


def _weights(choices: Choices) -> list[_Weight]:
    if choices.family == "hebbian" and choices.importance in ("complement", "root_complement"):
        return [("log_decay", 0, ("v",))]
    if choices.family not in ("sgd", "network"):
        return _IMPORTANCES
    if choices.erase == "undecayed":  # along a (.) kappa, whatever the step
        return [("step", 0, ("k", "v")), ("erase_gate", 0, ("erase_key",))]
    rows = ("k", "v", "erase_key", "erase_gate")
    shrinks = choices.weight_decay == "coupled"  # 1 - step weight_decay
    return [("step", 0, (*rows, "weight_decay") if shrinks else rows)]


def without_weightless(call: Call) -> Call:
    """The call with zeros in place of every row that is not finite and that a step, an importance or
    a gate of exactly 0 weighs: 0 times NaN is NaN.

    A row that several memories share counts as zeros where none of them takes it; on the CPU, where
    numbers can be looked at, for every memory by itself.
    """
    tensors, sizes = dict(call.tensors), dict(call.sizes)
    for name, absent in _absent(call):
        rows = tensors[name]
        shared = absent.shape[2] // rows.shape[2]
        if shared > 1 and _looks(rows):
            if not (absent & ~_finite(rows.repeat_interleave(shared, 2))).any():
                continue
            rows = rows.repeat_interleave(shared, 2)
            sizes[{"k": "Hk", "v": "Hv"}.get(name, "H")] = rows.shape[2]
        elif shared > 1:
            absent = absent.unflatten(2, (-1, shared)).all(3)
        empty = absent & ~_finite(rows)
        if _looks(rows) and not empty.any():
            continue
        tensors[name] = rows.masked_fill(empty if rows.dim() == 3 else empty[..., None], 0)
    return dataclasses.replace(call, tensors=tensors, sizes=sizes)


def _absent(call: Call) -> Iterator[tuple[str, Tensor]]:
    """Names of rows, and where their factor takes nothing: [B, R, H]."""
    for factor, nothing, names in _weights(call.choices):
        given = call.tensors.get(factor)
        if given is None:
            continue
        absent = given.detach() == nothing
        if absent.dim() == 4:
            absent = absent.all(-1)
        if _looks(absent) and not absent.any():
            continue
        for name in names:
            if name in call.tensors and call.tensors[name].shape[1] == absent.shape[1]:
                yield name, absent


def _finite(rows: Tensor) -> Tensor:
    """Are all numbers of a row finite? [B, R, heads]"""
    rows = rows.detach()
    return torch.isfinite(rows if rows.dim() == 3 else torch.linalg.vector_norm(rows, torch.inf, -1))


def _looks(tensor: Tensor) -> bool:
    """Does a look at the numbers cost nothing but the look?"""
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()
