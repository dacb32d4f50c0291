"""Long tables: rows of (unique_id, ds, y), as series."""

from __future__ import annotations

import dataclasses
import datetime
import importlib.util
import operator
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._constants import Array
from ._exogenous import calendar_of
from ._stamps import KEPT, Spacing, Stamps, every, spacing_of

COLUMNS = ("unique_id", "ds", "y")


@dataclasses.dataclass
class Series:
    name: Any
    stamps: Stamps  # rising
    values: Array  # NaN where missing
    known: Array  # exogenous columns [n, E]
    rows: NDArray[np.int64]  # where they stand in the table, from 0


@dataclasses.dataclass
class Rows:
    """All series behind each other."""

    codes: NDArray[np.int64]  # of the series
    stamps: Stamps
    values: Array
    places: NDArray[np.int64]  # in the table


@dataclasses.dataclass
class Filled:
    """The rows of a series with a missing one for every stamp that is absent."""

    values: Array
    known: Array | None


def opened(op: str, table: Any, exogenous: list[str]) -> Any:
    """The table; of a Parquet file that is named the columns of a panel alone. ValueError: pyarrow is not
    there."""
    if not isinstance(table, (str, os.PathLike)):
        return table
    if importlib.util.find_spec("pyarrow") is None:
        raise ValueError(f"[{op}] table must be a frame where pyarrow is not installed but is {table}")
    from pyarrow import parquet

    there = parquet.read_schema(table).names
    wanted = [*COLUMNS, *exogenous]
    return parquet.read_table(table, columns=[name for name in wanted if name in there])


def split(op: str, table: Any, exogenous: list[str], valued: bool = True) -> list[Series]:
    """The series of a table, in the order in which it has them; `valued`: it has y. ValueError that
    names what is no such table, and the id and the row that is to blame."""
    ids, stamps, values = _columns(op, table, exogenous, valued)
    known = [_known(op, name, table) for name in exogenous]
    names, codes = _coded(op, ids)
    order = np.lexsort((stamps, codes))
    codes, stamps, values = codes[order], stamps[order], values[order]
    _check_rows(op, names, Rows(codes, stamps, values, order))
    columns = np.stack([*known, np.zeros(len(order))], axis=1)[order, :-1]
    ends = np.cumsum(np.bincount(codes, minlength=len(names)))[:-1]
    parts = (np.split(whole, ends) for whole in (stamps, values, columns, order))
    return [Series(*part) for part in zip(names, *parts)]


def _coded(op: str, ids: NDArray[Any]) -> tuple[list[Any], NDArray[np.int64]]:
    """The names in their order, and the place among them of every row's. ValueError: a row without."""
    starts = np.arange(len(ids))
    if ids.dtype != object:  # of rows that follow each other the first will do
        starts = np.flatnonzero(np.append(True, ids[1:] != ids[:-1]))
    places: dict[Any, int] = {}
    names = ids[starts].tolist()
    codes = np.fromiter((places.setdefault(name, len(places)) for name in names), np.int64)
    for name, place in places.items():
        if name is None or operator.eq(name, name) is not True:  # NaN, NA
            row = starts[np.flatnonzero(codes == place)[0]]
            raise ValueError(
                f"[{op}] unique_id must be there in every row but is missing in row {row}"
            )
    return list(places), np.repeat(codes, np.diff(np.append(starts, len(ids))))


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


def filled(
    op: str,
    one: Series,
    known: Stamps,
    spacing: Spacing,
    calendar: tuple[str, ...] = (),
    reach: int = 0,
) -> Filled:
    """The values with a NaN for every row that is missing between, behind the stamps known so far, and
    the exogenous columns of the row before it; calendars of `reach` rows to come, too. ValueError: a stamp that no whole number of steps leads to, or none ahead."""
    stamps = np.concatenate([known[-1:], one.stamps])
    steps = spacing.between(stamps)
    behind = len(known[-1:])  # of the first step is a row of before
    wrong = np.flatnonzero(~((steps >= 1) & (steps <= MOST)))
    if len(wrong):
        i = wrong[0]
        row = one.rows[i + 1 - behind]
        before = f"row {one.rows[i - behind]}" if i >= behind else "what was learned"
        if not steps[i] >= 1:
            raise ValueError(
                f"[{op}] ds of {one.name!r} must come every {spacing} but row {row} ({stamps[i + 1]}) comes "
                f"behind {before} ({stamps[i]}): sort out the stamp, or give freq"
            )
        raise ValueError(
            f"[{op}] ds of {one.name!r} must leave out at most {MOST} rows but row {row} "
            f"({stamps[i + 1]}) comes {steps[i]:.0f} steps behind {before} ({stamps[i]})"
        )
    places = np.cumsum(np.append(0 if behind == 0 else [], steps)).astype(np.int64) - behind
    values = np.full(places[-1] + 1, np.nan)
    values[places] = one.values
    latest = np.maximum(np.searchsorted(places, np.arange(len(values)), side="right") - 1, 0)
    columns = one.known[latest]
    if calendar:
        dates = every(known, one.stamps, places, spacing)
        if columns.shape[1] == 0:
            last = np.concatenate([known.astype(dates.dtype), one.stamps])[-KEPT:]
            dates = np.concatenate([dates, spacing.after(last, reach)])
            columns = np.zeros((len(dates), 0))
        columns = np.hstack([columns, calendar_of(calendar, dates)])
    return Filled(values, columns if columns.shape[1] else None)


