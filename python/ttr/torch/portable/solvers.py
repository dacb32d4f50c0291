"""A x = q for many symmetric positive semi-definite A at once, [..., K, K] and [..., K, G].

Gradients are those of the solution (the implicit function): with z = A^-1 g, dL/dq = z and
dL/dA = -z x^T. Nothing is differentiated through a factor or an iteration, but for gradient
descent, whose steps are a layer of their own at every number of them. Gradients of gradients and
derivatives in forward mode are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function

from .._derivatives import once
from .recipe import Choices


class Descent(NamedTuple):
    """What gradient descent takes as an input, if anything: the size of every step, and the share
    of the last step that is kept."""

    etas: Sequence[Tensor] = ()
    momentum: Tensor | None = None


def solve(
    choices: Choices, a: Tensor, q: Tensor, ridge: Tensor, descent: Descent = Descent()
) -> Tensor:
    """x as the recipe's solver leaves it; ``ridge`` [..., K] is the part of A that does not
    fade."""
    solver = choices.optimizer
    if solver == "gradient":
        return _descend(choices, a, q, ridge, descent)
    if solver == "chebyshev":
        low, high = _bounds(choices, a.detach(), ridge.detach())
        return _Chebyshev.apply(a, q, low, high, choices.steps)
    if solver == "conjugate_gradient" and choices.preconditioner != "chunk_factor":
        return _ConjugateGradient.apply(a, q, choices)
    return Exact.apply(a, q)


def frobenius_norm(a: Tensor) -> Tensor:
    """|A|_F, with the gradient 0 where A is 0."""
    square = a.square().sum((-1, -2))
    nothing = square == 0
    return torch.where(nothing, 0, torch.where(nothing, 1, square).sqrt())


def _threshold(a: Tensor) -> float:
    return 64 * a.shape[-1] * torch.finfo(a.dtype).eps


class Exact(Function):
    """x = A^-1 q by Cholesky; where A is singular to rounding, A^+ q, the smallest-norm solution.

    NaN where A is not finite.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, q: Tensor) -> Tensor:
        least = _threshold(a)

        def inverse_at(at: Tensor) -> Inverse:
            p = torch.linalg.pinv(a[at], hermitian=True, rtol=least)
            return lambda right: p @ right

        ctx.factor = Factor(a, least, inverse_at)
        x = ctx.factor.solve(q)
        ctx.save_for_backward(a, q, x)
        return x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        a, q, x = ctx.saved_tensors
        with torch.no_grad():
            made = ctx.factor.gradients(a, q, x, g)
        return tuple(once(made, (a, q, x, g)))


#: A^+ of some systems, applied to their right sides.
Inverse = Callable[[Tensor], Tensor]


