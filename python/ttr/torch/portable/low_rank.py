"""Keys divided by a curvature of low rank, token by token:

    C_t = g U_{t-1}^T U_{t-1} + b_t k_t k_t^T,   w_t = (ridge I + C_t)^-1 k_t
    U_t^T U_t = the `rank` largest eigenpairs of C_t

of every row; of the rows of a token only the first fades what was before.

With G = ridge I + U U^T, U faded, all that is solved has `rank` rows:

    x = G^-1 U k,   r = k - U^T x,   z = (ridge I + U^T U)^-1 k = r / ridge
    w = z / (1 + b k . z),           k . z = |x|^2 + |r|^2 / ridge

and what is dropped is the eigenvector e of N N^T with the least eigenvalue, N = [U; sqrt(b) k]: U = H N, H any
rows that are orthonormal and orthogonal to e. A reflection that turns e onto an axis has such rows. So gradients
ask for the gap between the least eigenvalue and the others alone, and none where others are equal.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from .._derivatives import once
from .inputs import Call


class _Eigenvectors(Function):
    """Eigenvectors of [..., n, n] as columns, the least eigenvalue first. Of equal eigenvalues any vectors are as good as
    others: what turns these into each other has no gradient here."""

    @staticmethod
    def forward(ctx: Any, gram: Tensor) -> Tensor:
        values, vectors = torch.linalg.eigh(gram)
        ctx.save_for_backward(gram, values, vectors)
        return vectors

    @staticmethod
    def backward(ctx: Any, d: Tensor) -> Tensor:
        gram, values, vectors = ctx.saved_tensors
        gaps = values.unsqueeze(-2) - values.unsqueeze(-1)
        numbers = torch.finfo(values.dtype)
        equal = gaps.abs() <= numbers.eps * values[..., -1:, None].clamp_min(numbers.tiny)
        turned = torch.where(equal, 0, (vectors.mT @ d) / torch.where(equal, 1, gaps))
        outer = vectors @ turned @ vectors.mT
        (made,) = once([(outer + outer.mT) / 2], (gram, d))
        assert made is not None
        return made


def _eigenvectors(gram: Tensor) -> Tensor:
    vectors: Tensor = _Eigenvectors.apply(gram)  # type: ignore[no-untyped-call]
    return vectors


def _without_least(rows: Tensor, gram: Tensor) -> Tensor:
    """U of N [..., r + 1, d]: [..., r, d], orthogonal, the shortest first."""
    vectors = _eigenvectors(gram)
    least, kept = vectors[..., 0], vectors[..., 1:].detach()
    e = torch.where(least[..., -1:] < 0, -least, least)
    # I - u u^T / (1 + e_n), u = e + (0, .., 0, 1), turns e onto minus the last axis.
    u = torch.cat([e[..., :-1], e[..., -1:] + 1], -1).unsqueeze(-1)

    def turned(x: Tensor) -> Tensor:
        return (x - u @ (u.mT @ x) / u[..., -1:, :])[..., :-1, :]

    # Only U^T U counts, so that what turns rows of U into each other may be a constant.
    return turned(kept).detach().mT @ turned(rows)


def _orthogonal(u: Tensor) -> Tensor:
    """The curvature of u by orthogonal rows."""
    return _eigenvectors(u @ u.mT).detach().mT @ u


def _add_key(u: Tensor, key: Tensor, weight: Tensor) -> Tensor:
    """The next U of orthogonal rows, a key and its weight b.

    Eigenvectors tell little of the slope by b where b is nearly 0, and nothing where it is 0. There U is
    u_i + b (u_i . k / |u_i|^2) (k - p / 2) to rounding, p the part of k in the rows of u."""
    with torch.no_grad():
        squares = u.square().sum(-1, keepdim=True)
        rounding = torch.finfo(u.dtype).eps * squares
        nothing = squares <= rounding.amax(-2, keepdim=True)
        shares = torch.where(nothing, 0, u @ key.unsqueeze(-1) / torch.where(nothing, 1, squares))
        slope = shares @ (key.unsqueeze(-2) - shares.mT @ u / 2)
        little = weight * key.square().sum(-1, keepdim=True) <= rounding.amin(-2)
    n = torch.cat([u, (torch.where(little, 1, weight).sqrt() * key).unsqueeze(-2)], -2)
    return torch.where(
        little.unsqueeze(-1), u + weight.unsqueeze(-1) * slope, _without_least(n, n @ n.mT)
    )


def _longest_first(u: Tensor) -> Tensor:
    """The curvature of u by orthogonal rows, the largest entry of each above 0: what a state holds."""
    rows = _eigenvectors(u @ u.mT).flip(-1).mT @ u
    largest = rows.gather(-1, rows.abs().argmax(-1, keepdim=True))
    return torch.where(largest < 0, -rows, rows)


def _gain(u: Tensor, key: Tensor, weight: Tensor | None, ridge: float) -> Tensor:
    """(ridge I + U^T U + b k k^T)^-1 k of orthogonal rows [..., r, d] and keys [..., d]."""
    k, eye = key.unsqueeze(-1), torch.eye(u.shape[-2], dtype=u.dtype, device=u.device)
    factor = torch.linalg.cholesky_ex(u @ u.mT + ridge * eye)[0]
    x = torch.cholesky_solve(u @ k, factor)
    r = k - u.mT @ x
    # U r = ridge x; where k is mostly in the rows of U, r is rounding there, which is taken out of z.
    z = r / ridge + u.mT @ torch.cholesky_solve(x - u @ r / ridge, factor)
    along = x.square().sum((-2, -1)) + r.square().sum((-2, -1)) / ridge
    along = along.unsqueeze(-1)
    return z.squeeze(-1) / (1 + (along if weight is None else weight * along))


def divide(
    call: Call, k: Tensor, weight: Tensor | None, start: Tensor | None
) -> tuple[Tensor, Tensor]:
    """w of k [B, H, 1, R, D], and the last U [N, H, r, D]."""
    rank, ridge = int(call.choices.rank), float(call.choices.ridge)
    keys = k.squeeze(2)
    if start is None:
        u = keys.new_zeros(*keys.shape[:2], rank, keys.shape[-1])
    else:
        u = _orthogonal(start)
    fades = float(call.choices.curvature_decay) ** 0.5
    steps = int(call.choices.steps)
    divided = []
    for i, key in enumerate(keys.unbind(-2)):
        b = None if weight is None else weight.squeeze(2)[..., i // steps, :]
        u = fades * u if i % steps == 0 else u
        divided.append(_gain(u, key, b, ridge))
        u = _add_key(u, key, key.new_ones(()) if b is None else b)
    w = torch.stack(divided, -2) if divided else keys
    return w.unsqueeze(2), _longest_first(u)
