"""Exact least squares for every prefix, as passes over chunks, with gradients by formulas.

    A_t = e^{G_t} A_0 + sum_{i<=t} e^{G_t - G_i} w_i k_i k_i^T      G: the running sum of log decays
    B_t = e^{G_t} B_0 + sum_{i<=t} e^{G_t - G_i} w_i k_i v_i^T
    x_t = A_t^-1 q_t                                                the prefix solve
    y_t = B_t^T x_t                                                 linear attention, its queries x

With dx_t = B_t dy_t the gradients are one more prefix solve and sums over later tokens:

    z_t  = A_t^-1 dx_t                                              = dq_t
    dB_i = sum_{t>=i} e^{G_t - G_i} x_t dy_t^T + e^{G_T - G_i} dB_T
    dA_i = -sum_{t>=i} e^{G_t - G_i} z_t x_t^T + e^{G_T - G_i} dA_T
    dv_i = w_i dB_i^T k_i,    dk_i = w_i (dB_i v_i + (dA_i + dA_i^T) k_i)
    dw_i = k_i . (dB_i v_i + dA_i k_i)
    dg_s = sum_{i>=s} (z_i . R x_i - w_i dw_i) + <dA_T, A_T> + <dB_T, B_T>

R is a ridge that stays while A fades: with it, A_t + R stands in the place of A_t in both solves, and
dR = -sum_t z_t x_t. Without, y_t does not change when A_t and B_t are scaled together. Saved for the
backward pass: the inputs and x. Where tokens read before they write, A_{t-1} and B_{t-1} stand in
the places of A_t and B_t, and t > i in those of t >= i.

Two classes do the passes: ``passes.Passes`` by PyTorch's operators, ``ttr.torch.triton.Passes`` by
kernels.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.autograd import Function

from .._derivatives import once


class Pairs(NamedTuple):
    """What a memory is written from. k [B, T, Hk, K], v [B, T, Hv, V]; importance w and log decay g
    [B, T, H], None where all are 1 and 0."""

    k: Tensor
    v: Tensor
    w: Tensor | None
    g: Tensor | None


class Prefixes(Protocol):
    """The factors of every A_t."""

    def solve(self, q: Tensor) -> Tensor:
        """A_t^-1 q_t for q [B, T, H G, K], in the type of the sums."""

    def sound(self) -> bool:
        """Whether every A_t had a factor that keeps enough digits."""


class Passes(Protocol):
    """The passes over one set of pairs. States are those at the starts (or, from behind, at the
    ends) of chunks; their layout is the class's own."""

    def sums(self, right: Tensor, start: Tensor) -> tuple[Any, Tensor]:
        """Weighted sums of k right^T over what is before, from ``start``; and the last."""

    def later_sums(self, left: Tensor, right: Tensor, end: Tensor | None) -> tuple[Any, Tensor]:
        """Sums of left right^T over what comes after, from ``end``; and the first."""

    def prefixes(self, states: Any, ridge: Tensor | None) -> Prefixes:
        """Factors of A_t + ridge, given A at the starts of chunks."""

    def read(self, x: Tensor, states: Any) -> Tensor:
        """B_t^T x_t, in the type of v."""

    def read_back(self, dy: Tensor, states: Any) -> Tensor:
        """B_t dy_t, in the type of the sums."""

    def when_read(self, terms: Tensor) -> Tensor:
        """Terms [B, T, H] of reading tokens, moved to the tokens whose memories they read."""

    def later_tokens(self, terms: Tensor, last: Tensor) -> Tensor:
        """Sums of terms [B, T, H] over this and later tokens of a sequence, from last [N, H]."""

    def gradients(
        self, x: Tensor, z: Tensor | None, dy: Tensor, of_a: Any, of_b: Any
    ) -> tuple[Tensor, Tensor, Tensor]:
        """dk, dv [B, T, H, .] and dw [B, T, H] from the later sums of x z^T (None where nothing was
        solved) and of x dy^T."""


class Result(NamedTuple):
    y: Tensor
    a: Tensor
    b: Tensor
    sound: bool


