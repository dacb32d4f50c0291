"""sktime: a memory as a forecaster of its kind.

    from ttr.sklearn.sktime import MemoryForecaster

    forecaster = MemoryForecaster(lags=12, log=True).fit(y)
    forecaster.predict(fh=[1, 2, 3])
    forecaster.predict_interval(fh=[1, 2, 3], coverage=0.9)
    forecaster.update(y_new)                                  # learns, and forecasts from there
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
from sktime.forecasting.base import BaseForecaster, ForecastingHorizon

from ._forecaster import StreamingForecaster


class MemoryForecaster(BaseForecaster):  # type: ignore[misc]
    """`StreamingForecaster` of sktime's interface: `fit(y)`, `predict(fh)`, `update(y)`,
    `predict_interval(fh, coverage)`, `predict_quantiles(fh, alpha)`; indices come back.

    Parameters are those of `StreamingForecaster`; rows beyond `horizon` go on by recursion, and
    `ahead` is how many rows ahead intervals reach: where they are asked for further ones they
    are read again with as many. Exogenous data are known before their rows (`StreamingForecaster.fit`, X). `predict`
    takes those of `fh`; recursion needs the rows between, too: where X leaves some out, they have those of the row
    before. Rows that `update` is given are learned, also with update_params=False: what comes next depends on them.

    >>> from sktime.datasets import load_airline
    >>> from ttr.sklearn.sktime import MemoryForecaster
    >>> forecaster = MemoryForecaster(lags=12, log=True).fit(load_airline())
    >>> ahead = forecaster.predict(fh=[1, 2, 3])
    """

    _tags = {
        "authors": "ttr",
        "maintainers": "ttr",
        "y_inner_mtype": "pd.DataFrame",
        "X_inner_mtype": "pd.DataFrame",
        "capability:multivariate": True,
        "scitype:y": "both",
        "capability:exogenous": True,
        "capability:missing_values": True,
        "capability:insample": False,
        "capability:pred_int": True,
        "capability:pred_int:insample": False,
        "requires-fh-in-fit": False,
        "python_dependencies": "scikit-learn>=1.6",
    }

    def __init__(
        self,
        recipe: Any = "rls{factor: qr, ridge: 0.1}",
        lags: Any = 16,
        horizon: int = 1,
        ahead: int | None = None,
        units: str = "window",
        strategy: str = "recursive",
        differences: Any = (),
        log: bool = False,
        intervals: str = "student",
    ) -> None:
        self.recipe = recipe
        self.lags = lags
        self.horizon = horizon
        self.ahead = ahead
        self.units = units
        self.strategy = strategy
        self.differences = differences
        self.log = log
        self.intervals = intervals
        super().__init__()

    def _fit(self, y: pandas.DataFrame, X: Any, fh: Any) -> MemoryForecaster:
        self._own = StreamingForecaster(**self.get_params(deep=False))
        self._columns = y.columns
        self._read, self._known = y, X
        self._own.partial_fit(y.to_numpy(np.float64), X=_numbers(X))
        return self

    def _update(self, y: pandas.DataFrame, X: Any = None, update_params: bool = True) -> Any:
        self._own.partial_fit(y.to_numpy(np.float64), X=_numbers(X))
        self._read = pandas.concat([self._read, y])
        if X is not None:
            self._known = pandas.concat([self._known, X])
        return self

    def _predict(self, fh: Any, X: Any) -> pandas.DataFrame:
        steps = self._steps(fh)
        most = int(steps.max())
        ahead = self._own.forecast(most, X=self._known_ahead(most, X))[steps - 1]
        index = fh.to_absolute_index(self.cutoff)
        return pandas.DataFrame(ahead, index=index, columns=self._columns)

    def _predict_interval(self, fh: Any, X: Any, coverage: list[float]) -> pandas.DataFrame:
        steps = self._steps(fh)
        own = self._own
        most = int(steps.max())
        if most > max(own.horizon, own.ahead or 1):
            own = StreamingForecaster(**{**own.get_params(), "ahead": most})
            own.partial_fit(self._read.to_numpy(np.float64), X=_numbers(self._known))
        known = self._known_ahead(most, X)
        names = self._get_varnames()
        columns = pandas.MultiIndex.from_product([names, coverage, ["lower", "upper"]])
        index = fh.to_absolute_index(self.cutoff)
        whole = pandas.DataFrame(index=index, columns=columns, dtype=float)
        for level in coverage:
            bounds = own.forecast_interval(most, level, X=known) if 0 < level < 1 else None
            for c, name in enumerate(names):
                for side, end in enumerate(("lower", "upper")):
                    there = own.forecast(most, X=known) if bounds is None else bounds[side]
                    whole[(name, level, end)] = there[steps - 1, c]
        return whole

    def _known_ahead(self, rows: int, X: Any) -> Any:
        """The exogenous columns of the next rows."""
        if self._known is None or X is None:
            return _numbers(X)
        index = ForecastingHorizon(np.arange(1, rows + 1)).to_absolute_index(self.cutoff)
        filled = pandas.concat([self._known.tail(1), X.reindex(index)]).ffill()
        return filled.to_numpy(np.float64)[1:]

    def _steps(self, fh: Any) -> Any:
        return np.asarray(fh.to_relative(self.cutoff).to_pandas(), dtype=np.int64)

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """What sktime's own checks run with."""
        return [
            {"lags": 2, "ahead": 3},
            {"recipe": "affine_rls", "lags": [1, 3], "intervals": "conformal", "ahead": 3},
        ]


def _numbers(X: Any) -> Any:
    return None if X is None else X.to_numpy(np.float64)
