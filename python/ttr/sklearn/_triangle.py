"""The triangle that least squares by rotations keep of a table: its rows, rotated into few.

    A = L^T D L      B = L^T D W      R = D^1/2 L has R^T R = A

L is a unit triangle below its diagonal and D a diagonal; the last row of L and W are the means of x
and y where there is an intercept. All digits of the rows are in it, where A has half of them.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
from scipy.linalg import solve_triangular

import ttr

from ._constants import Array
from ._sums import Sums


def is_rotated(recipe: ttr.Recipe) -> bool:
    """Is the state of its memory a triangle?"""
    return recipe.option("factor") == "qr"


@dataclasses.dataclass
class Triangle:
    """D [n], L [n, n], W [n, outputs] and the least sum of squares, [outputs]."""

    d: Array
    l: Array  # noqa: E741
    w: Array
    rss: Array

    @staticmethod
    def of_state(state: dict[str, Array]) -> Triangle:
        r = state["state.r"]
        unit = np.tril(r, -1) + np.eye(len(r))
        return Triangle(np.diagonal(r).copy(), unit, state["state"], state["state.rss"])

    @staticmethod
    def of_rows(rows: Array, keys: int) -> Triangle:
        """Of rows [m, keys + outputs]."""
        outputs = rows.shape[1] - keys
        none = Triangle(np.zeros(keys), np.eye(keys), np.zeros((keys, outputs)), np.zeros(outputs))
        return none.and_rows(rows, np.ones(len(rows)))

    def state(self) -> dict[str, Array]:
        r = np.tril(self.l, -1) + np.diag(self.d)
        return {"state.r": r, "state": self.w, "state.rss": self.rss}

    @property
    def rows(self) -> Array:
        """R beside D^1/2 W: the table in as many rows as it has columns, [n, n + outputs]."""
        return np.asarray(np.sqrt(self.d)[:, None] * np.concatenate([self.l, self.w], axis=1))

    def faded(self, factor: float) -> Triangle:
        """Of the same rows, every weight times a factor."""
        return Triangle(self.d * factor, self.l, self.w, self.rss * factor)

    def moved(self, key: Array, value: Array) -> Triangle:
        """Of the rows x - key, y - value, beside a 1: only their means change."""
        moved = Triangle(self.d, self.l.copy(), self.w.copy(), self.rss)
        moved.l[-1, :-1] -= key
        moved.w[-1] -= value
        return moved

    def and_rows(self, rows: Array, weights: Array) -> Triangle:
        """Of more rows [m, n + outputs], with their weights; O(m n^2)."""
        keys, values = np.split(rows, [len(self.d)], axis=1)
        state = {name: array[None, None] for name, array in self.state().items()}
        tokens = keys[None, :, None], values[None, :, None]
        last = _rotations().memorize(*tokens, state=state, importance=weights[None, :, None])
        return Triangle.of_state({name: array[0, 0] for name, array in last.items()})

    def and_rows_of(self, other: Triangle) -> Triangle:
        """Of the rows of both; O(n^3)."""
        both = self.and_rows(np.concatenate([other.l, other.w], axis=1), other.d)
        return dataclasses.replace(both, rss=both.rss + other.rss)

    def without_ridge(self, ridge: float, keys: int) -> Triangle:
        """Of the same rows and a ridge less on the first ``keys`` channels, of which they have as much
        or more: no singular value s of R is less than its root, and

            R^T R - ridge = V (s^2 - ridge) V^T,    rss <- rss - sum ridge / (s^2 - ridge) (U^T D^1/2 W)^2
        """
        if ridge == 0 or keys == 0:
            return self
        rows = self.rows[:keys]
        u, s, vt = np.linalg.svd(rows[:, :keys])
        less = np.sqrt(np.maximum((s - np.sqrt(ridge)) * (s + np.sqrt(ridge)), 0))
        kept = less > 0
        values = u[:, kept].T @ rows[:, len(self.d) :]
        penalty = np.sum(ridge * (values / less[kept, None]) ** 2, axis=0)
        values *= (s[kept] / less[kept])[:, None]
        left = Triangle.of_rows(np.concatenate([less[kept, None] * vt[kept], values], axis=1), keys)
        rss = np.maximum(self.rss - penalty, 0)
        whole = Triangle(self.d.copy(), self.l.copy(), self.w.copy(), rss)
        whole.d[:keys], whole.l[:keys, :keys], whole.w[:keys] = left.d, left.l, left.w
        return whole

    # ---- Sums ------------------------------------------------------------------------------------

    def sums(self, ridge: float, origin: Array, affine: bool) -> Sums:
        """The sums of the same rows; ``ridge``: what of it is in D."""
        p, rows = len(self.d) - affine, self.rows
        top = np.concatenate([rows[:p, :p], rows[:p, len(self.d) :]], axis=1)
        scatter = top[:, :p].T @ top
        scatter[:, :p] -= ridge * np.eye(p)
        if not affine:
            return Sums(False, float("nan"), origin, np.zeros_like(origin), scatter)
        if self.d[p] == 0:
            return Sums.none(True, p, self.w.shape[1])
        return Sums(True, float(self.d[p]), origin, np.append(self.l[p, :p], self.w[p]), scatter)

    @staticmethod
    def of_sums(sums: Sums, ridge: float) -> Triangle:
        """Of the rows z - high, with a ridge in D; it has the digits that sums have. They do not say
        what its rss is: it is 0."""
        p = len(sums.scatter)
        metric = sums.scatter[:, :p] + ridge * np.eye(p)
        length = np.sqrt(np.maximum(np.diagonal(metric), 0))
        scale = np.where(length > 0, length, 1)
        values, vectors = np.linalg.eigh(metric / np.outer(scale, scale))
        held = values > _RANK * p * values[-1]  # what sums round is no direction
        root, vectors = np.sqrt(values[held]), vectors[:, held].T
        right = (vectors / root[:, None]) @ (sums.scatter[:, p:] / scale[:, None])
        rows = np.concatenate([root[:, None] * vectors * scale, right], axis=1)
        of_keys = dataclasses.replace(Triangle.of_rows(rows, p), rss=np.zeros(right.shape[1]))
        if not sums.affine:
            return of_keys
        low = sums.low if sums.weight > 0 else np.zeros_like(sums.low)
        means = np.append(low[:p], 1.0)[None]
        return Triangle(
            np.append(of_keys.d, sums.weight),
            np.concatenate([np.pad(of_keys.l, ((0, 0), (0, 1))), means]),
            np.concatenate([of_keys.w, low[None, p:]]),
            of_keys.rss,
        )

    # ---- Solutions -------------------------------------------------------------------------------

    def with_ridge(self, ridge: Array) -> Triangle:
        """With a ridge of its own for every channel."""
        rows = np.pad(np.eye(len(self.d)), ((0, 0), (0, self.w.shape[1])))
        return self.and_rows(rows, ridge)

    @property
    def regular(self) -> bool:
        """Has every channel something that those behind it have not, beyond rounding?"""
        squares = np.sum(self.rows[:, : len(self.d)] ** 2, axis=0)
        return bool((self.d > (_RANK * len(self.d)) ** 2 * squares).all())

    def solution(self) -> Array:
        """A^-1 B = L^-1 W, [n, outputs]; of least norm where A is singular."""
        if self.regular:
            return np.asarray(solve_triangular(self.l, self.w, lower=True, unit_diagonal=True))
        u, s, f = self._spectrum
        return np.asarray(f @ (u.T @ self.rows[:, len(self.d) :]))

    def root(self) -> Array:
        """F with F F^T = A^-1, of the smallest norm where that is singular."""
        if not self.regular:
            return self._spectrum[2]
        inverse = solve_triangular(self.l, np.eye(len(self.d)), lower=True, unit_diagonal=True)
        return np.asarray(inverse / np.sqrt(self.d))

    @functools.cached_property
    def _spectrum(self) -> tuple[Array, Array, Array]:
        """U, s and V / s of R with columns of one length, without what is rounding."""
        r = self.rows[:, : len(self.d)]
        length = np.linalg.norm(r, axis=0)
        scale = np.where(length > 0, length, 1)
        u, s, vt = np.linalg.svd(r / scale)
        kept = s > _RANK * len(s) * s[0]
        return u[:, kept], s[kept], (vt[kept].T / s[kept]) / scale[:, None]


@functools.cache
def _rotations() -> ttr.Layer:
    return ttr.Layer("importance(input) | linear | exact(factor: qr)")


#: Singular values below that many times the largest, and the number of channels, are rounding.
_RANK = 64 * np.finfo(np.float64).eps
