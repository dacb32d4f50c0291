"""What a forecaster knows while it reads a table."""

from __future__ import annotations

import collections
import copy
import dataclasses

import numpy as np

from ._constants import Array
from ._leads import LeadErrors
from ._memory import RowMemory
from ._outliers import Outliers
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
        leads: LeadErrors | None = None,
    ) -> None:
        columns = memory.value_dim
        self._memory, self._window, self._residuals = memory, window, residuals
        self._horizon, self._lags = horizon, memory.key_dim // columns
        self._raw = window.raw
        self._outliers = Outliers(memory.recipe, self._lags, horizon)
        self._leads = leads
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
                self._learn(asked, filled)
        self._window.push(filled)
        if self._window.full:
            self._asked.append(self._ask(self._window))
        if self._leads is not None:
            self._leads.add(row)
            if len(self._asked) == self._horizon and self._leads.begins:
                self._leads.begin(self.ahead(self._leads.ahead)[self._horizon :])
        self._known = self._next_known(self._known, row)
        return forecast

    def pending(self) -> Array:
        """The forecasts of the next h rows; NaN where there is none."""
        rows = np.full_like(self._known, np.nan)
        for row, asked in zip(rows[self._horizon - len(self._asked) :], self._asked):
            row[:] = asked.forecast
        return rows

    def ahead(self, rows: int) -> Array:
        """The forecasts of so many rows to come, [rows, columns]: those of the next h as they were
        made, all others by recursion. A forecast takes its row's place in the window, one after the
        other, and the memory learns nothing from it. There are h of them."""
        forecasts = [asked.forecast for asked in self._asked]
        window = copy.deepcopy(self._window)
        for k in range(rows - len(forecasts)):
            window.push(np.where(np.isfinite(forecasts[k]), forecasts[k], window.latest))
            forecasts.append(self._ask(window).forecast)
        return np.array(forecasts[:rows])

    def repeated(self, rows: Array) -> Array:
        """The naive forecasts of the rows to come: the last value known h rows before."""
        known, naive = self._known, []
        for row in rows:
            naive.append(known[0])
            known = self._next_known(known, row)
        return np.array(naive)

    def margins(self, level: float, rows: int) -> Array:
        """Half the widths of the intervals of so many rows to come, [rows, columns]; NaN where
        nobody has measured the errors."""
        margins = np.full((rows, self._memory.value_dim), np.nan)
        margins[: self._horizon] = self._residuals.margin(level, self._horizon)
        if self._leads is not None and rows > self._horizon:
            measured = self._leads.margins(level)[: rows - self._horizon]
            margins[self._horizon :][: len(measured)] = measured
        return margins

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

    def _learn(self, asked: _Asked, row: Array) -> None:
        window = asked.window
        if window.flat:
            return
        key, value = window.key.ravel(), self._window.to_memory(window, row)
        if not self._raw:
            forecast = self._window.to_memory(window, asked.forecast)
            key, value = self._outliers.held(key, value, forecast)
        self._memory.write(key[None], value[None])

    def _ask(self, of: LagWindow) -> _Asked:
        window = of.key()
        answer = np.zeros(self._memory.value_dim)  # the window's mean
        if self._memory.count > 0 and (self._raw or not window.flat):
            answer = self._memory.predict(window.key.ravel()[None])[0]
        return _Asked(window, of.to_data(window, answer))
