"""What a forecaster knows while it reads a table."""

from __future__ import annotations

import collections
import dataclasses

import numpy as np

from ._constants import Array
from ._memory import RowMemory
from ._residuals import PredictiveResiduals
from ._window import LagWindow, Window


@dataclasses.dataclass
class _Asked:
    """A forecast whose row has not come yet."""

    window: Window
    forecast: Array


class Reader:
    """At row t the memory holds the pairs (window that ends at row i - h,
    row i) of all rows i <= t, and is asked with the window that ends at row t."""

    def __init__(
        self,
        memory: RowMemory,
        window: LagWindow,
        residuals: PredictiveResiduals,
        horizon: int,
    ) -> None:
        columns = memory.value_dim
        self._memory, self._window, self._residuals = memory, window, residuals
        self._horizon, self._lags = horizon, memory.key_dim // columns
        self._raw = window.raw
        self._asked: collections.deque[_Asked] = collections.deque()
        self._gap = np.zeros(columns, np.int64)  # rows missing up to now, of each column
        self._known = np.full((horizon, columns), np.nan)  # last values known, the oldest first
        self.rows = 0

    def read(self, row: Array) -> Array:
        """Takes a row of C values, NaN where missing. Returns the forecast of it, made h rows ago;
        NaN where there was none."""
        missing = np.isnan(row)
        if self._window.empty and missing.any():
            return np.full_like(row, np.nan)
        self.rows += 1
        asked = self._asked.popleft() if len(self._asked) == self._horizon else None
        forecast = np.full_like(row, np.nan) if asked is None else asked.forecast
        filled = self._filled(row, missing, forecast)
        if asked is not None:
            self._residuals.add((row - forecast)[None])
            if not missing.all():
                self._learn(asked.window, filled)
        self._window.push(filled)
        if self._window.full:
            self._asked.append(self._ask())
        self._known = self._next_known(self._known, row)
        return forecast

    def pending(self) -> Array:
        """The forecasts of the next h rows; NaN where there is none."""
        rows = np.full_like(self._known, np.nan)
        for row, asked in zip(rows[self._horizon - len(self._asked) :], self._asked):
            row[:] = asked.forecast
        return rows

    def repeated(self, rows: Array) -> Array:
        """The naive forecasts of the rows to come: the last value known h rows before."""
        known, naive = self._known, []
        for row in rows:
            naive.append(known[0])
            known = self._next_known(known, row)
        return np.array(naive)

    def margin(self, level: float) -> Array:
        return self._residuals.margin(level, self._horizon)

    @staticmethod
    def _next_known(known: Array, row: Array) -> Array:
        return np.concatenate([known[1:], np.where(np.isnan(row), known[-1], row)[None]])

    def _filled(self, row: Array, missing: Array, forecast: Array) -> Array:
        self._gap = np.where(missing, self._gap + 1, 0)
        if not missing.any():
            return row
        guess = np.where(np.isfinite(forecast), forecast, self._window.latest)
        guess = np.where(self._gap > self._lags, self._window.mean(), guess)
        return np.where(missing, guess, row)

    def _learn(self, window: Window, row: Array) -> None:
        if window.flat:
            return
        key, value = window.key.ravel(), self._window.to_memory(window, row)
        distance = float(np.linalg.norm(value))
        if not self._raw and distance > 1:  # an outlier: the same relation with less weight
            key, value = key / distance, value / distance
        self._memory.write(key[None], value[None])

    def _ask(self) -> _Asked:
        window = self._window.key()
        answer = np.zeros(self._memory.value_dim)  # the window's mean
        if self._memory.count > 0 and (self._raw or not window.flat):
            answer = self._memory.predict(window.key.ravel()[None])[0]
        return _Asked(window, self._window.to_data(window, answer))
