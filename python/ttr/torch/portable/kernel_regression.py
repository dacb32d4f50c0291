"""Least squares in the space of a kernel's functions, over kept pairs:

    y = k(q)^T R (R K R + ridge 1)^-1 R V,    R = diag(w_i)^1/2,  K = s(k_i, k_j),  k(q) = s(k_i, q)

Where nothing fades and no window ends, the system of a prefix is a leading block of that of all P
pairs, and so is its factor:

    R K R + ridge 1 = L L^T,    E = L^-1 R V,    Z = L^-1 R k(Q),    y_t = sum_{i <= t} Z_it E_i

All others, and systems that are singular to rounding, are formed and solved for every token, with
the smallest norm; conjugate gradients (`kernel | conjugate_gradient`) go this way, too. All arithmetic is float64. Cost a memory: P^3 / 3 + P^2 (T G + Dv) multiply-adds
forward and P^2 numbers; of a system a token T P^3 / 3, or T W^3 / 3 of a window W.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .._derivatives import refuse_tangents
from .inputs import Call
from .kept_pairs import (
    Pairs,
    VisibleRange,
    block_of,
    by_blocks,
    final_state,
    no_answers,
    pairs_of,
    queries,
    visible_range,
)
from .normalise import read_out
from .not_finite import apart_from_pairs
from .recipe import query_scale
from .similarity import kernel_matrix
from .solvers import Exact, solve

#: Numbers of the systems that are formed at a time.
_SYSTEM_NUMBERS = 1 << 25


@torch.compiler.disable  # type: ignore[untyped-decorator,unused-ignore]
def run(call: Call) -> tuple[Tensor, dict[str, Tensor]]:
    """y [B, T, max(H, Hq), Dv] and the final state. Whether a system is singular is asked of its
    numbers, which no graph can."""
    refuse_tangents("regress", (*call.tensors.values(), *call.state.values()), "")
    return apart_from_pairs(_run, call)


def _run(call: Call) -> tuple[Tensor, dict[str, Tensor]]:
    wide = dataclasses.replace(call, work=torch.float64)
    pairs, q = pairs_of(wide), queries(wide)
    y = _answers(wide, pairs, q) if q.shape[2] else no_answers(pairs, q)
    y = read_out(call.choices, y.permute(0, 2, 1, 3, 4).flatten(2, 3), None)
    return y, final_state(call, pairs)


def _answers(call: Call, pairs: Pairs, q: Tensor) -> Tensor:
    """[N, H, T, G, Dv]"""
    choices = call.choices
    if not choices.causal:
        return _system(call, pairs, q.flatten(2, 3).unsqueeze(2), 0, 1).view(*q.shape[:4], -1)
    nested = choices.decay == "none" and choices.window == 0 and choices.optimizer == "exact"
    if not nested or query_scale(choices, call.sizes["Dk"]) < 0:
        return _by_token(call, pairs, q)
    rows = []
    parts = list(_parts(call, pairs, q))
    for part in parts:
        if len(parts) > 1:
            y = checkpoint(_by_prefix, *part, use_reentrant=False, preserve_rng_state=False)
        else:
            y = _by_prefix(*part)
        rows.append(y)
    heads = -(-q.shape[1] // rows[0].shape[1])
    return torch.cat([torch.cat(rows[i : i + heads], 1) for i in range(0, len(rows), heads)])


def _parts(call: Call, pairs: Pairs, q: Tensor) -> Iterator[tuple[Call, Pairs, Tensor]]:
    """As many memories at a time as their systems have room: all heads of some sequences, or some heads
    of one."""
    count, heads = q.shape[:2]
    pairs_held, answers = pairs.k.shape[2], q.shape[2] * q.shape[3]
    room = max(1, _SYSTEM_NUMBERS // (pairs_held * (pairs_held + answers)))
    some_heads, some = min(heads, room), max(1, room // heads)
    for n in range(0, count, some):
        for h in range(0, heads, some_heads):
            yield _part(call, pairs, q, slice(n, n + some), slice(h, h + some_heads))


def _part(call: Call, pairs: Pairs, q: Tensor, n: slice, h: slice) -> tuple[Call, Pairs, Tensor]:
    def cut(x: Tensor) -> Tensor:
        whole = slice(None)  # of what all sequences or heads have in common
        return x[n if x.shape[0] > 1 else whole, h if x.shape[1] > 1 else whole]

    tensors = dict(call.tensors)
    tensors.update({name: tensors[name][h] for name in tensors if name in ("ridge", "bandwidth")})
    part = pairs._replace(
        k=cut(pairs.k),
        v=cut(pairs.v),
        place=cut(pairs.place),
        log_weight=None if pairs.log_weight is None else cut(pairs.log_weight),
        factor=None if pairs.factor is None else cut(pairs.factor),
    )
    return dataclasses.replace(call, tensors=tensors), part, q[n, h]


def ridge_of(call: Call) -> Tensor:
    """[H] or [1]"""
    given = call.get("ridge")
    if given is None:
        return torch.full((1,), call.choices.ridge, dtype=call.work, device=call.device)
    return given


def _roots(pairs: Pairs, seen: VisibleRange) -> Tensor:
    """sqrt(w_i) of the pairs that are seen, [N, H, C, p]; others 0, and without a gradient."""
    roots = seen.seen.to(pairs.k.dtype)
    if seen.log_weight is not None:
        known = torch.where(seen.seen, seen.log_weight, 0)
        roots = roots * (known / 2).exp()
    if seen.factor is not None:
        roots = roots * (seen.factor != 0)
    return roots


def _regular(gram: Tensor, roots: Tensor, ridge: Tensor) -> Tensor:
    """R K R + ridge 1; what has no weight is a 1 on the diagonal, apart from all others."""
    diagonal = torch.where(roots == 0, 1, ridge)
    return roots.unsqueeze(-1) * gram * roots.unsqueeze(-2) + torch.diag_embed(diagonal)


def _by_prefix(call: Call, pairs: Pairs, q: Tensor) -> Tensor:
    """All prefixes from one factor, or, where it keeps too few digits, every one by itself."""
    tokens = q.shape[2]
    seen = visible_range(call, pairs, 0, tokens)
    everything = seen._replace(seen=pairs.place[..., None, :] < tokens)
    if seen.log_weight is not None:
        everything = everything._replace(seen=everything.seen & (seen.log_weight != -torch.inf))
    roots = _roots(pairs, everything).squeeze(-2)
    ridge = ridge_of(call)[:, None]
    a = _regular(kernel_matrix(call, pairs.k, pairs.k), roots, ridge)
    scale = a.detach().diagonal(dim1=-2, dim2=-1).clamp(min=1e-290).rsqrt()
    lower, info = torch.linalg.cholesky_ex(scale.unsqueeze(-1) * a * scale.unsqueeze(-2))
    least = lower.detach().diagonal(dim1=-2, dim2=-1).square().amin()
    if bool((info != 0).any()) or not bool(least > 64 * a.shape[-1] * torch.finfo(a.dtype).eps):
        return _by_token(call, pairs, q)
    scaled = (scale * roots).unsqueeze(-1)
    near = kernel_matrix(call, pairs.k, q.flatten(2, 3))
    z = torch.linalg.solve_triangular(lower, scaled * near, upper=False)
    e = torch.linalg.solve_triangular(lower, scaled * pairs.v, upper=False)
    z = z.mT.unflatten(2, q.shape[2:4])
    y = (z * seen.seen.unsqueeze(3)).flatten(2, 3) @ e
    y = y.unflatten(2, q.shape[2:4])
    if _has_slopes(pairs):
        with torch.no_grad():
            of_keys = kernel_matrix(call, pairs.k, pairs.k)
            x = torch.linalg.solve_triangular(lower, scaled * of_keys, upper=False).mT
        y = y + _slopes(call, pairs, seen, near.detach(), x, z.detach(), e.detach())
    return y


def _has_slopes(pairs: Pairs) -> bool:
    """Whether gradients by importances of 0 are asked for."""
    factor = pairs.factor
    return factor is not None and factor.requires_grad and bool((factor == 0).any())


def _slopes(
    call: Call, pairs: Pairs, seen: VisibleRange, near: Tensor, x: Tensor, z: Tensor, e: Tensor
) -> Tensor:
    """0, with the gradient by importances w_i = 0: what the fits of k(q) and V leave at k_i,

        dy / dw_i = (s(k_i, q) - x_i . z) (v_i - x_i E)^T / ridge

    sums over the pairs that a token sees. x [N, H, P, P] are the solutions of the keys.
    """
    assert pairs.factor is not None
    factor = torch.where(pairs.factor == 0, pairs.factor, 0).unsqueeze(2)
    tokens, group = z.shape[2:4]
    near = near.mT.unflatten(2, (tokens, group))
    v = pairs.v.detach().unsqueeze(2)
    size = max(1, _SYSTEM_NUMBERS // max(1, x.numel()))
    made = []
    for begin in range(0, tokens, size):
        there = seen.seen[:, :, begin : begin + size]
        known = x.unsqueeze(2) * there.unsqueeze(-2)  # [N, H, C, P, P]
        of_query = near[:, :, begin : begin + size] - z[:, :, begin : begin + size] @ known.mT
        of_value = v - known @ e.unsqueeze(2)
        made.append(_sloped(call, factor * there, of_query, of_value))
    return torch.cat(made, 2)


def _fades(seen: VisibleRange) -> Tensor:
    """What an importance is multiplied by at each token, [N, H, C, p]."""
    assert seen.log_weight is not None
    return torch.where(seen.seen, seen.log_weight.detach(), -torch.inf).exp()


def _sloped(call: Call, factor: Tensor, of_query: Tensor, of_value: Tensor) -> Tensor:
    """[N, H, C, G, Dv] of weights [N, H, C, P] and leftovers [N, H, C, G, P] and [N, H, C, P, Dv]."""
    ridge = ridge_of(call).detach()[:, None, None, None]
    slope = torch.where(ridge == 0, 0, of_query / torch.where(ridge == 0, 1, ridge))
    return (slope * factor.unsqueeze(3)) @ of_value


def _by_token(call: Call, pairs: Pairs, q: Tensor) -> Tensor:
    """A system for every token."""
    seen, window = pairs.k.shape[2], call.choices.window
    each = min(seen, 2 * max(window, 16)) if window else seen
    room = max(1, _SYSTEM_NUMBERS // (q.shape[0] * q.shape[1] * each**2))
    size = min(block_of(call, pairs, 1), room)
    return by_blocks(_system, call, pairs, q, size)


def _solve(call: Call, a: Tensor, right: Tensor) -> Tensor:
    """A^-1 right, exactly or as conjugate gradients leave it."""
    if call.choices.optimizer == "exact":
        return Exact.apply(a, right)
    return solve(call.choices, a, right, ridge_of(call))


def _system(call: Call, pairs: Pairs, q: Tensor, begin: int, end: int) -> Tensor:
    """[N, H, C, G, Dv] of a block's queries [N, H, C, G, Dk]."""
    seen = visible_range(call, pairs, begin, end)
    k, v = (x[:, :, seen.first : seen.last] for x in (pairs.k, pairs.v))
    roots, ridge = _roots(pairs, seen), ridge_of(call)[:, None, None]
    gram = kernel_matrix(call, k, k)
    a = _regular(gram.unsqueeze(2), roots, ridge)
    near = kernel_matrix(call, k, q.flatten(2, 3)).unflatten(3, q.shape[2:4]).transpose(2, 3)
    x = roots.unsqueeze(-1) * _solve(call, a, roots.unsqueeze(-1) * near)  # [N, H, C, p, G]
    y = x.mT @ v.unsqueeze(2)
    if _has_slopes(pairs) and seen.factor is not None:
        with torch.no_grad():
            fit = roots.unsqueeze(-1) * _solve(call, a, roots.unsqueeze(-1) * v.unsqueeze(2))
            of_query = (near - gram.unsqueeze(2) @ x).mT
            of_value = v.unsqueeze(2) - gram.unsqueeze(2) @ fit
        factor = torch.where(seen.factor == 0, seen.factor, 0)
        y = y + _sloped(call, factor * _fades(seen), of_query, of_value)
    return y
