"""Gradient descent towards kernel ridge regression, from 0 and over kept pairs:

    x <- x + d,  d <- eta (k(q) - (K W + ridge 1) x) + momentum d,    y = V^T W x

W = diag(w_i), K = s(k_i, k_j), k(q) = s(k_i, q). Every token has weights of its own, 0 of what it does not
see, and so a system of its own; but K is that of all, so that a step of many tokens is one product with it.
All arithmetic is float64. Cost a step: T G P^2 multiply-adds of P pairs.

Conjugate gradients go the way of systems that are formed (kernel_regression.py).
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from .._derivatives import refuse_tangents
from .inputs import Call
from .kept_pairs import Pairs, VisibleRange, block_of, by_blocks, final_state, no_answers, pairs_of, queries, visible_range
from .kernel_regression import ridge_of
from .layout import by_memory
from .normalise import read_out
from .not_finite import apart_from_pairs
from .similarity import kernel_matrix


def run(call: Call) -> tuple[Tensor, dict[str, Tensor]]:
    """y [B, T, max(H, Hq), Dv] and the final state."""
    refuse_tangents("regress", (*call.tensors.values(), *call.state.values()), "")
    return apart_from_pairs(_run, call)


def _run(call: Call) -> tuple[Tensor, dict[str, Tensor]]:
    wide = dataclasses.replace(call, work=torch.float64)
    pairs, q = pairs_of(wide), queries(wide)
    y = by_blocks(_block, wide, pairs, q, block_of(wide, pairs, 3)) if q.shape[2] else no_answers(pairs, q)
    y = read_out(call.choices, y.permute(0, 2, 1, 3, 4).flatten(2, 3), None)
    return y, final_state(call, pairs)


def _block(call: Call, pairs: Pairs, q: Tensor, begin: int, end: int) -> Tensor:
    """[N, H, C, G, Dv] of a block's queries [N, H, C, G, Dk]."""
    seen = visible_range(call, pairs, begin, end)
    k, v = (x[:, :, seen.first : seen.last] for x in (pairs.k, pairs.v))
    gram, ridge = kernel_matrix(call, k, k), ridge_of(call)[:, None, None, None]
    w = _weights(seen).unsqueeze(3)
    near = kernel_matrix(call, q.flatten(2, 3), k).unflatten(2, q.shape[2:4])
    momentum = _of_tokens(call, "momentum", begin, end)
    x = step = torch.zeros_like(near)
    for eta in _sizes(call, w, gram, ridge, begin, end):
        left = near - ((w * x).flatten(2, 3) @ gram).view_as(near) - ridge * x
        step = left if momentum is None else left + momentum * step
        x = x + eta * step
    return ((w * x).flatten(2, 3) @ v).unflatten(2, q.shape[2:4])


def _weights(seen: VisibleRange) -> Tensor:
    """w_i as each token sees it, [1 or N, 1 or H, C, p]; 0 of what it does not see."""
    w = seen.seen.to(torch.float64)
    if seen.log_weight is not None:
        w = torch.where(seen.seen, seen.log_weight, -torch.inf).exp()
    return w if seen.factor is None else w * seen.factor


def _of_tokens(call: Call, name: str, begin: int, end: int) -> Tensor | None:
    """[B, H, C, 1, 1 or n] of an input of the token that reads."""
    given = call.get(name)
    if given is None:
        return None
    rows = by_memory(given[:, begin:end], call.sizes["H"]).squeeze(2)
    return rows.reshape(*rows.shape[:3], 1, -1)


def _sizes(call: Call, w: Tensor, gram: Tensor, ridge: Tensor, begin: int, end: int) -> list[Tensor | float]:
    """The size of every step: eta, a share of a bound of the largest eigenvalue, |W^1/2 K W^1/2|_F + ridge, or
    an input."""
    choices = call.choices
    if choices.eta_kind == "input":
        given = _of_tokens(call, "step", begin, end)
        assert given is not None
        return [given[..., n, None] for n in range(choices.steps)]
    if choices.eta_kind == "constant":
        return [float(choices.eta)] * choices.steps
    square = ((w.squeeze(3) @ gram.square()) * w.squeeze(3)).sum(-1)[..., None, None]
    nothing = square == 0
    bound = torch.where(nothing, 0, torch.where(nothing, 1, square).sqrt()) + ridge
    still = bound == 0
    return [torch.where(still, 0, choices.eta / torch.where(still, 1, bound))] * choices.steps
