"""A memory that solves least squares by rotations of rows: of all rows, or of those in a window.

Everything that a row costs is the library's (`ttr/regression.h`); what is here brings triangles of
two memories together, and makes one of sums from which rows were taken back.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

import ttr

from .._core import Regression
from ._centre import few_bits, means
from ._constants import Array, Constants, has_ridge_in_state, takes_importance
from ._forgetting import Forgetting
from ._linear import LinearFit
from ._residuals import FitResiduals
from ._sums import Sums
from ._triangle import Triangle


class RotatedMemory:
    """The least-squares map of the rows that count, [Dk] -> [Dv]; as `RowMemory`.

    A row costs O(p^2), in a window amortised; a read O(p^2), of a window or beside a ridge that stays
    O(p^3). A window keeps its rows, up to 2 n, and 2 sqrt(n) triangles.
    """

    def __init__(
        self,
        recipe: ttr.Recipe,
        constants: Constants,
        key_dim: int,
        value_dim: int,
        forgetting: Forgetting,
        saved: dict[str, Array] | None = None,
    ) -> None:
        self.recipe, self.constants, self.forgetting = recipe, constants, forgetting
        self.key_dim, self.value_dim = key_dim, value_dim
        self.rounding = np.zeros(key_dim)  # on the diagonal of A, where rows were taken back
        self._affine = recipe.option("function") == "affine"
        self.own = Regression(
            saved,
            key_dim=key_dim,
            value_dim=value_dim,
            intercept=self._affine,
            ridge=float(recipe.option("ridge")),
            ridge_fades=has_ridge_in_state(recipe),
            **dataclasses.asdict(forgetting),
        )
        self._read: tuple[int, dict[str, Array]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_read": None}

    @property
    def count(self) -> int:
        """Rows learned so far."""
        return self.own.count

    @property
    def decay(self) -> float:
        return self.forgetting.decay

    @property
    def weighs(self) -> bool:
        """May rows have weights?"""
        return takes_importance(self.recipe)

    def memorize(
        self, rows: Array, values: Array, weights: Array | None, times: Array | None = None
    ) -> None:
        """Learns [n, Dk] -> [n, Dv], the latest row last."""
        self.own.learn(rows, values, weights, times)

    def predict(self, rows: Array) -> Array:
        """m(x) of every row, [n, Dv]; changes nothing."""
        return self.own.predict(rows)

    # ---- What it holds ---------------------------------------------------------------------------

    @property
    def _fit(self) -> dict[str, Array]:
        count = self.own.count
        if self._read is None or self._read[0] != count:
            self._read = count, self.own.fit()
        return self._read[1]

    @property
    def state(self) -> dict[str, Array]:
        """The triangle of the rows that count, from the origin."""
        fit = self._fit
        return {"state.r": fit["r"], "state": fit["w"], "state.rss": fit["rss"]}

    @property
    def key_origin(self) -> Array:
        return self._fit["origin"][: self.key_dim]

    @property
    def value_origin(self) -> Array:
        return self._fit["origin"][self.key_dim :]

    def residuals(self) -> FitResiduals:
        """Those of the fit."""
        weight, squares = self._fit["sums"]
        parameters = self.key_dim + self._affine
        rss = LinearFit(self).least_squares
        return FitResiduals.of(self.decay, parameters, rss, float(weight), float(squares))

    def rows(self) -> tuple[Array, Array, Array, Array | None]:
        """Keys, values, weights and times of the rows in a window, the oldest first."""
        rows = self.own.rows()
        times = rows["times"] if self.forgetting.has_times else None
        return rows["keys"], rows["values"], rows["weights"], times

    # ---- Other memories --------------------------------------------------------------------------

    def _made(self, saved: dict[str, Array] | None, key_dim: int | None = None) -> RotatedMemory:
        width = self.key_dim if key_dim is None else key_dim
        return RotatedMemory(
            self.recipe, self.constants, width, self.value_dim, self.forgetting, saved
        )

    def grown(self, key_dim: int) -> RotatedMemory:
        """The same, of keys with new channels behind theirs, which have been 0 so far."""
        new = self._made(None, key_dim)
        if self.forgetting.has_window:
            keys, values, weights, times = self.rows()
            wide = np.pad(keys, ((0, 0), (0, key_dim - self.key_dim)))
            new.memorize(wide, values, weights, times)
            return new._counting(self.count)
        saved, start = self.own.save(), new.own.save()
        places = np.r_[0 : self.key_dim, key_dim : key_dim + self._affine]
        new_r = start["r"] * self.decay**self.count  # what is there at the start is the ridge, and fades
        new_r[np.ix_(places, places)] = saved["r"]
        new_w = start["w"]
        new_w[places] = saved["w"]
        origin = np.insert(saved["origin"], [self.key_dim] * (key_dim - self.key_dim), 0)
        grown = self._made({**saved, "r": new_r, "w": new_w, "origin": origin}, key_dim)
        grown.rounding[: self.key_dim] = self.rounding
        return grown

    def _counting(self, count: int) -> RotatedMemory:
        saved = self.own.save()
        saved["counts"][0] = count
        return self._made(saved)

    def and_rows_of(self, later: RotatedMemory) -> RotatedMemory:
        """The memory of the rows of both: first these. O(p^3); of windows the rows of the later one."""
        count = self.count + later.count
        if self.forgetting.has_window:
            both = self._made(self.own.save())
            both.memorize(*later.rows())
            return both._counting(count)
        mine, its = self.own.save(), later.own.save()
        counts = mine["counts"].copy()
        fades = [self.decay**later.count, 1.0]
        if self.forgetting.has_times:
            counts[1] = max(memory["counts"][1] for memory in (mine, its))
            fades = [2.0 ** ((m["counts"][1] - counts[1]) / self.forgetting.half_life) for m in (mine, its)]
        counts[0] = counts[2] = count
        placed = mine if mine["counts"][3] or not its["counts"][3] else its
        counts[3], origin = placed["counts"][3], placed["origin"]
        parts = [self._seen(m, origin).faded(fade) for m, fade in zip((mine, its), fades)]
        # The ridge of the later one, which begins anew, is there twice.
        extra = self._ridge_within(later.count)
        triangle = parts[0].and_rows_of(parts[1]).without_ridge(extra, self.key_dim)
        by = means(triangle.state()) if self._affine else None
        if by is not None:
            by = (few_bits(by[0]), few_bits(by[1])) if triangle.regular else by
            before, origin = origin, origin + np.concatenate(by)
            triangle = triangle.moved(*np.split(origin - before, [self.key_dim]))
        sums = np.sum([[fade, fade**2] * m["sums"] for m, fade in zip((mine, its), fades)], axis=0)
        return self._made({**_as_saved(triangle), "counts": counts, "origin": origin, "sums": sums})

    def _seen(self, saved: dict[str, Array], origin: Array) -> Triangle:
        """A memory's triangle, from another origin."""
        triangle = Triangle(np.diagonal(saved["r"]).copy(), _unit(saved["r"]), saved["w"], saved["rss"])
        if not self._affine:
            return triangle
        return triangle.moved(*np.split(origin - saved["origin"], [self.key_dim]))

    def sums(self) -> Sums:
        """What it holds of its rows."""
        triangle = Triangle.of_state(self.state)
        return triangle.sums(self._ridge_within(self.count), self._fit["origin"], self._affine)

    def holding(self, sums: Sums, count: int, fit: FitResiduals) -> RotatedMemory:
        """A memory of this recipe that holds other sums, of so many rows, and what their fit leaves."""
        triangle = Triangle.of_sums(sums, self._ridge_within(count))
        counts = self.own.save()["counts"]
        counts[0] = counts[2] = count
        counts[3] = self._affine and sums.weight > 0
        samples = np.array([fit.samples.weight, fit.samples.squares])
        origin = sums.high if self._affine else np.zeros_like(sums.high)
        saved = {**_as_saved(triangle), "counts": counts, "origin": origin, "sums": samples}
        # The least sum of squares is known; what a ridge that is no part of the state adds follows.
        added = LinearFit(self._made({**saved, "rss": np.zeros_like(triangle.rss)})).least_squares
        return self._made({**saved, "rss": np.maximum(fit.squares - added, 0)})

    def _ridge_within(self, count: int) -> float:
        """What of the ridge is in the state behind so many rows."""
        if not has_ridge_in_state(self.recipe):
            return 0.0
        return float(self.recipe.option("ridge")) * self.decay**count


def _unit(r: Array) -> Array:
    return np.tril(r, -1) + np.eye(len(r))


def _as_saved(triangle: Triangle) -> dict[str, Array]:
    r = np.tril(triangle.l, -1) + np.diag(triangle.d)
    return {"r": r, "w": triangle.w, "rss": triangle.rss}
