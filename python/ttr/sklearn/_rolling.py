"""Least squares over the last n rows, whatever came before them.

The window is in two stacks. The older rows are kept as the sums of every suffix, so that the oldest
row leaves by taking the next suffix; of the newer ones there is a running sum. Sums of a window are
those of a suffix and of the newer rows together. When no older row is left, the newer ones become
the older: every row is added twice and nothing is ever subtracted, so an error does not outlive its
row. Every sqrt(n)-th suffix is kept and those between two are built when they are reached:
2 sqrt(n) sums beside the rows themselves.
"""

from __future__ import annotations

import functools
import math

import numpy as np

import ttr

from ._constants import (
    Array,
    Constants,
    decay_of,
    has_ridge_in_state,
    ridge_of,
    takes_importance,
)
from ._linear import LinearFit
from ._residuals import FitResiduals
from ._sums import Sums


class RollingMemory:
    """The least-squares map of the last ``window`` rows, [Dk] -> [Dv]; as `RowMemory`.

    A row costs O(p^2) and some rows more, O(n p^2) for n of them together; a read O(p^3). It keeps the
    rows, up to 2 n, and 2 sqrt(n) sums of p (p + outputs) numbers.
    """

    def __init__(
        self, recipe: ttr.Recipe, constants: Constants, key_dim: int, value_dim: int, window: int
    ) -> None:
        self.recipe, self.constants = recipe, constants
        self.key_dim, self.value_dim, self.window = key_dim, value_dim, window
        self.decay = decay_of(recipe, constants)
        self.count = 0  # rows learned so far
        self._affine = recipe.option("function") == "affine"
        self._layer = ttr.Layer(recipe.with_options(factor="cholesky"))  # of sums
        self._none = Sums.none(self._affine, key_dim, value_dim)
        # Rows are z = [x, y, w], the oldest first.
        self._older = _Suffixes(self._rows(0), self.decay, self._none)
        self._newer, self._filled, self._running = self._rows(min(window, _ROWS)), 0, self._none

    @property
    def weighs(self) -> bool:
        """May rows have weights?"""
        return takes_importance(self.recipe)

    # ---- Learning --------------------------------------------------------------------------------

    def push(self, keys: Array, values: Array, weights: Array) -> None:
        """Rows [n, Dk] -> [n, Dv], the latest last. ValueError: a weight below 0 or not finite."""
        if not (np.isfinite(weights) & (weights >= 0)).all():
            raise ValueError(
                f"[sklearn] importance must be 0 or more and finite but is {weights.min()}"
            )
        self.count += len(keys)
        rows = np.concatenate([keys, values, weights[:, None]], axis=1)[-self.window :]
        while len(rows):
            if self._filled == self.window:
                self._turn()
            taken = rows[: self.window - self._filled]
            self._append(taken)
            rows = rows[len(taken) :]
        for read in ("_held", "state"):
            self.__dict__.pop(read, None)

    def _append(self, rows: Array) -> None:
        whole = self._filled + len(rows)
        if whole > len(self._newer):
            room = min(self.window, 2 * whole)
            self._newer = np.concatenate([self._newer, self._rows(room - len(self._newer))])
        self._newer[self._filled : whole] = rows
        self._filled = whole
        self._older.drop(max(0, len(self._older) + whole - self.window))
        faded = self._running.faded(self.decay ** len(rows))
        self._running = _and_rows(faded, rows, self.decay)

    def _turn(self) -> None:
        """The newer rows are the older ones now."""
        self._older = _Suffixes(self._newer, self.decay, self._none)
        self._newer, self._filled, self._running = self._rows(self.window), 0, self._none

    def _rows(self, count: int) -> Array:
        return np.empty((count, self.key_dim + self.value_dim + 1))

    # ---- Reading ---------------------------------------------------------------------------------

    def predict(self, rows: Array) -> Array:
        """m(x) of every row, [n, Dv]; changes nothing."""
        if len(rows) == 0:
            return np.empty((0, self.value_dim))
        state = {name: array[None, None] for name, array in self.state.items()}
        queries = (rows - self.key_origin)[None, :, None, :]
        answers = self._layer.retrieve(queries, state=state)
        return np.asarray(answers[0, :, 0, :] + self.value_origin)

    @functools.cached_property
    def _held(self) -> Sums:
        """The sums of the rows in the window."""
        older = self._older.sums().faded(self.decay**self._filled)
        return older.and_rows_of(self._running)

    @functools.cached_property
    def state(self) -> dict[str, Array]:
        """A and B of the rows from the origin."""
        a, b = self._held.state(self.ridge if has_ridge_in_state(self.recipe) else 0.0)
        return {"state.a": a, "state": b}

    @property
    def key_origin(self) -> Array:
        return self._held.high[: self.key_dim]

    @property
    def value_origin(self) -> Array:
        return self._held.high[self.key_dim :]

    @property
    def ridge(self) -> float:
        return ridge_of(self.recipe, self.decay, len(self))

    def residuals(self) -> FitResiduals:
        """Residuals of the fit, from the rows themselves; O(n p)."""
        keys, values, weights = self.rows()
        fit = LinearFit(self)
        faded = weights * self.decay ** np.arange(len(keys) - 1, -1, -1.0)
        squares = faded @ fit.residuals(keys, values) ** 2
        penalty = self.ridge * np.sum(fit.coefficients**2, axis=0)
        parameters = self.key_dim + self._affine
        return FitResiduals.of(self.decay, parameters, squares + penalty, weights)

    def __len__(self) -> int:
        """Rows in the window."""
        return len(self._older) + self._filled

    def rows(self) -> tuple[Array, Array, Array]:
        """Keys, values and weights of the rows in the window, the oldest first."""
        rows = np.concatenate([self._older.rows[self._older.first :], self._newer[: self._filled]])
        keys, values, weights = np.split(
            rows, [self.key_dim, self.key_dim + self.value_dim], axis=1
        )
        return keys, values, weights[:, 0]

    def grown(self, key_dim: int) -> RollingMemory:
        """The same, of keys with new channels behind theirs, which have been 0 so far."""
        new = RollingMemory(self.recipe, self.constants, key_dim, self.value_dim, self.window)
        keys, values, weights = self.rows()
        new.push(np.pad(keys, ((0, 0), (0, key_dim - self.key_dim))), values, weights)
        new.count = self.count
        return new


