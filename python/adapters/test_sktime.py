"""`ttr.sklearn.sktime` by sktime's own checks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
import pytest
from sktime.utils.estimator_checks import check_estimator
from ttr.sklearn import StreamingForecaster
from ttr.sklearn.sktime import MemoryForecaster


@pytest.mark.filterwarnings("ignore")
def test_the_checks_of_sktime() -> None:
    results: dict[str, Any] = check_estimator(MemoryForecaster, raise_exceptions=False)
    failed = {name: result for name, result in results.items() if result != "PASSED"}
    assert len(results) > 100 and failed == {}


def test_the_numbers_are_ours() -> None:
    index = pandas.period_range("2015-01", periods=80, freq="M")
    y = pandas.Series(100 + np.sin(np.arange(80)), index=index)
    forecaster = MemoryForecaster(lags=4, ahead=5, log=True).fit(y[:60])
    forecaster.update(y[60:])
    own = StreamingForecaster(lags=4, ahead=5, log=True).fit(y.to_numpy())
    ahead = forecaster.predict(fh=[1, 3, 5])
    assert ahead.index.equals(pandas.PeriodIndex(["2021-09", "2021-11", "2022-01"], freq="M"))
    np.testing.assert_array_equal(ahead.to_numpy(), own.forecast(5)[[0, 2, 4], 0])
    bounds = forecaster.predict_interval(fh=[1, 3, 5], coverage=0.8).to_numpy()
    np.testing.assert_array_equal(bounds.T, np.array(own.forecast_interval(5, 0.8))[:, [0, 2, 4], 0])
    far = forecaster.predict_interval(fh=[8])
    assert np.isfinite(far.to_numpy()).all()