def rows_at(op: str, name: Any, one: Series | None, stamps: Stamps) -> Array:
    """The exogenous columns at these stamps. ValueError: one that is not there."""
    there = np.zeros(0, stamps.dtype) if one is None else one.stamps.astype(stamps.dtype)
    place = np.searchsorted(there, stamps)
    absent = place == len(there)
    absent[~absent] = there[place[~absent]] != stamps[~absent]
    if absent.any():
        raise ValueError(
            f"[{op}] X must have the rows to come of {name!r} but has none of {stamps[absent][0]}"
        )
    assert one is not None
    return one.known[place]


# ---- What is no table ----------------------------------------------------------------------------


def _names(table: Any) -> list[Any]:
    frame = getattr(table, "column_names", getattr(table, "columns", []))  # pyarrow's are names
    return list(table) if isinstance(table, Mapping) else list(frame)


def _known(op: str, name: str, table: Any) -> Array:
    """An exogenous column. ValueError: one that is not known in every row."""
    values = _values(op, np.asarray(table[name]), name)
    wrong = np.flatnonzero(~np.isfinite(values))
    if len(wrong):
        raise ValueError(
            f"[{op}] {name} must be known in every row but is {values[wrong[0]]} in row {wrong[0]}"
        )
    return values


def _columns(
    op: str, table: Any, exogenous: list[str], valued: bool
) -> tuple[NDArray[Any], Stamps, Array]:
    names, wanted = _names(table), [*COLUMNS[: 2 + valued], *exogenous]
    if not set(wanted) <= set(names) or (valued and set(names) != set(wanted)):
        raise ValueError(
            f"[{op}] table must be a frame or a dictionary with the columns {', '.join(wanted)} and no "
            f"others but has {names or type(table).__name__}"
        )
    ids, stamps = (np.asarray(table[name]) for name in COLUMNS[:2])
    values = np.asarray(table["y"]) if valued else np.zeros(len(ids))
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


def _values(op: str, values: NDArray[Any], name: str = "y") -> Array:
    if values.dtype == object:  # None is missing
        values = np.array([np.nan if value is None else value for value in values.tolist()])
    if values.dtype.kind not in "iufb":
        raise ValueError(
            f"[{op}] {name} must be numbers but has the type {values.dtype} ({values[0]!r})"
        )
    return values.astype(np.float64)


def _check_rows(op: str, names: list[Any], rows: Rows) -> None:
    missing = np.flatnonzero(~np.isfinite(rows.stamps))  # NaT is not
    if len(missing):
        at = missing[0]
        raise ValueError(
            f"[{op}] ds of {names[rows.codes[at]]!r} must be there in every row but is {rows.stamps[at]} "
            f"in row {rows.places[at]}"
        )
    same = (rows.stamps[1:] == rows.stamps[:-1]) & (rows.codes[1:] == rows.codes[:-1])
    twice = np.flatnonzero(same)
    if len(twice):
        at = twice[0]
        first, second = rows.places[at : at + 2]
        raise ValueError(
            f"[{op}] ds of {names[rows.codes[at]]!r} must differ from row to row but rows {first} and "
            f"{second} are both of {rows.stamps[at]}"
        )
    endless = np.flatnonzero(np.isinf(rows.values))
    if len(endless):
        at = endless[0]
        raise ValueError(
            f"[{op}] y of {names[rows.codes[at]]!r} must be finite or missing but is infinite in row "
            f"{rows.places[at]}"
        )


def _is_mostly(one: Series, spacing: Spacing) -> bool:
    """Do most rows follow the one before them?"""
    return bool(np.mean(spacing.between(one.stamps) == 1) >= 0.5)


#: A series of so few rows may leave out any.
_FEW = 3
#: Rows that may be missing between two.
MOST = 100_000
