"""Memories that are written without being read, with a scalar decay, by the passes of prefix_solve:

    S_t = e^{G_t} S_0 + sum_{i<=t} e^{G_t - G_i} w_i k_i v_i^T,   y_t = S_t^T q_t

    dq_t = S_t dy_t,   dS_i = sum_{t>=i} e^{G_t - G_i} q_t dy_t^T + e^{G_T - G_i} dS_T
    dk_i = w_i dS_i v_i,   dv_i = w_i dS_i^T k_i,   dw_i = k_i . dS_i v_i
    dg_s = sum_{i>=s} (q_i . dq_i - w_i dw_i) + <dS_T, S_T>

Saved for the backward pass: the inputs. Where tokens read before they write, S_{t-1} stands in the
place of S_t, and t > i in that of t >= i.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from .._derivatives import once
from .inputs import Call
from .kernels import CHUNK, ends, plain_rows
from .layout import by_token, queries_by_memory
from .operands import Rows, scalars
from .prefix_solve import Pairs, Passes, of_decay, shared


def attend(maker: Any, q: Tensor, pairs: Pairs, state: Tensor) -> tuple[Tensor, Tensor]:
    """y [B, T, H G, V] and the last state [N, H, K, V] from the first; ``maker(pairs)`` makes the
    passes."""
    y, last = _Attention.apply(maker, q, *pairs, state)
    return y, last


class _Attention(Function):
    @staticmethod
    def forward(
        ctx: Any,
        maker: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        w: Tensor | None,
        g: Tensor | None,
        state: Tensor,
    ) -> tuple[Tensor, Tensor]:
        passes: Passes = maker(Pairs(k, v, w, g))
        states, last = passes.sums(v, state)
        ctx.maker = maker
        ctx.save_for_backward(q, k, v, w, g, state, last)
        return passes.read(q, states), last

    @staticmethod
    def backward(ctx: Any, dy: Tensor, dlast: Tensor) -> Any:
        saved = ctx.saved_tensors
        with torch.no_grad():
            made = _backward(ctx.maker, saved, dy, dlast)
        return (None, *once(made, (*saved, dy, dlast)))


def _backward(
    maker: Any, saved: tuple[Tensor, ...], dy: Tensor, dlast: Tensor
) -> tuple[Tensor | None, ...]:
    q, k, v, w, g, state, last = saved
    passes: Passes = maker(Pairs(k, v, w, g))
    dq = passes.read_back(dy, passes.sums(v, state)[0])
    x = q.repeat_interleave(dq.shape[2] // q.shape[2], 2)
    later, first = passes.later_sums(x, dy, dlast)
    dk, dv, dw = passes.gradients(x, None, dy, None, later)
    dg = None
    if g is not None:
        found, whole = shared(x * dq, dw.shape[2]), (dlast.double() * last).sum(-1)
        if g.dim() == 4:
            own = k.repeat_interleave(dk.shape[2] // k.shape[2], 2) * dk
            dg = passes.later_tokens(passes.when_read(found.double()) - own, whole).to(g.dtype)
        else:
            found = found.sum(-1, dtype=torch.float64)
            dg = of_decay(passes, found, w, dw, whole.sum(-1)).to(g.dtype)
    return (
        shared(dq, q.shape[2]).to(q.dtype),
        shared(dk, k.shape[2]).to(k.dtype),
        shared(dv, v.shape[2]).to(v.dtype),
        None if w is None else dw.to(w.dtype),
        dg,
        first.to(state.dtype),
    )


def run(call: Call, rows: Rows, state: Tensor, kernels: Any) -> tuple[Tensor, Tensor]:
    """The rows' outputs [B, H, G, T, V] and the last state [N, H, 1, K, V], by ``kernels``."""
    heads = call.sizes["H"]
    q, pairs = _operands(call, rows)

    def passes(pairs: Pairs) -> Passes:
        return kernels.Passes(pairs, heads, ends(call), call.choices.read, CHUNK)

    y, last = attend(passes, q, pairs, state.squeeze(2))
    return queries_by_memory(y, heads), last.unsqueeze(2)


def decays(rows: Rows) -> Tensor | None:
    """[B, T, H], or [B, T, H, K] where each key channel fades for itself."""
    if rows.log_decay is None:
        return None
    g = by_token(rows.log_decay)
    return g.squeeze(-1) if g.shape[-1] == 1 else g


def _operands(call: Call, rows: Rows) -> tuple[Tensor, Pairs]:
    """As they came in, where the recipe does nothing else to them."""
    choices = call.choices
    g = decays(rows)
    given = plain_rows(call) if choices.importance in ("none", "input") else None
    if given is None or choices.normalise_sum != "none":
        return by_token(rows.q), Pairs(by_token(rows.key), by_token(rows.v), None, g)
    w = scalars(call, "importance") if choices.importance == "input" else None
    w = None if w is None else by_token(w).squeeze(-1)
    return given[0], Pairs(given[1], call.tensors["v"], w, g)
