"""Local polynomial regression of degree p around every query, over kept pairs:

    min over c, M:  sum_i p_i |v_i - c - M f_i|^2 + ridge |M|^2,    y = c
    p_i = w_i s(k_i, q) / sum_j w_j s(k_j, q),    f_i = the monomials of k_i - q, degree 1 .. p

Without the constant, with d_i = f_i - f_bar and means under p, one system serves all values:

    (sum_i p_i d_i d_i^T + ridge 1) u = f_bar,    y = sum_i e_i v_i,    e_i = p_i (1 - d_i . u)

All arithmetic is float64, but in the kernels that have p = 1 of bfloat16 and float16
(ttr/torch/triton/local.py). Blocks of queries are taken with all pairs that they see, F monomials
each; the backward pass forms them anew. Cost a query and pair: F^2 + 3 F + Dv multiply-adds forward.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from .._derivatives import once, refuse_tangents
from . import kernels
from .inputs import Call
from .kept_pairs import Pairs, block_of, by_blocks, final_state, pairs_of, queries, visible_range
from .normalise import read_out
from .not_finite import apart_from_pairs
from .similarity import weights
from .solvers import Factor, Inverse

#: A squared pivot of the scaled system below it is that of rows whose squares lose digits.
_LEAST_PIVOT = 1e-5


@torch.compiler.disable  # type: ignore[untyped-decorator,unused-ignore]
def run(call: Call) -> tuple[Tensor, dict[str, Tensor]]:
    """y [B, T, max(H, Hq), Dv] and the final state. Whether a system is singular is asked of its
    numbers, which no graph can."""
    refuse_tangents("regress", (*call.tensors.values(), *call.state.values()), "")
    made = kernels.made_for(call, max(call.sizes["Dk"], call.sizes["Dv"]))
    if made is not None and made.local_calls.takes(call):
        return made.local_calls.run(call), final_state(call, pairs_of(call))
    return apart_from_pairs(_run, call)


def _run(call: Call) -> tuple[Tensor, dict[str, Tensor]]:
    wide = dataclasses.replace(call, work=torch.float64)
    pairs, q = pairs_of(wide), queries(wide)
    y = _answers(wide, pairs, q).permute(0, 2, 1, 3, 4).flatten(2, 3)
    return read_out(call.choices, y, None), final_state(call, pairs)


def _answers(call: Call, pairs: Pairs, q: Tensor) -> Tensor:
    """[N, H, T, G, Dv]"""
    terms = _terms(q.shape[-1], call.choices.degree, call.device)
    count = sum(len(channels) for _, channels in terms)

    def block(call: Call, pairs: Pairs, q: Tensor, begin: int, end: int) -> Tensor:
        seen = visible_range(call, pairs, begin, end)
        k, v = (x[:, :, seen.first : seen.last] for x in (pairs.k, pairs.v))
        p = weights(call, q, k, seen, shares=True).flatten(2, 3)
        f = _monomials(k.unsqueeze(2) - q.flatten(2, 3).unsqueeze(3), terms)
        return (_shares(p, f, _ridge(call)) @ v).unflatten(2, q.shape[2:4])

    return by_blocks(block, call, pairs, q, block_of(call, pairs, 2 * count, count * count))


def _shares(p: Tensor, f: Tensor, ridge: Tensor) -> Tensor:
    """e [N, H, R, P] of p [N, H, R, P] and monomials f [N, H, R, P, F]."""
    mean = p.unsqueeze(-2) @ f
    d = f - mean
    eye = torch.eye(f.shape[-1], dtype=f.dtype, device=f.device)
    a = (p.unsqueeze(-1) * d).mT @ d + ridge[..., None, None] * eye
    u = _Solve.apply(a, mean.mT, p, f, ridge.expand(p.shape[:-1]))
    return p * (1 - (d @ u).squeeze(-1))


def _ridge(call: Call) -> Tensor:
    """[1, H, 1]"""
    given = call.get("ridge")
    if given is None:
        shape = (1, call.sizes["H"], 1)
        return torch.full(shape, call.choices.ridge, dtype=call.work, device=call.device)
    return given[None, :, None]


def _terms(width: int, degree: int, device: torch.device) -> list[tuple[Tensor, Tensor]]:
    """Monomials of every degree: which of the degree before times which channel, each once."""
    made: list[tuple[Tensor, Tensor]] = []
    last = [0]  # the highest channel in each monomial
    for _ in range(degree):
        pairs = [(i, a) for i, channel in enumerate(last) for a in range(channel, width)]
        last = [a for _, a in pairs]
        source = torch.tensor([i for i, _ in pairs], device=device)
        made.append((source, torch.tensor(last, device=device)))
    return made


def _monomials(x: Tensor, terms: list[tuple[Tensor, Tensor]]) -> Tensor:
    """[..., F]: x_a, then x_a x_b (a <= b), then x_a x_b x_c (a <= b <= c), ..."""
    made = [x]
    for source, channel in terms[1:]:
        made.append(made[-1][..., source] * x[..., channel])
    return made[0] if len(made) == 1 else torch.cat(made, -1)


class _Solve(Function):
    """u = A^+ b of A = sum_i p_i d_i d_i^T + ridge 1, the smallest-norm solution where A is singular.

    Where a Cholesky factor of A keeps too few digits, the rows sqrt(p_i) (f_i - f_c) are decomposed
    themselves; p, f and the ridge are for them, and have no gradient but through A.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, p: Tensor, f: Tensor, ridge: Tensor) -> Tensor:
        def inverse_at(at: Tensor) -> Inverse:
            w = _inverse_roots(p[at], f[at], b.squeeze(-1)[at], ridge[at])
            return lambda right: w @ (w.mT @ right)

        ctx.factor = Factor(a, _LEAST_PIVOT, inverse_at)
        u = ctx.factor.solve(b)
        ctx.save_for_backward(a, b, u)
        return u

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        a, b, u = ctx.saved_tensors
        with torch.no_grad():
            made = ctx.factor.gradients(a, b, u, g)
        return (*once(made, (a, b, u, g)), None, None, None)


def _inverse_roots(p: Tensor, f: Tensor, mean: Tensor, ridge: Tensor) -> Tensor:
    """[R, F, F]: W with A^+ = W W^T, of p [R, P], f [R, P, F], mean [R, F] and ridge [R].

    A reflection takes the constant out of the regression and leaves a row of every pair but the
    heaviest, h:  sqrt(p_i) (f_i - f_c),  f_c = (f_bar + sqrt(p_h) f_h) / (1 + sqrt(p_h)).
    """
    root = p.sqrt()
    heaviest = p.argmax(-1, keepdim=True)
    top = root.gather(-1, heaviest)
    of_top = f.gather(-2, heaviest.unsqueeze(-1).expand(-1, 1, f.shape[-1])).squeeze(-2)
    centre = (mean + top * of_top) / (1 + top)
    rows = root.scatter(-1, heaviest, 0).unsqueeze(-1) * (f - centre.unsqueeze(-2))
    eye = torch.eye(f.shape[-1], dtype=f.dtype, device=f.device)
    rows = torch.cat([rows, ridge.sqrt()[:, None, None] * eye], -2)
    _, values, vectors = torch.linalg.svd(rows, full_matrices=False)
    least = 64 * f.shape[-1] * torch.finfo(f.dtype).eps * values[..., :1]
    nothing = values <= least
    inverse = torch.where(nothing, 0, 1 / torch.where(nothing, 1, values))
    return vectors.mT * inverse.unsqueeze(-2)
