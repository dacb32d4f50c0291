"""Nixtla's frames: a memory among statsforecast's models.

    from statsforecast import StatsForecast
    from ttr.sklearn.nixtla import MemoryModel

    models = [MemoryModel(lags=12, log=True), AutoTheta(season_length=12)]
    StatsForecast(models=models, freq="ME").forecast(df=panel, h=12, level=[90])
    StatsForecast(models=models, freq="ME").cross_validation(df=panel, h=12, n_windows=4)

`StreamingForecaster.fit_panel` reads the same frames (`unique_id`, `ds`, `y`) without statsforecast, all
series in one call: here each costs a call from Python.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from statsforecast.models import _TS

from ._forecaster import StreamingForecaster


class MemoryModel(_TS):  # type: ignore[misc]
    """`StreamingForecaster` as a model of one series: `fit(y)`, `predict(h, level)`, `forecast(y, h,
    level)`, levels in percent. Keywords are those of `StreamingForecaster`; further columns of the frame are its
    exogenous ones, and forecasts of rows that were read are those made before each was."""

    uses_exog = True

    def __init__(self, alias: str = "StreamingForecaster", **options: Any) -> None:
        self.alias = alias
        self.options = options
        self.prediction_intervals = None

    def fit(self, y: Any, X: Any = None) -> MemoryModel:
        """Reads a series."""
        self._series = np.asarray(y, np.float64)
        self._columns = X
        self.model_ = self._read(self._series, X, None)
        return self

    def predict(self, h: int, X: Any = None, level: list[float] | None = None) -> dict[str, Any]:
        """The next h rows, by the series of `fit`; X: their columns, where it had some."""
        model = self.model_ if level is None else self._read(self._series, self._columns, h)
        return self._answer(model, h, X, level)

    def predict_in_sample(self, level: list[float] | None = None) -> dict[str, Any]:
        """The rows that `fit` read, each forecast before it was."""
        return {"fitted": self.model_.forecasts_[:, 0]}

    def forecast(
        self,
        y: Any,
        h: int,
        X: Any = None,
        X_future: Any = None,
        level: list[float] | None = None,
        fitted: bool = False,
    ) -> dict[str, Any]:
        """`fit` and `predict` of one series, keeping nothing."""
        model = self._read(np.asarray(y, np.float64), X, h if level else None)
        answer = self._answer(model, h, X_future, level)
        return {**answer, "fitted": model.forecasts_[:, 0]} if fitted else answer

    def _read(self, series: Any, X: Any, reach: int | None) -> StreamingForecaster:
        options = self.options if reach is None else {"ahead": reach, **self.options}
        return StreamingForecaster(**options).fit(series, X=X)

    @staticmethod
    def _answer(
        model: StreamingForecaster, h: int, X: Any, level: list[float] | None
    ) -> dict[str, Any]:
        answer: dict[str, Any] = {"mean": model.forecast(h, X=X)[:, 0]}
        for one in level or ():
            lower, upper = model.forecast_interval(h, one / 100, X=X)
            answer[f"lo-{one}"], answer[f"hi-{one}"] = lower[:, 0], upper[:, 0]
        return answer
