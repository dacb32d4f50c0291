"""What a forecaster knows while it reads a table: the library's, and the naive forecasts beside it."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._core import Forecaster, read_all
from ._constants import Array, Constants


class Reader:
    """A library's Forecaster of C columns, and the last values of each.

    ``known`` [m, E]: exogenous columns of the rows that are read, and of as many later ones as they
    are known of; None without any.
    """

    def __init__(
        self, recipe: Any, constants: Constants, *, columns: int, horizon: int, **options: Any
    ) -> None:
        self._logarithm = options["logarithm"]
        self._own = Forecaster(recipe, columns, horizon=horizon, **vars(constants), **options)
        self._known = np.full((horizon, columns), np.nan)  # the oldest first

    @property
    def rows(self) -> int:
        """Read since the first that has a value in every column."""
        return self._own.rows

    @property
    def condition(self) -> float:
        """That of the memory of the rows `horizon` ahead."""
        return self._own.condition

    def read(self, rows: Array, known: Array | None = None) -> Array:
        """Takes rows [n, C], NaN where missing. Returns their forecasts, each made h rows ago; NaN
        where there was none."""
        return read_tables([self], [rows], [known])[0]

    def pending(self) -> Array:
        """The forecast of the next row [C]; NaN where there is none."""
        row: Array = self.ahead(1)[0]
        return row

    def ahead(self, rows: int, known: Array | None = None) -> Array:
        """The forecasts of so many rows to come, [rows, C]: those of the next h as they were made, all
        others by recursion; the memory learns nothing from them."""
        return self._own.ahead(rows, known)

    def bounds(self, level: float, rows: int, known: Array | None = None) -> tuple[Array, Array]:
        """The intervals of so many rows to come, [rows, C] each; NaN where nobody has measured the
        errors."""
        return self._own.bounds(level, rows, known)

    def repeated(self, rows: Array) -> Array:
        """The naive forecasts of the rows to come: the last value known h rows before."""
        return self._with_known(rows)[: len(rows)]

    def check(self, rows: Array) -> None:
        """ValueError: what has no logarithm."""
        if self._logarithm and (rows <= 0).any():
            place = np.argwhere(rows <= 0)[0]
            raise ValueError(
                f"[forecast] y must be above 0 with log=True but is {rows[tuple(place)]} in row "
                f"{place[0]}, column {place[1]}"
            )

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


def read_tables(
    readers: list[Reader], tables: list[Array], known: list[Array | None]
) -> list[Array]:
    """`Reader.read` of every table by its reader, on all cores."""
    for reader, rows in zip(readers, tables):
        reader.check(rows)
    forecasts = read_all([reader._own for reader in readers], tables, known)
    for reader, rows in zip(readers, tables):
        reader._know(rows)
    return forecasts