class _Suffixes:
    """Sums of the last rows of a block, as they leave it one by one."""

    def __init__(self, rows: Array, decay: float, none: Sums) -> None:
        self.rows, self.first = rows, 0  # those before the first have left
        self._weights = rows[:, -1] * decay ** np.arange(len(rows) - 1, -1, -1.0)
        self._stride = max(1, math.isqrt(len(rows)))
        # Each mark has the sums of the rows from a multiple of the stride on, the last multiple first.
        self._marks = [none]
        keys = len(none.scatter)
        for begin in range(0, len(rows), self._stride)[::-1]:
            part = slice(begin, begin + self._stride)
            sums = Sums.of(none.affine, keys, rows[part, :-1], self._weights[part])
            self._marks.append(sums.and_rows_of(self._marks[-1]))
        self._within = (
            -1
        )  # the stride that these are of: from each of its rows on, the last one first
        self._between: list[Sums] = []

    def __len__(self) -> int:
        return len(self.rows) - self.first

    def drop(self, rows: int) -> None:
        """So many of the first rows leave."""
        self.first += rows

    def sums(self) -> Sums:
        stride, offset = divmod(self.first, self._stride)
        mark = len(self._marks) - 1 - stride
        if len(self) == 0 or offset == 0:
            return self._marks[mark if len(self) else 0]
        end = min((stride + 1) * self._stride, len(self.rows))
        if self._within != stride:
            self._within, self._between = stride, []
            sums = self._marks[mark - 1]
            for i in range(end - 1, self.first - 1, -1):
                sums = sums.and_row(self.rows[i, :-1], self._weights[i])
                self._between.append(sums)
        return self._between[end - 1 - self.first]


def _and_rows(sums: Sums, rows: Array, decay: float) -> Sums:
    """Sums with later rows, too."""
    if len(rows) == 1:
        return sums.and_row(rows[0, :-1], float(rows[0, -1]))
    weights = rows[:, -1] * decay ** np.arange(len(rows) - 1, -1, -1.0)
    return sums.and_rows_of(Sums.of(sums.affine, len(sums.scatter), rows[:, :-1], weights))


#: Rows that a new window has room for; more as they come.
_ROWS = 64
