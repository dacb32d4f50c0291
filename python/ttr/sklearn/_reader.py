"""What a forecaster knows while it reads a table: the library's, and the naive forecasts beside it."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._core import Forecaster, read_all
from ._constants import Array, Constants


class Reader:
    """At row t the memory holds the pairs (window that ends at row i - h,
    row i) of all rows i <= t, and is asked with the window that ends at row t."""

    def __init__(self, recipe: Any, constants: Constants, **options: Any) -> None:
        gates = dict(vars(constants))
        self._own = Forecaster(recipe, **gates, **options)
        self._known = np.full((options["horizon"], options["columns"]), np.nan)  # the oldest first

    @property
    def rows(self) -> int:
        """Read since the first that has a value in every column."""
        return self._own.rows

    def read(self, rows: Array) -> Array:
        """Takes rows [n, C], NaN where missing. Returns their forecasts, each made h rows ago; NaN
        where there was none."""
        return read_tables([self], [rows])[0]

    def pending(self) -> Array:
        """The forecast of the next row [C]; NaN where there is none."""
        return self._own.ahead(1)[0]

    def ahead(self, rows: int) -> Array:
        """The forecasts of so many rows to come, [rows, C]: those of the next h as they were made, all
        others by recursion; the memory learns nothing from them."""
        return self._own.ahead(rows)

    def margins(self, level: float, rows: int) -> Array:
        """Half the widths of the intervals of so many rows to come, [rows, C]; NaN where nobody has
        measured the errors."""
        return self._own.margins(level, rows)

    def repeated(self, rows: Array) -> Array:
        """The naive forecasts of the rows to come: the last value known h rows before."""
        return self._with_known(rows)[: len(rows)]

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
    forecasts = read_all([reader._own for reader in readers], tables)
    for reader, rows in zip(readers, tables):
        reader._know(rows)
    return forecasts
