"""Pairs of weight 0: a factor of exactly 0 takes nothing, not even NaN."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import torch
from torch import Tensor

from .inputs import Call

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
    for spec in call.choices.inputs:
        given = call.tensors.get(spec.name)
        if given is None or not spec.weighs:
            continue
        absent = given.detach() == spec.weightless
        if absent.dim() == 4:
            absent = absent.all(-1)
        if _looks(absent) and not absent.any():
            continue
        for name in spec.weighs:
            if name in call.tensors and call.tensors[name].shape[1] == absent.shape[1]:
                yield name, absent


def _finite(rows: Tensor) -> Tensor:
    """Are all numbers of a row finite? [B, R, heads]"""
    rows = rows.detach()
    return torch.isfinite(rows if rows.dim() == 3 else torch.linalg.vector_norm(rows, torch.inf, -1))


def _looks(tensor: Tensor) -> bool:
    """Does a look at the numbers cost nothing but the look?"""
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()
