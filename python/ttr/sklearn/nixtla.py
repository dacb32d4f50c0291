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
    level)`, levels in percent. Keywords are those of `StreamingForecaster`; exogenous data are refused,
    and forecasts of rows that were read are those made before each was."""

    uses_exog = False

    def __init__(self, alias: str = "StreamingForecaster", **options: Any) -> None:
        self.alias = alias
        self.options = options
        self.prediction_intervals = None

    def fit(self, y: Any, X: Any = None) -> MemoryModel:
        """Reads a series."""
        self._refuse(X)
        self._series = np.asarray(y, np.float64)
        self.model_ = self._read(self._series, None)
        return self

    def predict(self, h: int, X: Any = None, level: list[float] | None = None) -> dict[str, Any]:
        """The next h rows, by the series of `fit`."""
        self._refuse(X)
        model = self.model_ if level is None else self._read(self._series, h)
        return self._answer(model, h, level)

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
        self._refuse(X)
        model = self._read(np.asarray(y, np.float64), h if level else None)
        answer = self._answer(model, h, level)
        return {**answer, "fitted": model.forecasts_[:, 0]} if fitted else answer

    def _read(self, series: Any, reach: int | None) -> StreamingForecaster:
        options = self.options if reach is None else {"ahead": reach, **self.options}
        return StreamingForecaster(**options).fit(series)

    @staticmethod
    def _answer(model: StreamingForecaster, h: int, level: list[float] | None) -> dict[str, Any]:
        answer: dict[str, Any] = {"mean": model.forecast(h)[:, 0]}
        for one in level or ():
            lower, upper = model.forecast_interval(h, one / 100)
            answer[f"lo-{one}"], answer[f"hi-{one}"] = lower[:, 0], upper[:, 0]
        return answer

    @staticmethod
    def _refuse(X: Any) -> None:
        if X is not None:
            raise ValueError("[fit] X must be None: a memory takes no exogenous data, but is given")