def recall(
    maker: Any, q: Tensor, pairs: Pairs, a: Tensor, b: Tensor, ridge: Tensor | None
) -> Result:
    """y [B, T, H G, V] and the last A [N, H, K, K] and B [N, H, K, V] from the first ones.

    ``maker(pairs)`` makes the passes; ``ridge`` [H, K] is added to every A.
    Where the result is not ``sound``, y is not to be used: systems are singular to rounding.
    """
    verdict: list[bool] = []
    y, a, b = _Recall.apply(maker, verdict, q, *pairs, a, b, ridge)
    return Result(y, a, b, verdict[0])


class _Recall(Function):
    @staticmethod
    def forward(
        ctx: Any,
        maker: Any,
        verdict: list[bool],
        q: Tensor,
        k: Tensor,
        v: Tensor,
        w: Tensor | None,
        g: Tensor | None,
        a: Tensor,
        b: Tensor,
        ridge: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        passes: Passes = maker(Pairs(k, v, w, g))
        states, a_last = passes.sums(k, a)
        prefixes = passes.prefixes(states, ridge)
        x = prefixes.solve(q)
        verdict.append(prefixes.sound())
        del states, prefixes
        states, b_last = passes.sums(v, b)
        y = passes.read(x, states)
        ctx.maker, ctx.query_heads, ctx.query_type = maker, q.shape[2], q.dtype
        ctx.save_for_backward(k, v, w, g, a, b, ridge, x, a_last, b_last)
        return y, a_last, b_last

    @staticmethod
    def backward(ctx: Any, dy: Tensor, da: Tensor | None, db: Tensor | None) -> Any:
        saved = ctx.saved_tensors
        with torch.no_grad():
            made = _backward(ctx, dy, da, db)
        return (None, None, *once(made, (*saved, dy, da, db)))


def _backward(ctx: Any, dy: Tensor, da: Tensor, db: Tensor) -> tuple[Tensor | None, ...]:
    k, v, w, g, a, b, ridge, x, a_last, b_last = ctx.saved_tensors
    passes: Passes = ctx.maker(Pairs(k, v, w, g))
    z = passes.read_back(dy, passes.sums(v, b)[0])
    z = passes.prefixes(passes.sums(k, a)[0], ridge).solve(z)
    of_b, first_b = passes.later_sums(x, dy, db)
    of_a, first_a = passes.later_sums(x, z, -da.transpose(-1, -2))
    dk, dv, dw = passes.gradients(x, z, dy, of_a, of_b)
    dg = None
    if g is not None:
        whole = (da.double() * a_last).sum((-1, -2)) + (db.double() * b_last).sum((-1, -2))
        found = None
        if ridge is not None:
            found = (shared(x * z, ridge.shape[0]) * ridge).sum(-1, dtype=torch.float64)
        dg = of_decay(passes, found, w, dw, whole).to(g.dtype)
    dridge = None if ridge is None else -shared(x * z, ridge.shape[0]).sum((0, 1)).to(ridge.dtype)
    return (
        shared(z, ctx.query_heads).to(ctx.query_type),
        shared(dk, k.shape[2]).to(k.dtype),
        shared(dv, v.shape[2]).to(v.dtype),
        None if w is None else dw.to(w.dtype),
        dg,
        -first_a.transpose(-1, -2).to(a.dtype),
        first_b.to(b.dtype),
        dridge,
    )


def of_decay(
    passes: Passes, found: Tensor | None, w: Tensor | None, dw: Tensor, whole: Tensor
) -> Tensor:
    """dg [B, T, H] from what tokens ``found`` in the memories that they read, from dw, and from the
    ``whole`` memories at the end [N, H]. Sums over a sequence are in double."""
    terms = (-dw if w is None else -dw * w.to(dw.dtype)).double()
    if found is not None:
        terms = terms + passes.when_read(found)
    return passes.later_tokens(terms, whole)


def shared(x: Tensor, heads: int) -> Tensor:
    """Sums over the heads that read one of ``heads``: [B, T, H, D] becomes [B, T, heads, D]."""
    return x if x.shape[2] == heads else x.unflatten(2, (heads, -1)).sum(3)
