"""Kernel ridge regression in the span of at most ``budget`` keys D, kernel recursive least squares:

    z(x) = L^-1 s(D, x),   L L^T = s(D, D)               coordinates of x in the span of D
    A = A' + w z z^T,  A_0 = ridge 1,  B = B' + w v z^T,  z = z(k)
    y = B A^-1 z(q)

A key joins D where more than the share ``tolerance`` of s(k, k) lies outside of its span, until D is
full: one coordinate more, of which the pairs before have none. First all choices are made, which have
no gradient: one round for each key that joins, for all tokens and memories at once. What is left is
least squares on coordinates (token_systems.py). All arithmetic is float64. Cost a memory with n keys:
T n (n + Dk) multiply-adds and n rounds for the choices, T n^3 / 3 for the answers.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import torch
from torch import Tensor

from .._derivatives import refuse_tangents
from .inputs import Call, fail
from .kept_pairs import queries
from .layout import by_memory, by_token
from .normalise import read_out, unit
from .not_finite import apart
from .operands import scalars
from .recipe import query_scale
from .similarity import kernel_matrix
from .token_systems import Rows
from .token_systems import run as solve_by_token

#: A key with a larger s(d, d) is stored in units of its own (src/definition/kernel_dictionary.cc).
_MOST_PLAIN = 2.0**32


class Dictionary(NamedTuple):
    """Keys [N, H, n, Dk], L [N, H, n, n], how many there are [N, H], and of each the token at which
    it joined [N, H, n]: -1 where it was there before the call, T where it never does."""

    keys: Tensor
    lower: Tensor
    number: Tensor
    joined: Tensor


@torch.compiler.disable  # type: ignore[untyped-decorator,unused-ignore]
def run(call: Call) -> tuple[Tensor, dict[str, Tensor]]:
    """y [B, T, max(H, Hq), Dv] and the final state. Which keys join is asked of the numbers, which no
    graph can."""
    refuse_tangents("regress", (*call.tensors.values(), *call.state.values()), "")
    return apart(_run, call)


def _run(call: Call) -> tuple[Tensor, dict[str, Tensor]]:
    wide = dataclasses.replace(call, work=torch.float64)
    heads, tokens = call.sizes["H"], call.sizes["T"]
    k, v = (by_memory(wide.need(name), heads) for name in ("k", "v"))
    k = unit(k) if call.choices.normalise_qk else k
    w = scalars(wide, "importance")
    w = torch.ones_like(k[..., :1]) if w is None else w
    q = queries(wide)
    start = _start(wide)
    with torch.no_grad():
        joined, count = _choices(wide, k.squeeze(2), w[:, :, 0, :, 0], start)
    held = _joined(wide, k.squeeze(2), start, joined, count)
    at = torch.arange(tokens, device=call.device)
    z = _coordinates(wide, held, k.squeeze(2), at)
    when = at - int(call.choices.read == "before") if call.choices.causal else at + tokens
    of_queries = _coordinates(wide, held, q.flatten(2, 3), when.repeat_interleave(q.shape[3]))
    of_queries = of_queries.unflatten(2, q.shape[2:4]).transpose(2, 3)
    a, b = _first(wide, start)
    z, absent = z.unsqueeze(2), w[..., :0]
    rows = Rows(of_queries, z, w * z, v, torch.zeros_like(w), absent, absent)
    nothing = torch.zeros_like(a[..., 0, 0, :, :1])
    y, a, b = solve_by_token(call.choices, rows, a.unsqueeze(2), b.unsqueeze(2), nothing)
    return read_out(call.choices, by_token(y), None), _final(call, held, a.squeeze(2), b.squeeze(2))


def _self(call: Call, x: Tensor) -> Tensor:
    """s(x, x) of x [..., D]."""
    kernel = call.choices.kernel
    if kernel not in ("exponential", "linear"):
        return torch.ones_like(x[..., 0])
    square = query_scale(call.choices, call.sizes["Dk"]) * x.square().sum(-1)
    return square.exp() if kernel == "exponential" else square


def _start(call: Call) -> Dictionary:
    """The keys that the state holds, in plain units, and 1 on the diagonal of L elsewhere."""
    n, sizes = call.choices.budget, call.sizes
    shape = (sizes["N"], sizes["H"], n)
    eye = torch.eye(n, dtype=call.work, device=call.device)
    never = torch.full(shape, sizes["T"], device=call.device)
    if not call.state:
        keys = torch.zeros(*shape, sizes["Dk"], dtype=call.work, device=call.device)
        return Dictionary(keys, eye.expand(*shape, n), never.new_zeros(shape[:2]), never)
    for entry in call.choices.state:
        if entry.name not in call.state:
            given = next(iter(call.state))
            raise fail(f"state[{entry.name!r}]", f"given with {given}", "missing")
    count = call.state["state.count"].to(torch.int64).clamp(0, n)
    there = torch.arange(n, device=call.device) < count.unsqueeze(-1)
    keys = torch.where(there.unsqueeze(-1), call.state["state.keys"].to(call.work), 0)
    lower = call.state["state.l"].to(call.work) * _units(call, keys, call.state["state.l"])
    lower = torch.where(there.unsqueeze(-1), lower.tril(), eye)
    return Dictionary(keys, lower, count, torch.where(there, -1, never))


def _units(call: Call, keys: Tensor, lower: Tensor) -> Tensor:
    """[N, H, n, 1]: what a stored row of L is multiplied by."""
    own = lower.diagonal(dim1=-2, dim2=-1) < 0
    return torch.where(own, -_self(call, keys).sqrt(), 1).unsqueeze(-1)


def _choices(call: Call, k: Tensor, w: Tensor, start: Dictionary) -> tuple[Tensor, Tensor]:
    """When each key of the dictionary joins [N, H, n], and how many there are [N, H]."""
    n, tokens = call.choices.budget, k.shape[2]
    joined, size = start.joined.clone(), start.number.clone()
    if tokens == 0:
        return joined, size
    own = _self(call, k)
    there = (torch.arange(n, device=k.device) < size.unsqueeze(-1)).unsqueeze(-2)
    near = torch.where(there, kernel_matrix(call, k, start.keys), 0)
    z = torch.linalg.solve_triangular(start.lower, near.mT, upper=False).mT.contiguous()
    number, first = torch.arange(tokens, device=k.device), torch.zeros_like(size)
    for _ in range(n):
        outside = own - z.square().sum(-1)
        rounding = 64 * torch.finfo(k.dtype).eps * (size + 1).to(k.dtype)
        least = rounding.clamp(min=call.choices.tolerance).unsqueeze(-1)
        joins = ~(outside <= least * own) & (w != 0) & (number >= first.unsqueeze(-1))
        joins = joins & (size < n).unsqueeze(-1)
        some = joins.any(-1)
        if not bool(some.any()):
            break
        token = joins.int().argmax(-1)
        at = token[..., None, None]
        key, row = (x.gather(2, at.expand(*at.shape[:3], x.shape[-1])) for x in (k, z))
        root = outside.gather(-1, token.unsqueeze(-1)).sqrt()
        coordinate = (kernel_matrix(call, k, key) - z @ row.mT).squeeze(-1) / root
        place = size.clamp(max=n - 1)[..., None]
        new = torch.where(some.unsqueeze(-1), token.unsqueeze(-1), joined.gather(-1, place))
        joined.scatter_(-1, place, new)
        column = place.unsqueeze(-2).expand(*z.shape[:3], 1)
        kept = torch.where(some[..., None, None], coordinate.unsqueeze(-1), z.gather(-1, column))
        z.scatter_(-1, column, kept)
        first = torch.where(some, token + 1, first)
        size = size + some
    return joined, size


def _joined(
    call: Call, k: Tensor, start: Dictionary, joined: Tensor, count: Tensor
) -> Dictionary:
    """The dictionary with its keys of the call, and L; a factor of what both keep and have new."""
    n, tokens = call.choices.budget, k.shape[2]
    new = (joined >= 0) & (joined < tokens)
    keys = start.keys
    if tokens:
        at = joined.clamp(0, tokens - 1).unsqueeze(-1).expand(*joined.shape, k.shape[-1])
        keys = torch.where(new.unsqueeze(-1), k.gather(2, at), keys)
    there = joined < tokens
    both = there.unsqueeze(-1) & there.unsqueeze(-2)
    old = (joined < 0).unsqueeze(-1) & (joined < 0).unsqueeze(-2)
    eye = torch.eye(n, dtype=k.dtype, device=k.device)
    gram = torch.where(both, kernel_matrix(call, keys, keys), eye)
    gram = torch.where(old, start.lower @ start.lower.mT, gram)
    lower = torch.linalg.cholesky_ex(gram)[0]
    # A key that was there keeps its row, to the bit.
    lower = torch.where((joined < 0).unsqueeze(-1), start.lower, lower)
    return Dictionary(keys, lower, count, joined)


def _coordinates(call: Call, held: Dictionary, x: Tensor, when: Tensor) -> Tensor:
    """z of x [N, H, R, Dk], [N, H, R, n]: 0 in directions that join after ``when`` [R]."""
    joined = held.joined.unsqueeze(-2)
    near = torch.where(joined < call.sizes["T"], kernel_matrix(call, x, held.keys), 0)
    z = torch.linalg.solve_triangular(held.lower, near.mT, upper=False).mT
    return torch.where((joined <= when.unsqueeze(-1)) & (joined < call.sizes["T"]), z, 0)


def _first(call: Call, start: Dictionary) -> tuple[Tensor, Tensor]:
    """A [N, H, n, n] and B^T [N, H, n, Dv]; a direction that is to join has its ridge."""
    sizes, ridge = call.sizes, call.get("ridge")
    if ridge is None:
        ridge = torch.full((1,), call.choices.ridge, dtype=call.work, device=call.device)
    there = start.joined < 0
    fresh = torch.where(there, 0, ridge.unsqueeze(-1))
    if not call.state:
        b = torch.zeros(*there.shape, sizes["Dv"], dtype=call.work, device=call.device)
        return torch.diag_embed(fresh), b
    r = call.state["state.r"].to(call.work)
    r = r * _units(call, start.keys, call.state["state.l"]).abs().mT
    r = torch.where(there.unsqueeze(-1) & there.unsqueeze(-2), r, 0)
    e = torch.where(there.unsqueeze(-1), call.state["state"].to(call.work), 0)
    return r.mT @ r + torch.diag_embed(fresh), r.mT @ e


def _final(call: Call, held: Dictionary, a: Tensor, b: Tensor) -> dict[str, Tensor]:
    if not call.choices.causal:
        return {}
    n = call.choices.budget
    there = torch.arange(n, device=a.device) < held.number.unsqueeze(-1)
    both = there.unsqueeze(-1) & there.unsqueeze(-2)
    root = torch.linalg.cholesky_ex(torch.where(both, a, torch.eye(n, dtype=a.dtype, device=a.device)))[0]
    e = torch.linalg.solve_triangular(root, torch.where(there.unsqueeze(-1), b, 0), upper=False)
    own = _self(call, held.keys)
    units = torch.where((own > _MOST_PLAIN) & own.isfinite(), own.sqrt(), 1).unsqueeze(-1)
    lower = torch.where(both, torch.where(units == 1, held.lower, -held.lower / units), 0)
    final = {
        "state": e,
        "state.r": torch.where(both, root, 0).mT / units.mT,
        "state.keys": held.keys,
        "state.l": lower.tril(),
    }
    final = {name: call.stored(name, x.to(call.work)) for name, x in final.items()}
    return {**final, "state.count": held.number}
