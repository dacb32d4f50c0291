"""Columns that are known before their row: those of X, and calendars."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.utils.validation import check_array

from ._constants import Array
from ._missing import check_numbers
from ._rows import labels_of
from ._stamps import Stamps

#: Columns of a calendar, each 1 in its part of the year, the week or the day.
CALENDARS = {"month": 12, "weekday": 7, "hour": 24}


@dataclasses.dataclass(frozen=True)
class Exogenous:
    """What a forecaster was fitted with: as many columns of X, their labels, and calendars."""

    columns: int
    labels: list[Any] | None
    calendar: tuple[str, ...]

    @property
    def count(self) -> int:
        return self.columns + sum(CALENDARS[name] for name in self.calendar)

    def rows(self, op: str, X: Any, count: int, what: str) -> Array:
        """X as [count, columns]. ValueError: one that is missing, too much, or not all there."""
        if X is None and self.columns > 0:
            raise ValueError(
                f"[{op}] X must be given for {what}, as in fit ({self._names()}), but is None"
            )
        if X is None:
            return np.zeros((count, 0))
        if self.columns == 0:
            raise ValueError(f"[{op}] X must be None, as in fit, but is given")
        labels = labels_of(X)
        if labels is not None and self.labels is not None and labels != self.labels:
            raise ValueError(
                f"[{op}] the columns of X must be {self.labels}, in this order, but are {labels}"
            )
        table = table_of(op, X)
        if table.shape != (count, self.columns):
            raise ValueError(
                f"[{op}] X must have {count} rows ({what}) of {self.columns} columns but is of shape "
                f"{table.shape}"
            )
        return table

    def one(self, op: str, X: Any, what: str) -> Array:
        """A row of X, {label: number} or numbers, as [1, columns]."""
        if isinstance(X, Mapping):
            if self.labels is None or set(X) != set(self.labels):
                raise ValueError(f"[{op}] X must be of {self._names()} but has {list(X)}")
            X = [X[label] for label in self.labels]
        return self.rows(op, None if X is None else np.reshape(X, (1, -1)), 1, what)

    def _names(self) -> str:
        return ", ".join(map(str, self.labels)) if self.labels else f"{self.columns} columns"


def exogenous_of(op: str, X: Any, calendar: Any) -> Exogenous:
    """As `fit` is given them."""
    names = calendar_names(op, calendar)
    if X is None:
        return Exogenous(0, None, names)
    labels = labels_of(X)
    if labels is None and getattr(X, "name", None) is not None:
        labels = [X.name]
    return Exogenous(table_of(op, X).shape[1], labels, names)


def calendar_names(op: str, given: Any) -> tuple[str, ...]:
    names = (given,) if isinstance(given, str) else tuple(given)
    for name in names:
        if name not in CALENDARS:
            raise ValueError(f"[{op}] calendar must be of {', '.join(CALENDARS)} but has {name!r}")
    return names


def table_of(op: str, X: Any) -> Array:
    """[n, columns]. ValueError that names row and column of what is not finite."""
    check_numbers(op, "X", X)
    table = np.asarray(X)
    table = table[:, None] if table.ndim == 1 else table
    checked = np.asarray(
        check_array(table, dtype=np.float64, ensure_all_finite=False, input_name="X"), np.float64
    )
    wrong = np.argwhere(~np.isfinite(checked))
    if len(wrong):
        row, column = wrong[0]
        labels = labels_of(X)
        name = column if labels is None else repr(labels[column])
        raise ValueError(
            f"[{op}] X must be known in every row but is {checked[row, column]} in row {row}, column {name}"
        )
    return checked


def calendar_of(names: tuple[str, ...], dates: Stamps) -> Array:
    """[n, columns]: 1 in the column of each date's month, weekday (Monday first), hour."""
    parts: list[Array] = []
    for name in names:
        if name == "month":
            place = dates.astype("M8[M]").astype(np.int64) % 12
        elif name == "weekday":
            place = (dates.astype("M8[D]").astype(np.int64) + 3) % 7
        else:
            place = dates.astype("M8[h]").astype(np.int64) % 24
        parts.append(np.eye(CALENDARS[name])[place])
    return np.concatenate(parts, axis=1) if parts else np.zeros((len(dates), 0))
