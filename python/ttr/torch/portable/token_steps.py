"""Steps token after token: momentum or weight decay where each key channel fades for itself.

    M~ = exp(g) (.) M',   G = momentum G' + v key^T - (M_ref erase) along^T,   M = shrink M~ + G

No product of matrices has such a chunk: what a row finds of another is a sum over channels of products of
both factors. Cost a row and memory: 4 Dk Dv multiply-adds, and a dozen operators a row one after another.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .operands import Rows

_CHUNK = 32


def takes(rows: Rows) -> bool:
    """Whether no chunk has these rows."""
    more = rows.shrink is not None or rows.momentum is not None
    return more and rows.log_decay is not None and rows.log_decay.shape[-1] > 1


def run(rows: Rows, state: Tensor, read: str) -> tuple[Tensor, Tensor]:
    """What is read [B, H, G, R, V] and the state behind the last row, M (above G) [B, H, 1, Ks, V]. The
    backward pass forms the memories of a chunk of rows anew."""
    outputs = [rows.q[..., :0, :1].expand(*rows.q.shape[:3], 0, rows.v.shape[-1])]
    for begin in range(0, rows.v.shape[-2], _CHUNK):
        part = _cut(rows, begin, begin + _CHUNK)
        y, state = checkpoint(_pass, part, state, read, use_reentrant=False, preserve_rng_state=False)
        outputs.append(y)
    return torch.cat(outputs, -2), state


def _cut(rows: Rows, begin: int, end: int) -> Rows:
    by_row = ("q", "key", "v", "erase", "along", "log_decay", "shrink", "momentum")
    given: dict[str, Any] = {name: getattr(rows, name) for name in by_row}
    return dataclasses.replace(rows, **{n: x if x is None else x[..., begin:end, :] for n, x in given.items()})


def _pass(rows: Rows, state: Tensor, read: str) -> tuple[Tensor, Tensor]:
    memory, step = state.chunk(2, -2) if rows.momentum is not None else (state, None)
    outputs = []
    for t in range(rows.v.shape[-2]):
        row = _cut(rows, t, t + 1)
        assert row.erase is not None and row.log_decay is not None
        before, faded = memory, row.log_decay.exp().mT * memory
        found = row.erase @ (before if rows.undecayed else faded)
        along = row.key if row.along is None else row.along
        change = row.key.mT @ row.v - along.mT @ found
        if step is not None and row.momentum is not None:
            change = step = row.momentum * step + change
        memory = (faded if row.shrink is None else row.shrink * faded) + change
        outputs.append(row.q @ (before if read == "before" else memory))
    return torch.cat(outputs, -2), memory if step is None else torch.cat([memory, step], -2)
