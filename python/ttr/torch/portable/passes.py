"""The passes of prefix_solve by PyTorch's operators, on any device."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from .decays import ScalarDecay
from .layout import by_token, queries_by_memory
from .prefix_solve import Pairs


class Passes:
    """Over chunks of ``size`` tokens, sums in the type ``work``. Rows are [B, H, G, n, C, D], G the
    queries that read one memory, n chunks of C tokens; states [B, H, 1, n, D, E]."""

    def __init__(self, pairs: Pairs, heads: int, work: torch.dtype, at: str, size: int) -> None:
        self._heads, self._work, self._at, self._size = heads, work, at, size
        self._length, self._type = pairs.k.shape[1], pairs.v.dtype
        self.k, self._v = self.rows(pairs.k), self.rows(pairs.v)
        self.w = None if pairs.w is None else self.rows(pairs.w.unsqueeze(-1))
        self.fades = pairs.g is not None
        g = self.k.new_zeros(1, 1, 1, *self.k.shape[3:5], 1)
        decay = ScalarDecay(g if pairs.g is None else self.rows(pairs.g.unsqueeze(-1)))
        #: What is left of the chunk's first memory after each token; and as each token reads it.
        self.left, self.start = decay.from_start("after"), decay.from_start(at)
        #: What is left of column j as row i reads it.
        self.between = decay.between(at)
        self.seen = torch.ones_like(self.between, dtype=torch.bool).tril(0 if at == "after" else -1)
        self._to_end = decay.to_end(torch.ones_like(g))

    def rows(self, x: Tensor) -> Tensor:
        x = queries_by_memory(x.to(self._work), self._heads)
        missing = -x.shape[-2] % self._size
        return torch.nn.functional.pad(x, (0, 0, 0, missing)).unflatten(-2, (-1, self._size))

    def tokens(self, x: Tensor) -> Tensor:
        return by_token(x.flatten(3, 4)[..., : self._length, :])

    def _weighted(self, rows: Tensor) -> Tensor:
        return rows if self.w is None else self.w * rows

    def sums(self, right: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        faded = self._weighted(self._to_end * self.k)
        return self._scan(faded.mT @ self.rows(right), start, range(self.k.shape[3]))

    def later_sums(self, left: Tensor, right: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
        products = (self.start * self.rows(left)).mT @ self.rows(right)
        backwards = range(self.k.shape[3] - 1, -1, -1)
        return self._scan(products.sum(2, keepdim=True), end, backwards)

    def _scan(self, products: Tensor, first: Tensor, order: range) -> tuple[Tensor, Tensor]:
        state, states = first.to(self._work).unsqueeze(2), torch.empty_like(products)
        kept = self.left[..., -1:, :].expand(*products.shape[:4], 1, 1)
        for n in order:
            states[..., n, :, :] = state
            state = kept[..., n, :, :] * state + products[..., n, :, :]
        return states, state.squeeze(2)

    def prefixes(self, states: Tensor, ridge: Tensor | None) -> _Prefixes:
        if ridge is None:
            return _Prefixes(self, states, None)
        ridge = ridge.to(self._work)[:, None, None]
        if not self.fades:
            return _Prefixes(self, states + torch.diag_embed(ridge), None)
        # A chunk's A_0 holds more of the ridge than there is, so that in the middle of the chunk, where
        # part of it has faded, what is held is right.
        more = self.left[..., -1:, :].rsqrt()
        states = states + more * torch.diag_embed(ridge)
        return _Prefixes(self, states, _Ridge(more * self.start, ridge.unsqueeze(-2)))

    def read(self, x: Tensor, states: Tensor) -> Tensor:
        x = self.rows(x)
        scores = (x @ self._weighted(self.k).mT) * self.between
        return self.tokens(self.start * (x @ states) + scores @ self._v).to(self._type)

    def read_back(self, dy: Tensor, states: Tensor) -> Tensor:
        dy = self.rows(dy)
        scores = (dy @ self._weighted(self._v).mT) * self.between
        return self.tokens(self.start * (dy @ states.mT) + scores @ self.k)

    def when_read(self, terms: Tensor) -> Tensor:
        if self._at == "after":
            return terms
        return torch.cat([terms[:, 1:], torch.zeros_like(terms[:, :1])], 1)

    def later_tokens(self, terms: Tensor, last: Tensor) -> Tensor:
        return terms.flip(1).cumsum(1).flip(1) + last.unsqueeze(1)

    def gradients(
        self, x: Tensor, z: Tensor | None, dy: Tensor, of_a: Tensor | None, of_b: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        x, dy = self.rows(x), self.rows(dy)
        later, k, v = self.between.mT, self.k, self._v
        by_x = (k @ x.mT) * later
        dv = self._weighted(self._end(k, of_b) + _all(by_x @ dy))
        along = self._end(v, of_b.mT) + _all(((v @ dy.mT) * later) @ x)
        across = None
        if z is not None and of_a is not None:
            z = self.rows(z)
            along = along - self._end(k, of_a) - _all(by_x @ z)
            across = self._end(k, of_a.mT) + _all(((k @ z.mT) * later) @ x)
        dw = (k * along).sum(-1, keepdim=True)
        dk = self._weighted(along if across is None else along - across)
        return self.tokens(dk), self.tokens(dv), self.tokens(dw).squeeze(-1)

    def _end(self, rows: Tensor, states: Tensor) -> Tensor:
        return self._to_end * (rows @ states)


def _all(rows: Tensor) -> Tensor:
    """The sum over the queries of a memory."""
    return rows.sum(2, keepdim=True)


class _Prefixes:
    """With A_0 = L L^T at a chunk's start, c what is left of it at each token, and

        U = sqrt(w / c) K L^-T,   I + U U^T = M M^T,   G = M^-1 U

    M's leading blocks are the factors for every prefix, so that

        X = 1/c Y L^-1,   Y = Q L^-T - tril(Q L^-T G^T) G,   Y_t (1 + sum_{i<=t} u_i u_i^T) = q_t L^-T

    Where pairs outgrow A_0 (in first chunks, whose A_0 is a ridge) Y is a small difference, and its
    residuals are solved for, too. Where a ridge does not fade, A_0 holds some of it, and an iteration
    makes up for what the tokens have too much or too little.
    """

    def __init__(self, passes: Passes, states: Tensor, ridge: _Ridge | None) -> None:
        self._passes, self._ridge = passes, ridge
        self._lower, info = torch.linalg.cholesky_ex(states)
        weight = 1 / passes.left if passes.w is None else passes.w / passes.left
        self._u = self._whitened(weight.sqrt() * passes.k)
        gram = self._u @ self._u.mT
        eye = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
        lower = torch.linalg.cholesky_ex(eye + gram)[0]
        self._g = torch.linalg.solve_triangular(lower, self._u, upper=False)
        growth = gram.diagonal(dim1=-2, dim2=-1)
        bears = (passes.left > least_left(states.dtype)).all() & (growth < MOST_GROWTH).all()
        self._sound = (info == 0).all() & bears & _bears(states, self._lower)
        self._outgrown = _count_of_first(growth.amax((0, 1, 2, 4)) > GROWTH)

    def _whitened(self, rows: Tensor) -> Tensor:
        return torch.linalg.solve_triangular(self._lower, rows.mT, upper=False).mT

    def solve(self, q: Tensor) -> Tensor:
        rows = self._passes.rows(q)
        if self._ridge is None or not rows.numel():
            return self._passes.tokens(self._nested(rows))
        return self._passes.tokens(self._with_ridge(rows, *self._ridge))

    def _nested(self, q: Tensor) -> Tensor:
        q = self._whitened(q)
        y = q - self._seen(q, self._g)
        if self._outgrown:
            y = torch.cat([self._refined(q, y), y[..., self._outgrown :, :, :]], -3)
        x = torch.linalg.solve_triangular(self._lower, y, upper=False, left=False)
        return x / self._passes.start

    def _seen(self, rows: Tensor, of: Tensor) -> Tensor:
        """tril(rows of^T) of."""
        return ((rows @ of.mT) * self._passes.seen[..., :1, :, :]) @ of

    def _refined(self, q: Tensor, y: Tensor) -> Tensor:
        """Y of the chunks whose pairs outgrow A_0."""
        q, y, u, g = (x[..., : self._outgrown, :, :] for x in (q, y, self._u, self._g))
        for _ in range(ROUNDS):
            residual = q - y - self._seen(y, u)
            y = y + residual - self._seen(residual, g)
        return y

    def _with_ridge(self, q: Tensor, held: Tensor, ridge: Tensor) -> Tensor:
        """(A_t + R)^-1 q, given (A_t + h R)^-1, by Chebyshev's iteration on 1 + (A_t + h R)^-1 (1 - h) R,
        whose eigenvalues are between 1 and 1/h."""
        centre = (1 + 1 / held) / 2
        square = ((centre - 1) / centre).square()
        steps = chebyshev_steps(float(self._passes.left.amin()), q.dtype)
        first = self._nested(q)
        before, x = torch.zeros_like(first), first / centre
        weight = torch.full_like(centre, 2)
        missing = (1 - held) * ridge
        for _ in range(1, steps):
            weight = 4 / (4 - square * weight)
            residual = first - x - self._nested(missing * x)
            before, x = x, weight * (x - before + residual / centre) + before
        return x

    def sound(self) -> bool:
        return bool(self._sound)


class _Ridge(NamedTuple):
    """How often each A_t holds the ridge, [.., C, 1], and the ridge [H, 1, 1, 1, K]."""

    held: Tensor
    ridge: Tensor


def chebyshev_steps(left: float, work: torch.dtype) -> int:
    """Steps until what is left of the error is rounding, where eigenvalues are between 1 and
    left^-1/2 or left^1/2."""
    root = max(least_left(work), min(left, 1 - 1e-6)) ** -0.25
    return 1 + math.ceil(math.log(2 / torch.finfo(work).eps) / math.log((root + 1) / (root - 1)))


def least_left(work: torch.dtype) -> float:
    """What must be left of a memory at a chunk's end: a quarter of the digits. What fades further can
    no longer bear the sums that follow it."""
    return float(torch.finfo(work).eps ** 0.25)


#: Pairs outgrow A_0 where k^T A_0^-1 k is above GROWTH; so many rounds of refinement bear MOST_GROWTH.
GROWTH, ROUNDS, MOST_GROWTH = 30.0, 4, 3e5


def _count_of_first(marked: Tensor) -> int:
    """How many there are up to the last that is marked."""
    where = marked.nonzero()
    return int(where[-1]) + 1 if len(where) else 0


def least_pivot(size: int, work: torch.dtype) -> float:
    """What a pivot must exceed, as a share of its diagonal entry: a few times its own rounding."""
    return float(4 * torch.finfo(work).eps * math.sqrt(size))


def _bears(states: Tensor, lower: Tensor) -> Tensor:
    """Whether no pivot of A_0 = L L^T is rounding alone."""
    rounding = least_pivot(states.shape[-1], states.dtype)
    pivots = lower.diagonal(dim1=-2, dim2=-1).square()
    return (pivots > rounding * states.diagonal(dim1=-2, dim2=-1)).all()
