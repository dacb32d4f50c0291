"""Forecasts of a table's next rows, by a memory that reads it row by row."""

from __future__ import annotations

import collections
import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from ._constants import Array, Constants, decay_of, interval_decay_of, streamable
from ._memory import RowMemory
from ._residuals import PredictiveResiduals, check_level
from ._window import LagWindow, Window


class StreamingForecaster(BaseEstimator):  # type: ignore[misc]
    """A memory of *window -> next row*, which is asked at every row what comes next.

    The key is the window of the last `lags` rows of all columns, the value the row `horizon` after
    it; nothing is trained beforehand, and forecasts, missing values, units and intervals are those
    of the command `ttr forecast` (docs/forecast.md), number by number.

    Missing values are NaN. A forecast takes their place in later windows; from the (lags + 1)-th row
    of a gap on the window's mean does, so that a long gap ends flat. A row without any value is not
    learned; in a row with some the forecasts are learned in place of the others. Rows before the
    first one that has a value in every column do not count.

    Parameters
    ----------
    recipe : as for `StreamingRegressor`
    lags, horizon : int >= 1
    units : "window" or "raw"
        "window": relative to each window's mean and length, so that a shift of the data or a factor
        changes forecasts by just that. "raw": the data as they are.
    step, decay, momentum, weight_decay : float
        Gates of recipes that take these from a network.
    interval_decay : float or None
        How the errors behind intervals fade a row; None: as the recipe's associations do.

    Attributes
    ----------
    forecasts_ : [n, columns]
        Of the rows that `fit` or `partial_fit` read last, each as it was made `horizon` rows
        before; NaN where there was none yet.
    n_features_in_, n_seen_ : columns; rows read so far, without those that do not count

    Raises ValueError: infinity in X, no rows, another number of columns, a recipe that cannot learn
    row by row.
    """

    def __init__(
        self,
        recipe: Any = "rls{ridge: 0.1}",
        *,
        lags: int = 16,
        horizon: int = 1,
        units: str = "window",
        step: float = 0.5,
        decay: float = 0.99,
        momentum: float = 0.5,
        weight_decay: float = 0.01,
        interval_decay: float | None = None,
    ) -> None:
        self.recipe = recipe
        self.lags = lags
        self.horizon = horizon
        self.units = units
        self.step = step
        self.decay = decay
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.interval_decay = interval_decay

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.target_tags.required = False
        return tags

    def fit(self, X: Any, y: Any = None) -> StreamingForecaster:
        """Reads a table [rows, columns], or one column [rows], from the start. y is not used."""
        return self._learn(X, reset=True)

    def partial_fit(self, X: Any, y: Any = None) -> StreamingForecaster:
        """Goes on with more rows."""
        return self._learn(X, reset=not hasattr(self, "reader_"))

    def learn_one(self, y: float | Mapping[Any, float]) -> None:
        """Reads one row: the number of the one column, or {column: number}; NaN or an absent column
        is missing."""
        row = self._row(y)
        if not hasattr(self, "reader_"):
            self.partial_fit(row[None])
            return
        if np.isinf(row).any():
            raise ValueError(f"[learn_one] y must be finite or NaN but has infinity: {y}")
        self.forecasts_ = self.reader_.read(row)[None]

    def predict(self, X: Any) -> Array:
        """The rows of a table that follows what was read, each forecast from the rows before it,
        `horizon` rows earlier, and learned on the way. The forecaster itself stays where it is.
        [n, columns], or [n] of one column [n]."""
        check_is_fitted(self, "reader_")
        rows = self._table(X, reset=False)
        reader = copy.deepcopy(self.reader_)
        forecasts = np.array([reader.read(row) for row in rows])
        return forecasts[:, 0] if np.ndim(X) == 1 else forecasts

    def score(self, X: Any, y: Any = None) -> float:
        """1 - (squared errors of `predict`) / (those of repeating the last value known `horizon`
        rows before): 1 is perfect, 0 as good as the naive forecast. Rows and columns without a value
        or a forecast do not count."""
        forecasts = self.predict(X)
        rows = self._table(X, reset=False)
        forecasts = forecasts.reshape(rows.shape)
        naive = self.reader_.repeated(rows)
        known = np.isfinite(rows) & np.isfinite(forecasts) & np.isfinite(naive)
        errors, least = (rows - forecasts)[known], (rows - naive)[known]
        return float(1 - np.sum(errors**2) / np.sum(least**2)) if known.any() else float("nan")

    def forecast(self, steps: int = 1) -> Array:
        """The next rows, [steps, columns]. Beyond the horizon forecasts stand in for the rows they
        are made from, as for missing ones. NaN before there were `lags` + `horizon` rows."""
        return self._ahead(steps)[0]

    def forecast_interval(self, steps: int = 1, level: float = 0.95) -> tuple[Array, Array]:
        """Bounds between which the values of each of the next rows are expected with probability
        `level`, [steps, columns] each. forecast +- q s: s is the root mean square of the
        forecaster's own errors, without its first 2 lags columns forecasts, q the quantile of
        Student's t. NaN beyond the horizon, whose errors nobody has measured."""
        check_level(level)
        forecasts, margins = self._ahead(steps, level)
        return forecasts - margins, forecasts + margins

    def predict_one(self) -> float | dict[Any, float]:
        """The next row as `learn_one` takes it: a number, or {column: number}. NaN before there were
        enough rows."""
        names = getattr(self, "_columns", None)
        if not hasattr(self, "reader_"):
            return float("nan")
        row = self.forecast(1)[0]
        return float(row[0]) if names is None else dict(zip(names, row.tolist()))

    @property
    def n_seen_(self) -> int:
        check_is_fitted(self, "reader_")
        return self.reader_.rows

    # ---- The way there ---------------------------------------------------------------------------

    def _learn(self, X: Any, reset: bool) -> StreamingForecaster:
        rows = self._table(X, reset)
        if reset:
            self.reader_ = self._reader(rows.shape[1])
        self.forecasts_ = np.array([self.reader_.read(row) for row in rows])
        return self

    def _table(self, X: Any, reset: bool) -> Array:
        if np.ndim(X) == 1 and not hasattr(X, "columns"):
            X = np.asarray(X)[:, None]
        return np.asarray(
            validate_data(
                self, X, reset=reset, dtype=np.float64, ensure_all_finite="allow-nan"
            )
        )

    def _row(self, y: float | Mapping[Any, float]) -> Array:
        if not isinstance(y, Mapping):
            return np.array([y], np.float64)
        if not hasattr(self, "reader_"):
            self._columns = list(y)
        self._columns = list(getattr(self, "_columns", getattr(self, "feature_names_in_", ())))
        for name in y:
            if name not in self._columns:
                raise ValueError(
                    f"[learn_one] y must be of the columns {self._columns} but has {name!r}"
                )
        return np.array([y.get(name, np.nan) for name in self._columns], np.float64)

    def _reader(self, columns: int) -> Reader:
        if self.units not in ("window", "raw"):
            raise ValueError(f"[sklearn] units must be 'window' or 'raw' but is {self.units!r}")
        for name in ("lags", "horizon"):
            if getattr(self, name) < 1:
                raise ValueError(f"[sklearn] {name} must be 1 or more but is {getattr(self, name)}")
        recipe = streamable(self.recipe)
        constants = Constants(self.step, self.decay, self.momentum, self.weight_decay)
        fading = interval_decay_of(self.interval_decay, decay_of(recipe, constants))
        return Reader(
            RowMemory(recipe, constants, self.lags * columns, columns),
            LagWindow(self.lags, columns, self.units),
            PredictiveResiduals(fading, columns, 2 * self.lags * columns),
            self.horizon,
        )

    def _ahead(self, steps: int, level: float | None = None) -> tuple[Array, Array]:
        check_is_fitted(self, "reader_")
        if steps < 1:
            raise ValueError(f"[forecast] steps must be 1 or more but is {steps}")
        missing = np.full(self.n_features_in_, np.nan)
        margins = np.full((steps, len(missing)), np.nan)
        if level is not None:
            margins[: self.horizon] = self.reader_.margin(level)
        if steps <= self.horizon:
            return self.reader_.pending()[:steps], margins
        reader = copy.deepcopy(self.reader_)
        return np.array([reader.read(missing) for _ in range(steps)]), margins


@dataclasses.dataclass
class _Asked:
    """A forecast whose row has not come yet."""

    window: Window
    forecast: Array


class Reader:
    """What a forecaster knows. At row t the memory holds the pairs (window that ends at row i - h,
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
