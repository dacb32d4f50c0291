"""Forecasts of a table's next rows, by a memory that reads it row by row."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from ._constants import Array, Constants, decay_of, interval_decay_of, streamable
from ._memory import RowMemory
from ._reader import Reader
from ._residuals import PredictiveResiduals, check_level
from ._window import LagWindow


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

    _columns: list[Any] | None  # names of a row that is a mapping

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
        if not hasattr(self, "reader_"):
            self.partial_fit([list(y.values())] if isinstance(y, Mapping) else [[y]])
            self._columns = list(y) if isinstance(y, Mapping) else None
            return
        row = self._row(y)
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
        if not hasattr(self, "reader_"):
            return float("nan")
        row = self.forecast(1)[0].tolist()
        if self._columns is not None:
            return dict(zip(self._columns, row))
        return float(row[0]) if len(row) == 1 else dict(enumerate(row))

    @property
    def n_seen_(self) -> int:
        check_is_fitted(self, "reader_")
        return self.reader_.rows

    # ---- The way there ---------------------------------------------------------------------------

    def _learn(self, X: Any, reset: bool) -> StreamingForecaster:
        rows = self._table(X, reset)
        if reset:
            self.reader_ = self._reader(rows.shape[1])
            self._columns = None
        self.forecasts_ = np.array([self.reader_.read(row) for row in rows])
        return self

    def _table(self, X: Any, reset: bool) -> Array:
        if np.ndim(X) == 1 and not hasattr(X, "columns"):
            X = np.asarray(X)[:, None]
        return np.asarray(
            validate_data(self, X, reset=reset, dtype=np.float64, ensure_all_finite="allow-nan")
        )

    def _row(self, y: float | Mapping[Any, float]) -> Array:
        if not isinstance(y, Mapping):
            if self.n_features_in_ != 1:
                raise ValueError(
                    f"[learn_one] y must be a mapping of the {self.n_features_in_} columns but is "
                    f"{y}"
                )
            return np.array([y], np.float64)
        if self._columns is None:
            names = getattr(self, "feature_names_in_", range(self.n_features_in_))
            self._columns = list(names)
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
