"""What a forecaster knows while it reads a table: the library's, and the naive forecasts beside it."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._core import Forecaster, read_all
from ._constants import Array, Constants


class Reader:
    """At row t the memory holds the pairs (window that ends at row i - h,
    row i) of all rows i <= t, and is asked with the window that ends at row t.

    ``direct``: a memory for each of the horizons 1 .. h, where forecasts of more than one row are
    asked for; else those beyond the horizon go on by recursion. ``logarithm``: of what is read, whose
    forecasts and bounds are exponentials.
    """

    def __init__(
        self,
        recipe: Any,
        constants: Constants,
        *,
        columns: int,
        horizon: int,
        direct: bool = False,
        logarithm: bool = False,
        **options: Any,
    ) -> None:
        options = {**vars(constants), **options}
        nearer = range(1, horizon) if direct else ()
        self._logarithm = logarithm
        # The last one is of the horizon itself.
        self._all = [Forecaster(recipe, columns, horizon=h, **options) for h in (*nearer, horizon)]
        self._known = np.full((horizon, columns), np.nan)  # the oldest first

    @property
    def rows(self) -> int:
        """Read since the first that has a value in every column."""
        return self._all[-1].rows

    @property
    def condition(self) -> float:
        """That of the last memory's Gram matrix."""
        return self._all[-1].condition

    def read(self, rows: Array) -> Array:
        """Takes rows [n, C], NaN where missing. Returns their forecasts, each made h rows ago; NaN
        where there was none."""
        return read_tables([self], [rows])[0]

    def pending(self) -> Array:
        """The forecast of the next row [C]; NaN where there is none."""
        row: Array = self.ahead(1)[0]
        return row

    def ahead(self, rows: int) -> Array:
        """The forecasts of so many rows to come, [rows, C]: those of the next h as they were made, all
        others by recursion; the memory learns nothing from them."""
        return self._back(self._nearest([one.ahead for one in self._all], rows))

    def bounds(self, level: float, rows: int) -> tuple[Array, Array]:
        """The intervals of so many rows to come, [rows, C] each; NaN where nobody has measured the
        errors."""

        def margins(one: Forecaster) -> Any:
            return lambda rows: one.margins(level, rows)

        forecasts = self._nearest([one.ahead for one in self._all], rows)
        margin = self._nearest([margins(one) for one in self._all], rows)
        return self._back(forecasts - margin), self._back(forecasts + margin)

    def repeated(self, rows: Array) -> Array:
        """The naive forecasts of the rows to come: the last value known h rows before."""
        return self._with_known(rows)[: len(rows)]

    @staticmethod
    def _nearest(answers: list[Any], rows: int) -> Array:
        """Row k of the memory that knows it directly, the others of the last one."""
        whole: Array = answers[-1](rows)
        for k, answer in enumerate(answers[:-1][:rows]):
            whole[k] = answer(k + 1)[k]
        return whole

    def _to(self, rows: Array) -> Array:
        """As the memories read them. ValueError: what has no logarithm."""
        if not self._logarithm:
            return rows
        if (rows <= 0).any():
            place = np.argwhere(rows <= 0)[0]
            raise ValueError(
                f"[forecast] X must be above 0 with log=True but is {rows[tuple(place)]} in row "
                f"{place[0]}, column {place[1]}"
            )
        return np.log(rows)

    def _back(self, rows: Array) -> Array:
        with np.errstate(over="ignore"):  # a bound so far up is infinity
            return np.exp(rows) if self._logarithm else rows

    def _with_known(self, rows: Array) -> Array:
        """The values known at the last h rows and at these."""
        whole = np.concatenate([self._known, rows])
        places = np.where(np.isnan(whole), 0, np.arange(len(whole))[:, None])
        return np.take_along_axis(whole, np.maximum.accumulate(places, axis=0), axis=0)

    def _know(self, rows: Array) -> None:
        whole = np.flatnonzero(~np.isnan(rows).any(axis=1))
        if np.isnan(self._known[-1]).any():  # rows before the first whole one do not count
            rows = rows[whole[0] :] if len(whole) else rows[:0]
        self._known = self._with_known(rows)[len(rows) :]


def read_tables(readers: list[Reader], tables: list[Array]) -> list[Array]:
    """`Reader.read` of every table by its reader, on all cores."""
    read = [reader._to(rows) for reader, rows in zip(readers, tables)]
    own = [(one, rows) for reader, rows in zip(readers, read) for one in reader._all]
    every = read_all([one for one, _ in own], [rows for _, rows in own])
    last = np.cumsum([len(reader._all) for reader in readers]) - 1
    for reader, rows in zip(readers, tables):
        reader._know(rows)
    return [reader._back(every[i]) for reader, i in zip(readers, last)]
