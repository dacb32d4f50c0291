"""Sums of rows: what least squares keep of a table, so that those of two tables are those of both.

    W = sum w      m = sum w z / W      S = sum w (x - m_x) (z - m_z)^T      z = [x, y]

and of two tables (Chan, Golub and LeVeque, 1979), d = m_b - m_a,

    W = W_a + W_b      m = m_a + (W_b / W) d      S = S_a + S_b + (W_a W_b / W) d_x d^T

Every term on S's diagonal is 0 or more: wherever the tables lie, no digit cancels. A mean is the sum
of two numbers, so that d has the digits of what differs, far from 0 too. Without an intercept m is 0
and S = sum w x z^T.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from ._constants import Array


@dataclasses.dataclass
class Sums:
    """W, m = high + low [p + outputs] and S [p, p + outputs]; no ridge is in them. Without an intercept
    a memory's state holds no W: it is NaN."""

    affine: bool
    weight: float
    high: Array
    low: Array
    scatter: Array

    @staticmethod
    def none(affine: bool, key_dim: int, value_dim: int) -> Sums:
        width = key_dim + value_dim
        return Sums(affine, 0.0, np.zeros(width), np.zeros(width), np.zeros((key_dim, width)))

    @staticmethod
    def of(affine: bool, key_dim: int, rows: Array, weights: Array) -> Sums:
        """Sums of rows z [n, p + outputs] and weights [n]; O(n p^2)."""
        sums = Sums.none(affine, key_dim, rows.shape[1] - key_dim)
        sums.weight = float(weights.sum())
        if sums.weight == 0:
            return sums
        if affine:
            share = weights / sums.weight
            sums.high = share @ rows
            sums.low = share @ (rows - sums.high)
            rows = rows - sums.high - sums.low
        sums.scatter = (weights[:, None] * rows[:, :key_dim]).T @ rows
        return sums

    def and_row(self, row: Array, weight: float) -> Sums:
        """Sums with one row z more; O(p^2)."""
        if weight == 0:
            return self
        whole, keys = self.weight + weight, self._keys
        if not self.affine:
            scatter = self.scatter + np.outer(weight * row[:keys], row)
            return Sums(False, whole, self.high, self.low, scatter)
        apart = (row - self.high) - self.low
        share = weight / whole
        scatter = self.scatter + np.outer((self.weight * share) * apart[:keys], apart)
        return Sums(True, whole, *_sum(self.high, self.low + share * apart), scatter)

    def faded(self, factor: float) -> Sums:
        """Sums of these rows, every weight times a factor."""
        if factor == 1:
            return self
        return Sums(self.affine, self.weight * factor, self.high, self.low, self.scatter * factor)

    def and_rows_of(self, other: Sums) -> Sums:
        """Sums of the rows of both."""
        if self.weight == 0 or other.weight == 0:
            return self if other.weight == 0 else other
        whole = self.weight + other.weight
        scatter = self.scatter + other.scatter
        high, low = self.high, self.low
        if self.affine:
            apart = self._apart(other)
            share = other.weight / whole
            scatter += np.outer(self.weight * share * apart[: self._keys], apart)
            high, low = _sum(high, low + share * apart)
        return Sums(self.affine, whole, high, low, scatter)

    def without(self, other: Sums) -> Sums:
        """Sums without the rows of the other. They are differences, so that what is left has the
        absolute rounding errors of the whole."""
        if other.weight == 0:
            return self
        left = self.weight - other.weight
        # A difference of weights that are no binary fractions leaves rounding, which stands for no row.
        if self.weight > 0 and abs(left) <= 64 * _EPS * self.weight:
            left = 0.0
        scatter = self.scatter - other.scatter
        high, low = self.high, self.low
        if self.affine:
            apart = self._apart(other)
            share = other.weight / left if left else 1.0
            scatter -= np.outer(self.weight * share * apart[: self._keys], apart)
            high, low = _sum(high, low - share * apart)
        return Sums(self.affine, left, high, low, scatter)

    # ---- The memory's state ----------------------------------------------------------------------

    @staticmethod
    def of_state(a: Array, b: Array, ridge: float, origin: Array, affine: bool) -> Sums:
        """From A and B of the rows z - origin; ``ridge``: what of it is in A."""
        p = len(a) - affine
        scatter = np.concatenate([a[:p, :p] - ridge * np.eye(p), b[:p]], axis=1)
        if not affine:
            return Sums(False, float("nan"), origin, np.zeros_like(origin), scatter)
        weight = float(a[p, p])
        if weight == 0:
            return Sums.none(True, p, b.shape[1])
        first = np.concatenate([a[p, :p], b[p]])
        scatter -= np.outer(first[:p] / weight, first)
        return Sums(True, weight, *_sum(origin, first / weight), scatter)

    def state(self, ridge: float) -> tuple[Array, Array]:
        """A and B of the rows z - high, with a ridge in A."""
        p = self._keys
        whole = self.scatter
        if self.affine:
            first = self.weight * self.low
            whole = np.concatenate([whole + np.outer(first[:p], self.low), [first]])
        a = np.zeros((len(whole), len(whole)))
        a[:, :p] = whole[:, :p]
        a[:p, :p] = (a[:p, :p] + a[:p, :p].T) / 2 + ridge * np.eye(p)
        if self.affine:
            a[:p, p], a[p, p] = a[p, :p], self.weight
        return a, whole[:, p:]

    @property
    def _keys(self) -> int:
        return len(self.scatter)

    def _apart(self, other: Sums) -> Array:
        return np.asarray((other.high - self.high) + (other.low - self.low))


def _sum(a: Array, b: Array) -> tuple[Array, Array]:
    """a + b as the sum of two numbers, exactly (Knuth)."""
    high = a + b
    of_b = high - a
    return high, (a - (high - of_b)) + (b - of_b)


_EPS = float(np.finfo(np.float64).eps)
