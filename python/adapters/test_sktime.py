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


def test_exogenous_data_are_known_before_their_rows() -> None:
    index = pandas.date_range("2024-01-01", periods=120, freq="D")
    random = np.random.default_rng(0)
    X = pandas.DataFrame({"sun": random.standard_normal(120)}, index=index)
    y = pandas.Series(50 + 3 * X["sun"] + 0.1 * random.standard_normal(120), name="sales")
    forecaster = MemoryForecaster(lags=4).fit(y[:100], X=X[:100])
    forecaster.update(y[100:110], X=X[100:110])
    own = StreamingForecaster(lags=4, ahead=10).fit(y[:110], X=X[:110])
    ahead = forecaster.predict(fh=np.arange(1, 11), X=X[110:])
    np.testing.assert_array_equal(ahead, own.forecast(10, X=X[110:]))
    bounds = forecaster.predict_interval(fh=np.arange(1, 11), X=X[110:], coverage=0.8)
    np.testing.assert_array_equal(
        bounds.to_numpy().T, np.array(own.forecast_interval(10, 0.8, X=X[110:]))
    )
    # X may have the third row alone: rows before it then repeat what the last row read had.
    few = X[110:113].copy()
    few.iloc[:2] = X.iloc[109]
    third = forecaster.predict(fh=[3], X=X[112:113])
    assert third.iloc[0] == own.forecast(3, X=few).iloc[2]
