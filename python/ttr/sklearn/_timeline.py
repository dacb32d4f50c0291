"""When the rows of a series were: the index of a frame of pandas, which goes on behind them."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._constants import Array
from ._stamps import KEPT, Even, Spacing, Stamps, every, spacing_of

#: Rows that may be absent between two.
MOST = 100_000


class Timeline:
    """Dates or periods at one spacing, where an absent one is a missing row; or any other index,
    which says nothing about time: whole numbers go on behind the last.

    A time zone's stamps are those of its clocks.
    """

    def __init__(self, index: Any) -> None:
        self._last = index[:0]  # the kind of index that comes back
        self._stamps: Stamps = np.zeros(0, np.int64)
        self.spacing: Spacing | None = None

    @property
    def dates(self) -> bool:
        return hasattr(self._last, "tz") or self._is_period

    @property
    def _is_period(self) -> bool:
        return hasattr(self._last, "to_timestamp")

    def extended(self, op: str, index: Any) -> tuple[Timeline, NDArray[np.int64]]:
        """With the rows of `index` behind; where these stand among all rows from the first new one
        on, absent ones counted. ValueError: another kind of index, dates that do not rise or are uneven."""
        new = copy.copy(self)
        if type(index) is not type(self._last) and (self.dates or hasattr(index, "tz")):
            raise ValueError(
                f"[{op}] the index of y must be a {type(self._last).__name__} as before but is a "
                f"{type(index).__name__}"
            )
        new._last = index[-1:]
        if not self.dates:
            new._stamps = np.arange(1)
            return new, np.arange(len(index))
        stamps = self._read(index)
        known = self._stamps[-1:]
        joined = np.concatenate([known.astype(stamps.dtype), stamps])
        if not self._is_period:
            _check_rising(op, stamps, index)
        new.spacing = self.spacing or (Even(1) if self._is_period else _spacing(op, stamps))
        places = np.arange(len(stamps))
        if len(joined) > 1 and new.spacing is not None:
            steps = _steps(op, joined, new.spacing, index, len(known))
            places = np.cumsum(np.append([] if len(known) else [0], steps)).astype(int) - len(known)
        new._stamps = np.concatenate([self._stamps.astype(stamps.dtype), stamps])[-KEPT:]
        return new, places

    def after(self, steps: int) -> Any:
        """The index of the next rows."""
        if self._is_period:
            return self._last[-1:].repeat(steps) + np.arange(1, steps + 1)
        if self.dates and self.spacing is not None:
            stamps = self.spacing.after(self._stamps, steps)
            index = type(self._last)(stamps, name=self._last.name)
            return index if self._last.tz is None else index.tz_localize(self._last.tz)
        if self.dates:
            raise ValueError(
                "[forecast] the index of y must have two dates, which tell what follows, but has one"
            )
        start = int(self._last[-1]) + 1 if self._last.dtype.kind in "iu" else 0
        import pandas

        return pandas.RangeIndex(start, start + steps, name=self._last.name)

    def filled(self, before: Timeline, index: Any, places: NDArray[np.int64], more: int) -> Stamps:
        """The dates of all rows behind `before`, absent ones too, and of `more` rows to come."""
        if not self.dates or self.spacing is None:
            raise ValueError("[fit] calendar must have dates in the index of y but has none")
        if self._is_period:
            rows = int(places[-1]) + 1 + more
            return dates_of((index[:1] - places[0]).repeat(rows) + np.arange(rows))
        assert self.spacing is not None
        dates = every(before._stamps, self._read(index), places, self.spacing)
        return np.concatenate([dates, dates_of(self.after(more))]) if more else dates

    def _read(self, index: Any) -> Stamps:
        if self._is_period:
            return np.asarray(index.astype("int64"))
        return dates_of(index)


def timeline_of(table: Any) -> Timeline | None:
    """None: it has no index."""
    index = getattr(table, "index", None)
    return Timeline(index) if hasattr(index, "dtype") and hasattr(index, "is_unique") else None


def dates_of(index: Any) -> Stamps:
    """The stamps of pandas' dates or periods, without their zone."""
    plain = index.to_timestamp() if hasattr(index, "to_timestamp") else index
    return np.asarray(plain.tz_localize(None) if plain.tz is not None else plain)


def _check_rising(op: str, stamps: Stamps, index: Any) -> None:
    if np.isnat(stamps).any():
        raise ValueError(
            f"[{op}] the index of y must be a date in every row but is missing in row "
            f"{np.flatnonzero(np.isnat(stamps))[0]}"
        )
    gaps = np.diff(stamps)
    if (gaps <= np.timedelta64(0)).any():
        row = np.flatnonzero(gaps <= np.timedelta64(0))[0] + 1
        raise ValueError(
            f"[{op}] the index of y must rise from row to row but row {row} is of {index[row]}, "
            f"behind {index[row - 1]}"
        )


def _spacing(op: str, stamps: Stamps) -> Spacing | None:
    """ValueError: most stamps have another one than the most common."""
    gaps, spacing = np.diff(stamps), spacing_of([stamps])
    if spacing is not None and len(gaps) > 2 and np.mean(spacing.between(stamps) == 1) < 0.5:
        raise ValueError(
            f"[{op}] the index of y must have one spacing, with rows absent here and there, but is uneven: "
            "resample it, or give the values alone (y.to_numpy()), whose rows then follow each other"
        )
    return spacing


def _steps(op: str, stamps: Stamps, spacing: Spacing, index: Any, known: int) -> Array:
    """From each stamp to the next. ValueError: no whole number from 1 on."""
    steps = spacing.between(stamps)
    wrong = np.flatnonzero(~((steps >= 1) & (steps <= MOST)))
    if len(wrong):
        row = wrong[0] + 1 - known
        before = index[row - 1] if row > 0 else "what was read before"
        raise ValueError(
            f"[{op}] the index of y must come every {spacing} but row {row} ({index[row]}) comes behind "
            f"{before}"
        )
    return steps
