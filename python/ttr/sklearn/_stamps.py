"""How stamps of series go on: evenly, by months, or by weekdays.

A stamp is a number or a date (datetime64). A gap between two is a whole number of steps, where the
rows between are missing; what is no whole number is no series of such steps.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ._constants import Array

Stamps = NDArray[Any]


class Spacing(Protocol):
    def between(self, stamps: Stamps) -> Array:
        """Steps from each stamp to the next; NaN where that is no whole number."""

    def after(self, stamps: Stamps, steps: int) -> Stamps:
        """The next ones behind a series that has some."""


@dataclasses.dataclass(frozen=True)
class Even:
    """Numbers, or dates, at one distance."""

    step: Any

    def between(self, stamps: Stamps) -> Array:
        return _whole(np.diff(stamps) / self.step)

    def after(self, stamps: Stamps, steps: int) -> Stamps:
        return np.asarray(stamps[-1] + np.arange(1, steps + 1) * self.step)

    def __str__(self) -> str:
        if not isinstance(self.step, np.timedelta64):
            return f"{self.step:.10g}"
        units = ("D", "h", "m", "s", "ms", "us")
        whole = (unit for unit in units if self.step % np.timedelta64(1, unit) == np.timedelta64(0))
        unit = next(whole, None)
        return str(self.step if unit is None else self.step.astype(f"m8[{unit}]"))


@dataclasses.dataclass(frozen=True)
class Months:
    """A day and time of every so-many-th month, or the last day of each."""

    months: int

    def between(self, stamps: Stamps) -> Array:
        count = np.diff(stamps.astype("M8[M]").astype(np.int64)) / self.months
        within, ends = _within_month(stamps)
        same = (within[1:] == within[:-1]) | (ends[1:] & ends[:-1])
        return _whole(np.where(same, count, np.nan))

    def after(self, stamps: Stamps, steps: int) -> Stamps:
        months = stamps[-1].astype("M8[M]") + np.arange(1, steps + 1) * self.months
        within, ends = _within_month(stamps)
        one_day = len(stamps) > 1 and (within == within[0]).all() and within[0] < _SHORTEST
        if one_day or not ends.all():
            return np.asarray(months.astype(stamps.dtype) + within[-1])
        time = within[-1] - within[-1].astype("m8[D]")
        return np.asarray(((months + 1).astype("M8[D]") - 1).astype(stamps.dtype) + time)

    def __str__(self) -> str:
        return f"{self.months} month{'s' * (self.months > 1)}"


@dataclasses.dataclass(frozen=True)
class Weekdays:
    """Monday to Friday, at one time of the day."""

    def between(self, stamps: Stamps) -> Array:
        days = stamps.astype("M8[D]")
        same = np.diff(stamps - days).astype(np.int64) == 0
        same &= np.is_busday(days[1:]) & np.is_busday(days[:-1])
        return np.where(same, np.busday_count(days[:-1], days[1:]).astype(np.float64), np.nan)

    def after(self, stamps: Stamps, steps: int) -> Stamps:
        day = stamps[-1].astype("M8[D]")
        days = np.busday_offset(day, np.arange(1, steps + 1), roll="backward")
        return np.asarray((days + (stamps[-1] - day)).astype(stamps.dtype))

    def __str__(self) -> str:
        return "1 weekday"


def spacing_of(series: list[Stamps]) -> Spacing | None:
    """How most stamps of all series, each rising, follow each other; None of no two stamps."""
    gaps = np.concatenate([np.diff(stamps) for stamps in series])
    if len(gaps) == 0:
        return None
    if gaps.dtype.kind != "m":
        return Even(_most_common(gaps))
    months = _months_of(series)
    if months is not None:
        return months
    step = _most_common(gaps)
    day = np.timedelta64(1, "D")
    weekdays = all(np.is_busday(stamps.astype("M8[D]")).all() for stamps in series)
    if step == day and weekdays and (gaps == 3 * day).any():
        return Weekdays()
    return Even(step)


def spacing_from(freq: Any, dates: bool) -> Spacing:
    """As a caller gives it: a number, a timedelta64, or a text such as "7D", "1M", "15m", "B"."""
    given = freq
    if isinstance(freq, str) and freq == "B" and dates:
        return Weekdays()
    if isinstance(freq, str):
        found = re.fullmatch(r"(\d*)(Y|M|W|D|h|m|s|ms|us|ns)", freq)
        given = np.array(int(found[1] or 1)).astype(f"m8[{found[2]}]")[()] if found else None
    if dates and isinstance(given, np.timedelta64) and given.astype(np.int64) > 0:
        unit = np.datetime_data(given.dtype)[0]
        return Months(int(given.astype("m8[M]").astype(int))) if unit in "YM" else Even(given)
    plain = isinstance(given, (int, float, np.number)) and not isinstance(
        given, (bool, np.timedelta64)
    )
    if not dates and plain and 0 < given < np.inf:
        return Even(given)
    kinds = 'a timedelta64, "B" or such as "7D", "1M", "15m"' if dates else "a number above 0"
    raise ValueError(f"[fit_panel] freq must be {kinds} but is {freq!r}")


def every(before: Stamps, stamps: Stamps, places: NDArray[np.int64], spacing: Spacing) -> Stamps:
    """The stamps at all places behind `before` up to the last of `places`, where `stamps` are."""
    whole = np.zeros(places[-1] + 1, stamps.dtype)
    whole[places] = stamps
    for start, stop in zip(np.append(0, places + 1), places):
        if stop > start:
            known = whole[max(start - KEPT, 0) : start] if start else before.astype(stamps.dtype)
            whole[start:stop] = spacing.after(known, stop - start)
    return whole


#: Stamps that tell a month's last days from one day of every month.
KEPT = 13
#: Days behind a month's first that every month has.
_SHORTEST = np.timedelta64(28, "D")


def _months_of(series: list[Stamps]) -> Months | None:
    """Where every series has one day of the month."""
    counts = []
    for stamps in series:
        within, ends = _within_month(stamps)
        counts.append(np.diff(stamps.astype("M8[M]").astype(np.int64)))
        if (counts[-1] == 0).any() or not (ends.all() or (within == within[:1]).all()):
            return None
    return Months(int(_most_common(np.concatenate(counts))))


def _within_month(stamps: Stamps) -> tuple[Stamps, NDArray[np.bool_]]:
    """The time since the month began; whether it is the month's last day."""
    months, days = stamps.astype("M8[M]"), stamps.astype("M8[D]")
    return stamps - months.astype(stamps.dtype), (days + 1).astype("M8[M]") != months


def _most_common(gaps: Stamps) -> Any:
    """The most common gap, the smallest of several; numbers that differ by their rounding are one."""
    rounded = np.round(gaps / gaps.min(), 6) if gaps.dtype.kind == "f" else gaps
    values, counts = np.unique(rounded, return_counts=True)
    alike = gaps[rounded == values[np.argmax(counts)]]
    return alike.mean() if gaps.dtype.kind == "f" else alike[0]


def _whole(steps: Array) -> Array:
    whole = np.round(steps)
    return np.where(np.abs(steps - whole) <= 1e-6 * np.maximum(np.abs(whole), 1), whole, np.nan)
