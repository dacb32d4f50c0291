"""The last rows of a table as the key of a memory, in units that follow the data.

A window holds the last `lags` rows of C columns. Each column is taken relative to its mean m_c in
the window; all columns together are divided by one scale s, the larger of the window's length and a
running mean r of such lengths (rate 1 / (10 lags), each counted as 10 r at the most):

    w_ic = (x_ic - m_c) / u_c,    s = max(|w|, r),    key = w / s       so that |key| <= 1

u_c is the length of the first window of the column that is not flat. The value that belongs to a
key lies in the same units, (x_c - m_c) / (u_c s). Key and value divided by one number are the same
linear relation, so a scale that moves does not disturb a linear memory. units="raw": keys and values
are the data themselves. The command `ttr forecast` has the same windows.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from ._constants import Array
from ._residuals import length

_EPS = float(np.finfo(np.float64).eps)
#: By so much a window is longer than the running mean, at the most, as far as that counts it: one spike
#: of 10^6 would leave all keys of the next 100 lags too short to be told apart.
_MOST_GROWTH = 10


@dataclasses.dataclass
class Window:
    """A key, and what leads from the memory's answer back to the data."""

    key: Array  # [lags, C], the latest row first
    centre: Array  # m_c
    scale: float  # s; 0 where all windows so far were flat
    flat: bool  # no column moves: nothing to learn from


class LagWindow:
    def __init__(self, lags: int, columns: int, units: str) -> None:
        self._lags, self.raw = lags, units == "raw"
        self._rows = np.zeros((0, columns))  # the oldest first
        self._unit = np.zeros(columns)  # u_c, 0 while unknown
        self._running = 0.0  # r

    @property
    def full(self) -> bool:
        return len(self._rows) == self._lags

    @property
    def empty(self) -> bool:
        return len(self._rows) == 0

    @property
    def latest(self) -> Array:
        return np.asarray(self._rows[-1])

    def push(self, row: Array) -> None:
        """One row of C numbers, none missing."""
        self._rows = np.concatenate([self._rows, [row]])[-self._lags :]

    def mean(self) -> Array:
        # Around the latest value, so that equal values have exactly that mean.
        return np.asarray(self._rows[-1] + (self._rows - self._rows[-1]).mean(0))

    def key(self) -> Window:
        """The key of a full window. Called once a row: it moves the running scale on."""
        rows = self._rows[::-1]
        columns = rows.shape[1]
        if self.raw:
            return Window(rows.copy(), np.zeros(columns), 1.0, not rows.any())
        centre = self.mean()
        key = rows - centre
        for c in range(columns):
            # What is left of equal numbers by rounding is no movement.
            rounding = 4 * _EPS * np.abs(rows[:, c]).max() * np.sqrt(self._lags)
            moved = length(key[:, c])
            if moved <= rounding:
                key[:, c] = moved = 0
            if self._unit[c] == 0:
                self._unit[c] = moved
        key /= self._units()
        whole = length(key)
        if self._running == 0:
            self._running = whole
        else:
            held = min(whole, _MOST_GROWTH * self._running)
            self._running += (held - self._running) / (10 * self._lags)
        scale = max(whole, self._running)
        if scale > 0:
            key /= scale
        return Window(key, centre, scale, whole == 0)

    def to_memory(self, window: Window, data: Array) -> Array:
        """From the data to the memory's units, [C]."""
        return np.asarray((data - window.centre) / self._units() / (window.scale or 1.0))

    def to_data(self, window: Window, answer: Array) -> Array:
        return np.asarray(window.centre + self._units() * window.scale * answer)

    def _units(self) -> Array:
        return np.where(self._unit == 0, 1.0, self._unit)
