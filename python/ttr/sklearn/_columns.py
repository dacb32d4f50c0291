"""A column of a table that says when a row was, or of whom it is: no regressor."""

from __future__ import annotations

import datetime
import numbers
import re
from typing import Any

import numpy as np

from ._constants import Array
from ._rows import labels_of


def split(op: str, X: Any, column: Any) -> tuple[Any, Any]:
    """The table without a column, and that. A column is called by its label where tables have labels,
    else by its position. ValueError: it is not there."""
    labels = labels_of(X)
    if labels is not None:
        if column not in labels:
            raise ValueError(f"[{op}] X must have the column {column!r} but has {labels}")
        if hasattr(X, "drop_columns"):  # pyarrow
            return X.drop_columns([column]), X[column]
        if hasattr(X, "iloc"):  # pandas
            return X.drop(columns=[column]), X[column]
        return X.drop(column), X[column]
    table = np.asarray(X)
    if table.ndim != 2 or not _is_position(column, table.shape[1]):
        raise ValueError(f"[{op}] X must have the column {column!r} but is of shape {table.shape}")
    return np.delete(table, column, axis=1), table[:, column]


def _is_position(column: Any, columns: int) -> bool:
    whole = isinstance(column, numbers.Integral) and not isinstance(column, bool)
    return whole and 0 <= column < columns


# ---- Times ---------------------------------------------------------------------------------------


def times_of(op: str, column: Any) -> Array:
    """Numbers as they are, dates as seconds since 1970, UTC. ValueError: what is neither, and where."""
    values = np.asarray(column)
    if values.dtype.kind in "OUS":
        values = _dates(op, values.astype(object))
    if values.dtype.kind == "M":
        missing = np.flatnonzero(np.isnat(values))
        if len(missing):
            raise ValueError(f"[{op}] times must be known but are missing in row {missing[0]}")
        return np.asarray(values.astype("M8[ns]").astype(np.int64) / 1e9)
    if values.dtype.kind not in "iuf" or values.ndim != 1:
        raise ValueError(f"[{op}] times must be numbers or dates but are {values.dtype}")
    return values.astype(np.float64)


def _dates(op: str, values: Any) -> Any:
    """Seconds of Python's own dates, or numbers; dates that have a zone are taken in UTC."""
    if all(isinstance(value, numbers.Real) for value in values):
        return values.astype(np.float64)
    for row, value in enumerate(values):
        if not isinstance(value, (datetime.date, np.datetime64)):
            raise ValueError(f"[{op}] times must be numbers or dates but are {value!r} in row {row}")
    utc = datetime.timezone.utc
    plain = [
        value.astimezone(utc).replace(tzinfo=None) if getattr(value, "tzinfo", None) else value
        for value in values
    ]
    return np.array(plain, dtype="M8[us]")


_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def duration(name: str, given: Any) -> float | None:
    """A duration in seconds; None: a plain number. ValueError: a text that is none."""
    if isinstance(given, datetime.timedelta):
        return given.total_seconds()
    if isinstance(given, np.timedelta64):
        return float(given / np.timedelta64(1, "ns")) / 1e9
    if not isinstance(given, str):
        return None
    found = re.fullmatch(r"(\d+(?:\.\d*)?) ?(ns|us|ms|s|m|h|[dDwW])", given)
    if not found or float(found[1]) == 0:
        raise ValueError(f"[sklearn] {name} must be such as '6h', '7d', '15m' but is {given!r}")
    return float(found[1]) * _SECONDS[found[2].lower()]
