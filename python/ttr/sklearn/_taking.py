"""What a forecaster is given as rows, made ready to be read."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._constants import Array
from ._exogenous import Exogenous, calendar_of
from ._reader import Reader
from ._timeline import Timeline


@dataclasses.dataclass
class Taken:
    rows: Array  # [n, C], NaN where missing
    known: Array | None  # [m, E] of these, and of rows to come as far as calendars tell them
    exogenous: Exogenous
    timeline: Timeline | None
    reader: Reader
    places: NDArray[np.int64] = dataclasses.field(default_factory=lambda: np.zeros(0, np.int64))
    # of the rows given among those with the absent ones


def take(op: str, given: Taken, index: Any, reach: int) -> Taken:
    """With a row of NaN for every stamp that is absent, the exogenous columns of the row before it, and
    calendars; those alone are known of the next `reach` rows, too. ValueError: as `Timeline.extended`."""
    before, exogenous = given.timeline, given.exogenous
    timeline, places = before, np.arange(len(given.rows))
    if before is not None:
        timeline, places = before.extended(op, index)
    rows = np.full((places[-1] + 1, given.rows.shape[1]), np.nan)
    rows[places] = given.rows
    if exogenous.count == 0:
        return dataclasses.replace(given, rows=rows, known=None, timeline=timeline, places=places)
    assert given.known is not None
    latest = np.maximum(np.searchsorted(places, np.arange(len(rows)), side="right") - 1, 0)
    known = given.known[latest]
    if exogenous.calendar:
        if timeline is None or before is None:
            raise ValueError(
                f"[{op}] y must be of pandas with dates as its index where calendar is given but is an array"
            )
        more = reach if exogenous.columns == 0 and reach > 1 else 0
        dates = timeline.filled(before, index, places, more)
        calendar = calendar_of(exogenous.calendar, dates)
        known = np.hstack([known, calendar]) if exogenous.columns else calendar
    return dataclasses.replace(given, rows=rows, known=known, timeline=timeline, places=places)
