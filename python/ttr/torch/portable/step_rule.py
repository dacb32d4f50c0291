"""Memories that take one step for each pair, by passes over chunks:

    E_t = M~_t^T e_t,   M_t = M~_t + k_t (v_t - E_t)^T,   M~_t = e^{g_t} M_{t-1},   y_t = M_t^T q_t

g is a number, or one for each key channel. With D = V - E the memory is a linear attention of k and D,
and so is what the erase keys e found in it:

    M_t = e^{G_t} M_0 + sum_{i<=t} e^{G_t - G_i} k_i D_i^T,    (1 + S) D = V - c (e M_0)
    S_ti = sum_c e_tc k_ic e^{G_tc - G_ic},  i < t             c_t = e^{G_t}

Its gradient is that of a linear attention which is read twice, by q with dy and by e with -dD:

    (1 + S^T) dD = sum_{t>=i} (q_t . e^{G_t - G_i} k_i) dy_t + e^{G_T - G_i} k_i R,   R = dM at the end
    dv = dD,   de_t = -M~_t dD_t,   dq_t = M_t dy_t
    dk_i = sum_{t>=i} (D_i . dy_t) q_t - sum_{t>i} (D_i . dD_t) e_t + R D_i           (each faded)
    dg_s = sum_{i>=s} (q_i dq_i + e_i de_i - k_i dk_i) + dM_T M_T^T                   (a channel's, or all)

Only D and M wait for the chunk before, one product each. Saved for the backward pass: the inputs.

No factor of a channel is divided by another. A chunk is halved again and again; rows t of a later half
meet columns i of the earlier one at m, where both touch, and

    e^{G_t - G_i} = e^{G_t - G_m} e^{G_m - G_i}

is a product of two factors of at most 1, each of a sum of its own logarithms: six products of matrices
for the 64 tokens of a chunk, exact for decays of 0 and for any number of digits (decays.ChannelDecay,
ttr/torch/triton/channels.py). Where keys erase before the memory fades, M_{t-1} stands in the place of
M~_t, and G_{t-1} in that of e_t's G_t. What erases along another key a than it writes is two rows: one
that fades and erases, with k = a and v = 0, and one that writes, with e = 0.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from .._derivatives import once
from .inputs import Call
from .kernels import CHUNK, ends
from .layout import by_token, queries_by_memory
from .linear_attention import decays
from .operands import Rows
from .prefix_solve import Pairs, shared


class _StepRule(Function):
    @staticmethod
    def forward(
        ctx: Any,
        maker: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        e: Tensor,
        g: Tensor | None,
        state: Tensor,
    ) -> tuple[Tensor, Tensor]:
        passes = maker(Pairs(k, v, None, g))
        d, states, last = passes.write(e, state)
        ctx.maker = maker
        ctx.save_for_backward(q, k, v, e, g, state, last)
        return passes.read_written(q, d, states), last

    @staticmethod
    def backward(ctx: Any, dy: Tensor, dlast: Tensor) -> Any:
        saved = ctx.saved_tensors
        with torch.no_grad():
            made = _backward(ctx.maker, saved, dy, dlast)
        return (None, *once(made, (*saved, dy, dlast)))


def _backward(
    maker: Any, saved: tuple[Tensor, ...], dy: Tensor, dlast: Tensor
) -> tuple[Tensor | None, ...]:
    q, k, v, e, g, state, last = saved
    passes = maker(Pairs(k, v, None, g))
    d, states, _ = passes.write(e, state)
    dd, later, first = passes.write_back(q, e, dy, dlast)
    dq, de = passes.found(dy, d, states), passes.erased(-dd, d, states)
    dk = passes.of_written(q, e, dy, d, dd, later)
    dg = None
    if g is not None:
        written, erased, read = k * dk, e * de, shared(q * dq, k.shape[2])
        whole = (dlast.double() * last).sum(-1)
        if g.dim() == 3:
            written, erased, read, whole = (x.sum(-1, dtype=torch.float64) for x in (written, erased, read, whole))
        terms = passes.when_erased(erased) + passes.when_read(read) - written
        dg = passes.later_tokens(terms.double(), whole).to(g.dtype)
    return dq, dk, dd, de, dg, first


def run(call: Call, rows: Rows, state: Tensor, kernels: Any) -> tuple[Tensor, Tensor]:
    """The rows' outputs [B, H, G, R, V] and the last state [N, H, 1, K, V], by ``kernels``."""
    heads, at = call.sizes["H"], call.choices.read
    along = rows.along is not None
    rows = _erased_then_written(_shrunk(rows), at) if along else _shrunk(rows)
    per_token = call.choices.rows_per_token * (2 if along else 1)
    starts = tuple(end * per_token for end in ends(call))

    def passes(pairs: Pairs) -> Any:
        return kernels.Steps(pairs, heads, starts, at, CHUNK, rows.undecayed)

    assert rows.erase is not None
    of = (by_token(x) for x in (rows.q, rows.key, rows.v, rows.erase))
    y, last = _StepRule.apply(passes, *of, decays(rows), state.squeeze(2))
    y = queries_by_memory(y, heads)
    if along:
        y = y[..., 0 if at == "before" else 1 :: 2, :]
    return y, last.unsqueeze(2)


def takes(rows: Rows) -> bool:
    """Whether the passes take these rows: factors go through their logarithms."""
    return rows.shrink is None or bool((rows.shrink > LEAST_SHRINK).all())


#: A factor's gradient is that of its logarithm over the factor.
LEAST_SHRINK = 1 / 16


def _shrunk(rows: Rows) -> Rows:
    """M~ = e^g M', M = s M~ + k (v - M~^T e)^T fades by e^g s, and erase keys e^g e read M'."""
    if rows.shrink is None:
        return rows
    g, erase = rows.shrink.log(), rows.erase
    assert erase is not None
    if rows.log_decay is not None:
        g, erase = g + rows.log_decay, rows.log_decay.exp() * erase
    return dataclasses.replace(rows, log_decay=g, erase=erase, shrink=None, undecayed=True)


def _erased_then_written(rows: Rows, at: str) -> Rows:
    """Two rows for each: the first fades and erases along a key of its own, the second writes."""
    nothing = torch.zeros_like(rows.key)
    first, second = (rows.q, rows.q * 0) if at == "before" else (rows.q * 0, rows.q)
    g = rows.log_decay
    assert rows.along is not None and rows.erase is not None
    return dataclasses.replace(
        rows,
        q=_alternating(first, second),
        key=_alternating(rows.along, rows.key),
        v=_alternating(torch.zeros_like(rows.v), rows.v),
        erase=_alternating(rows.erase, nothing),
        log_decay=None if g is None else _alternating(g, torch.zeros_like(g)),
        along=None,
    )


def _alternating(first: Tensor, second: Tensor) -> Tensor:
    """[..., R, D] twice becomes [..., 2 R, D]."""
    return torch.stack([first, second], -2).flatten(-3, -2)
