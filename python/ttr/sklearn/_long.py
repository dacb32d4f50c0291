"""Long tables: rows of (unique_id, ds, y), as series."""

from __future__ import annotations

import dataclasses
import datetime
import operator
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._constants import Array
from ._stamps import Spacing, Stamps, spacing_of

COLUMNS = ("unique_id", "ds", "y")


@dataclasses.dataclass
class Series:
    name: Any
    stamps: Stamps  # rising
    values: Array  # NaN where missing
    rows: NDArray[np.int64]  # where they stand in the table, from 0


def split(op: str, table: Any) -> list[Series]:
    """The series of a table, in the order in which it has them. ValueError that names what is no such
    table, and the id and the row that is to blame."""
    ids, stamps, values = _columns(op, table)
    places: dict[Any, list[int]] = {}
    for row, name in enumerate(ids.tolist()):
        if name is None or operator.eq(name, name) is not True:  # NaN, NA
            raise ValueError(
                f"[{op}] unique_id must be there in every row but is missing in row {row}"
            )
        places.setdefault(name, []).append(row)
    series = []
    for name, found in places.items():
        rows = np.array(found)
        rows = rows[np.argsort(stamps[rows], kind="stable")]
        one = Series(name, stamps[rows], values[rows], rows)
        _check_rows(op, one)
        series.append(one)
    return series


def check_spacing(series: list[Series], spacing: Spacing | None) -> None:
    """ValueError: stamps say nothing of what comes next, or something else in one of the series."""
    if spacing is None:
        raise ValueError(
            f"[fit_panel] freq must be given where no series has two rows, but is None: {series[0].name!r} "
            f"has one, row {series[0].rows[0]}"
        )
    for one in series:
        own = spacing_of([one.stamps])
        if len(one.stamps) > _FEW and str(own) != str(spacing) and not _is_mostly(one, spacing):
            raise ValueError(
                f"[fit_panel] series must all come every {spacing} but {one.name!r} comes every {own}: "
                "fit those in a panel of their own, or give freq"
            )


def filled(op: str, one: Series, known: Stamps, spacing: Spacing) -> Array:
    """The values with a NaN for every row that is missing between, behind the stamps known so far.
    ValueError: a stamp that no whole number of steps leads to, or none ahead."""
    stamps = np.concatenate([known[-1:], one.stamps])
    steps = spacing.between(stamps)
    behind = len(known[-1:])  # of the first step is a row of before
    for i, step in enumerate(steps):
        row = one.rows[i + 1 - behind]
        before = f"row {one.rows[i - behind]}" if i >= behind else "what was learned"
        if not step >= 1:
            raise ValueError(
                f"[{op}] ds of {one.name!r} must come every {spacing} but row {row} ({stamps[i + 1]}) comes "
                f"behind {before} ({stamps[i]}): sort out the stamp, or give freq"
            )
        if step > MOST:
            raise ValueError(
                f"[{op}] ds of {one.name!r} must leave out at most {MOST} rows but row {row} "
                f"({stamps[i + 1]}) comes {step:.0f} steps behind {before} ({stamps[i]})"
            )
    places = np.cumsum(np.append(0 if behind == 0 else [], steps)).astype(np.int64) - behind
    values = np.full(places[-1] + 1, np.nan)
    values[places] = one.values
    return values


# ---- What is no table ----------------------------------------------------------------------------


def _columns(op: str, table: Any) -> tuple[NDArray[Any], Stamps, Array]:
    names = list(table) if isinstance(table, Mapping) else list(getattr(table, "columns", []))
    if set(names) != set(COLUMNS):
        raise ValueError(
            f"[{op}] table must be a frame or a dictionary with the columns {', '.join(COLUMNS)} and no "
            f"others but has {names or type(table).__name__}"
        )
    ids, stamps, values = (np.asarray(table[name]) for name in COLUMNS)
    lengths = [np.shape(column) for column in (ids, stamps, values)]
    if len(set(lengths)) > 1 or len(lengths[0]) != 1 or lengths[0] == (0,):
        raise ValueError(f"[{op}] columns must be of one length, 1 or more, but are {lengths}")
    return ids, _stamps(op, stamps), _values(op, values)


def _stamps(op: str, stamps: NDArray[Any]) -> Stamps:
    if stamps.dtype == object and all(_is_plain_date(stamp) for stamp in stamps):
        stamps = stamps.astype("M8[us]")
    if stamps.dtype.kind not in "iufM":
        raise ValueError(
            f"[{op}] ds must be numbers or dates without a time zone but has the type {stamps.dtype} "
            f"({stamps[0]!r}): numpy.array(ds, 'datetime64[s]') reads texts such as 2020-01-31"
        )
    if stamps.dtype.kind == "M" and np.datetime_data(stamps.dtype)[0] in "YMW":
        return stamps.astype("M8[D]")
    return stamps.astype(np.int64) if stamps.dtype.kind in "iu" else stamps


def _is_plain_date(stamp: Any) -> bool:
    return isinstance(stamp, datetime.date) and getattr(stamp, "tzinfo", None) is None


def _values(op: str, values: NDArray[Any]) -> Array:
    if values.dtype == object:  # None is missing
        values = np.array([np.nan if value is None else value for value in values.tolist()])
    if values.dtype.kind not in "iufb":
        raise ValueError(
            f"[{op}] y must be numbers but has the type {values.dtype} ({values[0]!r})"
        )
    return values.astype(np.float64)


def _check_rows(op: str, one: Series) -> None:
    missing = np.flatnonzero(~np.isfinite(one.stamps))  # NaT is not
    if len(missing):
        row, stamp = one.rows[missing[0]], one.stamps[missing[0]]
        raise ValueError(
            f"[{op}] ds of {one.name!r} must be there in every row but is {stamp} in row {row}"
        )
    twice = np.flatnonzero(one.stamps[1:] == one.stamps[:-1])
    if len(twice):
        first, second = one.rows[twice[0] : twice[0] + 2]
        raise ValueError(
            f"[{op}] ds of {one.name!r} must differ from row to row but rows {first} and {second} are both "
            f"of {one.stamps[twice[0]]}"
        )
    endless = np.flatnonzero(np.isinf(one.values))
    if len(endless):
        row = one.rows[endless[0]]
        raise ValueError(
            f"[{op}] y of {one.name!r} must be finite or missing but is infinite in row {row}"
        )


def _is_mostly(one: Series, spacing: Spacing) -> bool:
    """Do most rows follow the one before them?"""
    return bool(np.mean(spacing.between(one.stamps) == 1) >= 0.5)


#: A series of so few rows may leave out any.
_FEW = 3
#: Rows that may be missing between two.
MOST = 100_000
