"""Keys divided by a curvature of low rank, token by token:

    C_t = g U_{t-1}^T U_{t-1} + b_t k_t k_t^T,   w_t = (ridge I + C_t)^-1 k_t
    U_t^T U_t = the `rank` largest eigenpairs of C_t

of every row; of the rows of a token only the first fades what was before.

With N = [sqrt(g) U; sqrt(b) k] the rows of C = N^T N, all that is solved has rank + 1 rows:

    w = (k - N^T (ridge I + N N^T)^-1 N k) / ridge

and what is dropped is the eigenvector e of N N^T with the least eigenvalue: U = H N, H any rows that are
orthonormal and orthogonal to e. A reflection that turns e onto an axis has such rows. So gradients ask for
the gap between the least eigenvalue and the others alone, and none where others are equal.
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
    """U of N [..., r + 1, d]: [..., r, d]."""
    least = _eigenvectors(gram)[..., 0]
    e = torch.where(least[..., -1:] < 0, -least, least)
    # I - u u^T / (1 + e_n), u = e + (0, .., 0, 1), turns e onto minus the last axis.
    u = torch.cat([e[..., :-1], e[..., -1:] + 1], -1).unsqueeze(-1)
    turned = rows - u @ (u.mT @ rows) / u[..., -1:, :]
    return turned[..., :-1, :]


def _longest_first(u: Tensor) -> Tensor:
    """The curvature of u by orthogonal rows, the largest entry of each above 0: what a state holds."""
    rows = _eigenvectors(u @ u.mT).flip(-1).mT @ u
    largest = rows.gather(-1, rows.abs().argmax(-1, keepdim=True))
    return torch.where(largest < 0, -rows, rows)


def divide(
    call: Call, k: Tensor, weight: Tensor | None, start: Tensor | None
) -> tuple[Tensor, Tensor]:
    """w of k [B, H, 1, R, D], and the last U [N, H, r, D]."""
    rank, ridge = int(call.choices.rank), float(call.choices.ridge)
    keys = k.squeeze(2)
    u = keys.new_zeros(*keys.shape[:2], rank, keys.shape[-1]) if start is None else start
    fades = float(call.choices.curvature_decay) ** 0.5
    steps = int(call.choices.steps)
    scaled = keys
    if weight is not None:
        scaled = keys * weight.squeeze(2).sqrt().repeat_interleave(steps, -2)
    eye = torch.eye(rank + 1, dtype=k.dtype, device=k.device)
    divided = []
    for i, (key, row) in enumerate(zip(keys.unbind(-2), scaled.unbind(-2))):
        n = torch.cat([fades * u if i % steps == 0 else u, row.unsqueeze(-2)], -2)
        gram = n @ n.mT
        at = n @ key.unsqueeze(-1)
        solved = torch.cholesky_solve(at, torch.linalg.cholesky_ex(gram + ridge * eye)[0])
        divided.append((key - (n.mT @ solved).squeeze(-1)) / ridge)
        u = _without_least(n, gram)
    w = torch.stack(divided, -2) if divided else keys
    return w.unsqueeze(2), _longest_first(u)
