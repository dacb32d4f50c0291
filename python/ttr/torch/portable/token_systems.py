"""A system for every token, formed and solved: what no prefix solve takes.

    A_t = g_t A_{t-1} + w_t k_t k_t^T,   B_t = g_t B_{t-1} + w_t v_t k_t^T
    y_t = B_t x,   (A_t + R) x = q_t

All A of a chunk are formed and solved together; B is not formed, for y_t is a sum over the chunk's
pairs. Cost a token and memory: C Dk^2 + Dk^3 / 3 multiply-adds, and C Dk^2 numbers at a time (the
backward pass computes them anew).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .decays import ScalarDecay, reverse_cumsum
from .recipe import Choices
from .solvers import Descent, frobenius_norm, solve

_CHUNK = 32


class Rows(NamedTuple):
    """[B, H, G, T, D], G the queries that read one memory: queries, keys, weighted keys, values,
    log decays, the sizes of steps, and their momentum (D = 0 where they are no input)."""

    q: Tensor
    k: Tensor
    written: Tensor
    v: Tensor
    g: Tensor
    steps: Tensor
    momentum: Tensor


def run(
    choices: Choices, rows: Rows, a: Tensor, b: Tensor, ridge: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """y [B, H, G, T, V], and A [B, H, 1, K, K] and B^T [B, H, 1, K, V] from the first ones."""
    if not choices.causal:
        left = reverse_cumsum(rows.g).exp() * rows.written
        kept = rows.g.sum(-2, keepdim=True).exp()
        a, b = kept * a + left.mT @ rows.k, kept * b + left.mT @ rows.v
        return _read_all(choices, rows, a, b, ridge), a, b
    if not rows.q.shape[-2]:
        return rows.q @ b, a, b
    return _by_chunks(choices, rows, a, b, ridge)


def _by_chunks(
    choices: Choices, rows: Rows, a: Tensor, b: Tensor, ridge: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    outputs = []
    for begin in range(0, rows.q.shape[-2], _CHUNK):
        part = (x[..., begin : begin + _CHUNK, :] for x in rows)
        y, a, b = checkpoint(_chunk, choices, *part, a, b, ridge, use_reentrant=False)
        outputs.append(y)
    return torch.cat(outputs, -2), a, b


def _regularised(choices: Choices, a: Tensor, ridge: Tensor) -> tuple[Tensor, Tensor]:
    """A + R and R's diagonal, [..., K, K] and [..., K]."""
    if choices.ridge_kind == "fading":
        return a, ridge
    if choices.ridge_kind == "relative":
        ridge = ridge * frobenius_norm(a).unsqueeze(-1)
    return a + torch.diag_embed(ridge), ridge


def _chunk(
    choices: Choices,
    q: Tensor,
    k: Tensor,
    written: Tensor,
    v: Tensor,
    g: Tensor,
    steps: Tensor,
    momentum: Tensor,
    a: Tensor,
    b: Tensor,
    ridge: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """The answers of a chunk's queries [B, H, G, C, K], and A and B after it."""
    decay, at = ScalarDecay(g.unsqueeze(-3)), choices.read
    between, start = (x.squeeze(-3) for x in (decay.between(at), decay.from_start(at)))
    squares = (written.unsqueeze(-1) * k.unsqueeze(-2)).flatten(-2)
    systems = (between @ squares).unflatten(-1, (k.shape[-1], -1)) + start.unsqueeze(
        -1
    ) * a.unsqueeze(-3)
    full, diagonal = _regularised(choices, systems.squeeze(2), ridge)
    # [B, H, C, K, G]: the queries of a token share its system.
    inputs = (x.squeeze(2)[..., None, None].unbind(-3) for x in (steps, momentum))
    right = q.permute(0, 1, 3, 4, 2)
    x = solve(choices, full, right, diagonal, _descent(*inputs)).permute(0, 1, 4, 2, 3)
    y = start * (x @ b) + ((x @ written.transpose(-1, -2)) * between) @ v
    ends = decay.to_end(written.unsqueeze(-3)).squeeze(-3).transpose(-1, -2)
    kept = decay.from_start("after").squeeze(-3)[..., -1:, :]
    return y, kept * a + ends @ k, kept * b + ends @ v


def _descent(etas: tuple[Tensor, ...], momentum: tuple[Tensor, ...]) -> Descent:
    return Descent(etas, momentum[0] if momentum else None)


def _read_all(choices: Choices, rows: Rows, a: Tensor, b: Tensor, ridge: Tensor) -> Tensor:
    """Every query reads the memory of the whole sequence."""
    full, diagonal = _regularised(choices, a.squeeze(2), ridge.squeeze(1))
    groups = rows.q.shape[2]
    right = rows.q.flatten(2, 3).transpose(-1, -2)
    inputs = (
        x.expand(-1, -1, groups, -1, -1).flatten(2, 3).unsqueeze(-3).unbind(-1)
        for x in (rows.steps, rows.momentum)
    )
    x = solve(choices, full, right, diagonal, _descent(*inputs))
    return x.transpose(-1, -2).unflatten(2, (groups, -1)) @ b