class Factor:
    """L L^T of A with a unit diagonal and, for systems with a squared pivot of at most ``least``, what
    ``inverse_at`` their places applies. NaN where A is not finite."""

    def __init__(self, a: Tensor, least: float, inverse_at: Callable[[Tensor], Inverse]) -> None:
        diagonal = a.diagonal(dim1=-2, dim2=-1)
        self._scale = torch.where(diagonal > 1e-290, diagonal.clamp(min=1e-290).rsqrt(), 0)
        scaled = self._scale.unsqueeze(-1) * a * self._scale.unsqueeze(-2)
        self._finite = a.isfinite().all(-1).all(-1)
        # What cannot be factored must not stop what can.
        eye = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
        scaled = torch.where(self._finite[..., None, None], scaled, eye)
        self._lower, info = torch.linalg.cholesky_ex(scaled)
        pivots = self._lower.diagonal(dim1=-2, dim2=-1).amin(-1).square()
        self._rare = self._finite & ((info != 0) | ~(pivots > least))
        self._inverse = inverse_at(self._rare) if self._rare.any() else None

    def solve(self, right: Tensor) -> Tensor:
        """A^+ right, [..., K, G]."""
        scale = self._scale.unsqueeze(-1)
        x = scale * torch.cholesky_solve(scale * right, self._lower)
        if self._inverse is not None:
            x[self._rare] = self._inverse(right[self._rare])
        return torch.where(self._finite[..., None, None], x, torch.nan)

    def gradients(self, a: Tensor, q: Tensor, x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        """dA and dq of x = A^+ q from g = dx. A^+ moves with A within its range, too:
        dA^+ = -A^+ dA A^+ + A^+ A^+ dA (1 - A A^+) + its transpose."""
        z = self.solve(g)
        da = -z @ x.mT
        if self._inverse is not None:
            at, inverse = self._rare, self._inverse
            a, q, x, g = a[at], q[at], x[at], g[at]
            da[at] += inverse(z[at]) @ (q - a @ x).mT + (g - a @ z[at]) @ inverse(x).mT
        return da, z


def _step_size(choices: Choices, a: Tensor, ridge: Tensor) -> float | Tensor:
    """eta, or eta over a bound of the largest eigenvalue of P A."""
    if choices.eta_kind == "constant":
        return float(choices.eta)
    if choices.preconditioner != "none":
        block = 1 if choices.preconditioner == "diagonal" else choices.block
        return float(choices.eta) / -(-a.shape[-1] // block)
    if choices.ridge_kind == "fading":  # the ridge is in A
        bound = frobenius_norm(a)
    else:
        data = a - torch.diag_embed(ridge.expand(a.shape[:-1]))
        bound = frobenius_norm(data) + ridge.amax(-1)
    nothing = bound == 0
    return torch.where(nothing, 0, choices.eta / torch.where(nothing, 1, bound))[..., None, None]


def _descend(
    choices: Choices, a: Tensor, q: Tensor, ridge: Tensor, descent: Descent
) -> Tensor:
    """d <- P (q - A x) + momentum d, x <- x + eta d, from 0."""
    precondition = _preconditioner(choices, a)
    given = choices.eta_kind == "input"
    sizes = descent.etas if given else [_step_size(choices, a, ridge)] * choices.steps
    x = step = torch.zeros_like(q)
    for eta in sizes:
        kept = 0 if descent.momentum is None else descent.momentum * step
        step = precondition(q - a @ x) + kept
        x = x + eta * step
    return x


class _Preconditioner:
    """P: the inverse of A's diagonal, or of its diagonal blocks, or 1."""

    def __init__(self, choices: Choices, a: Tensor) -> None:
        self._kind, self._block = choices.preconditioner, choices.block
        if self._kind == "diagonal":
            diagonal = a.diagonal(dim1=-2, dim2=-1).unsqueeze(-1)
            nothing = diagonal == 0
            self._inverse = torch.where(nothing, 0, 1 / torch.where(nothing, 1, diagonal))
        elif self._kind == "block_diagonal":
            self._blocks = [
                a[..., i : i + self._block, i : i + self._block] for i in self._starts(a)
            ]

    def _starts(self, a: Tensor) -> range:
        return range(0, a.shape[-1], self._block)

    def __call__(self, r: Tensor) -> Tensor:
        if self._kind == "none":
            return r
        if self._kind == "diagonal":
            return self._inverse * r
        parts = r.split(self._block, -2)
        return torch.cat([Exact.apply(block, part) for block, part in zip(self._blocks, parts)], -2)


def _preconditioner(choices: Choices, a: Tensor) -> _Preconditioner:
    return _Preconditioner(choices, a)


def _bounds(choices: Choices, a: Tensor, ridge: Tensor) -> tuple[Tensor, Tensor]:
    """An interval that holds the eigenvalues of A, [..., 1, 1]. A ridge that fades bounds
    nothing."""
    if choices.ridge_kind == "fading" and choices.decay != "none":
        low, high = torch.linalg.eigvalsh(a)[..., 0].clamp(min=0), torch.linalg.matrix_norm(a)
    else:
        data = a - torch.diag_embed(ridge.expand(a.shape[:-1]))
        low, high = ridge.amin(-1), ridge.amax(-1) + torch.linalg.matrix_norm(data)
    return (low + torch.zeros_like(high))[..., None, None], high[..., None, None]


def _chebyshev(a: Tensor, q: Tensor, low: Tensor, high: Tensor, steps: int) -> Tensor:
    """x_1 = q / c; x_{n+1} = w (x_n - x_{n-1} + (q - A x_n) / c) + x_{n-1}, w <- 4 / (4 - rho^2
    w)."""
    centre = (high + low) / 2
    nothing = centre == 0
    centre = torch.where(nothing, 1, centre)
    rho = (high - low) / (2 * centre)
    before, x = torch.zeros_like(q), q / centre
    weight = torch.full_like(centre, 2)
    for _ in range(1, steps):
        weight = 4 / (4 - rho.square() * weight)
        before, x = x, weight * (x - before + (q - a @ x) / centre) + before
    return torch.where(nothing, 0, x)


class _Chebyshev(Function):
    """Chebyshev's semi-iteration, with the gradient of the converged problem."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, q: Tensor, low: Tensor, high: Tensor, steps: int) -> Tensor:
        x = _chebyshev(a, q, low, high, steps)
        ctx.steps = steps
        ctx.save_for_backward(a, low, high, x)
        return x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        a, low, high, x = ctx.saved_tensors
        with torch.no_grad():
            z = _chebyshev(a, g, low, high, ctx.steps)
            da = -z @ x.transpose(-1, -2)
        return (*once((da, z), (a, x, g)), None, None, None)


def _conjugate_gradient(choices: Choices, a: Tensor, q: Tensor) -> Tensor:
    """From x = 0 until |r| <= tolerance |q|, `steps` times at most; every column on its own.

    It ends, too, where A is singular to rounding and q has a part there.
    """
    eps = torch.finfo(a.dtype).eps
    precondition = _preconditioner(choices, a)
    goal = max(choices.tolerance, eps) * _norm(q)
    size = a.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    x, r = torch.zeros_like(q), q
    z = precondition(r)
    d, rz = z, (r * z).sum(-2, keepdim=True)
    gain = torch.zeros_like(rz)
    going = torch.ones_like(rz, dtype=torch.bool)
    for _ in range(choices.steps):
        square = r.square().sum(-2, keepdim=True)
        going = going & ~(square.sqrt() <= goal) & ~(rz <= 4 * eps * gain * square)
        if not going.any():
            break
        gain = torch.where(going, torch.maximum(gain, rz / square), gain)
        ad = a @ d
        curvature = (d * ad).sum(-2, keepdim=True)
        going = going & ~(curvature <= 4 * eps * size * d.square().sum(-2, keepdim=True))
        alpha = torch.where(going, rz / curvature, 0)
        x, r = x + alpha * d, r - alpha * ad
        z = precondition(r)
        following = (r * z).sum(-2, keepdim=True)
        d = torch.where(going, z + following / rz * d, d)
        rz = torch.where(going, following, rz)
    return x


def _norm(x: Tensor) -> Tensor:
    return x.square().sum(-2, keepdim=True).sqrt()


class _ConjugateGradient(Function):
    """Conjugate gradients, with the gradient of the converged problem."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, q: Tensor, choices: Choices) -> Tensor:
        x = _conjugate_gradient(choices, a, q)
        ctx.choices = choices
        ctx.save_for_backward(a, x)
        return x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        a, x = ctx.saved_tensors
        with torch.no_grad():
            z = _conjugate_gradient(ctx.choices, a, g)
            da = -z @ x.transpose(-1, -2)
        return (*once((da, z), (a, x, g)), None)
