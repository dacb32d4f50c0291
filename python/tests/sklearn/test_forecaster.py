"""`ttr.sklearn.StreamingForecaster`: the numbers of `ttr forecast`, and what a series asks."""

from __future__ import annotations

import csv
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from estimator_names import named
from sklearn.utils.estimator_checks import estimator_checks_generator
from ttr.sklearn import StreamingForecaster

Array = NDArray[np.float64]
ROOT = Path(__file__).resolve().parents[3]

#: Rows of a series have an order, and one row alone says nothing.
_ORDER = "a row is forecast from the rows before it"
_NAMES = "the series itself is y, as forecasting libraries have it"
_AXIS = "one axis is a series of one column"


_EXPECTED = {
    "check_methods_subset_invariance": _ORDER,
    "check_methods_sample_order_invariance": _ORDER,
    "check_fit2d_predict1d": _AXIS,
    "check_fit1d": _AXIS,
    "check_fit_score_takes_y": _NAMES,
    "check_n_features_in_after_fitting": _NAMES,
}
_CHECKS = estimator_checks_generator(
    StreamingForecaster(lags=2), expected_failed_checks=_EXPECTED, mark="xfail"
)


@pytest.mark.filterwarnings("ignore:.*what stands behind y is not read")
@pytest.mark.parametrize("estimator, check", list(_CHECKS), ids=named)
def test_the_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


def co2() -> Array:
    with (ROOT / "data" / "co2_weekly.csv").open(newline="") as file:
        return np.array([float(row["co2"] or "nan") for row in csv.DictReader(file)])


def oscillation(rows: int, seed: int = 0, noise: float = 0.3) -> Array:
    random = np.random.default_rng(seed)
    x = np.zeros(rows + 50)
    for t in range(2, len(x)):
        x[t] = 1.6 * x[t - 1] - 0.8 * x[t - 2] + noise * random.standard_normal()
    return x[50:]


def rmse(forecasts: Array, series: Array) -> float:
    known = np.isfinite(forecasts) & np.isfinite(series)
    return float(np.sqrt(np.mean((forecasts - series)[known] ** 2)))


def test_the_numbers_of_the_command() -> None:
    """docs/forecast.md: ttr forecast data/co2_weekly.csv --column co2 --lags 52
    --memory 'rls{ridge: 0.1}' --interval 0.95"""
    series = co2()
    model = StreamingForecaster(lags=52).fit(series[:-1])
    forecasts = np.append(model.forecasts_, model.forecast())
    assert rmse(forecasts, series) == pytest.approx(0.4114, abs=5e-5)
    assert np.isfinite(forecasts)[np.isfinite(series)].sum() == 2190
    assert model.forecast()[0, 0] == pytest.approx(371.61315389942575, rel=1e-13)
    lower, upper = model.forecast_interval()
    assert lower[0, 0] == pytest.approx(370.81338858274364, rel=1e-12)
    assert upper[0, 0] == pytest.approx(372.41291921610787, rel=1e-12)
    assert model.score(series[-1:]) < 1


@pytest.mark.parametrize("recipe", ["rls{ridge: 0.1}", "weighted_rls", "deltanet", "comba"])
@pytest.mark.parametrize("horizon", [1, 3])
def test_in_any_parts(recipe: str, horizon: int) -> None:
    series = oscillation(90)
    series[[11, 40, 41]] = np.nan
    whole = StreamingForecaster(recipe, lags=4, horizon=horizon).fit(series)
    parts = StreamingForecaster(recipe, lags=4, horizon=horizon).fit(series[:50])
    ahead = parts.predict(series[50:])
    forecasts = list(parts.forecasts_[:, 0])
    parts = pickle.loads(pickle.dumps(parts))
    for number in series[50:]:
        expected = parts.predict_one()
        parts.learn_one(number)
        forecasts.append(parts.forecasts_[0, 0])
        assert forecasts[-1] == expected
    np.testing.assert_array_equal(forecasts, whole.forecasts_[:, 0])
    np.testing.assert_array_equal(ahead, whole.forecasts_[50:, 0])
    np.testing.assert_array_equal(parts.forecast(9), whole.forecast(9))
    assert np.isfinite(forecasts[4 + horizon :]).all() and whole.n_seen_ == 90


def test_a_shift_and_a_factor_change_nothing_else() -> None:
    series = oscillation(200)
    plain = StreamingForecaster(lags=4).fit(series).forecasts_
    other = StreamingForecaster(lags=4).fit(series * 1000 + 7).forecasts_
    np.testing.assert_allclose(other, plain * 1000 + 7, rtol=1e-9, atol=1e-6)


def test_gaps() -> None:
    """A gap is filled by forecasts, ends flat, and teaches nothing."""
    model = StreamingForecaster(lags=4).fit(oscillation(200))
    gap = model.predict([np.nan] * 60)
    assert np.isfinite(gap).all() and np.ptp(gap[30:]) < 1e-5
    longer = StreamingForecaster(lags=4).fit(np.append(oscillation(200), [np.nan] * 60))
    np.testing.assert_array_equal(longer.forecasts_[200:, 0], gap)
    first = StreamingForecaster(lags=4).fit([np.nan, np.nan, *oscillation(20)])
    assert first.n_seen_ == 20


def test_columns_share_a_window() -> None:
    a = oscillation(400)
    table = np.stack([a, np.roll(a, 3)], 1)  # the second follows the first
    table[50, 0] = table[60, 1] = np.nan
    model = StreamingForecaster(lags=4).fit(table)
    assert rmse(model.forecasts_[100:, 1], table[100:, 1]) < 0.1 * np.std(a)
    lower, upper = model.forecast_interval()
    assert lower.shape == (1, 2) and (upper > lower).all()
    alone = StreamingForecaster(lags=4).fit(a)
    assert alone.score(oscillation(500, seed=1)) > 0.3


@pytest.mark.parametrize("horizon", [1, 4])
def test_intervals_cover(horizon: int) -> None:
    """4000 rows; as docs/forecast.md's table."""
    inside = []
    for seed in range(8):
        series = oscillation(1000, seed)
        model = StreamingForecaster(lags=2, units="raw", horizon=horizon).fit(series[:500])
        for number in series[500:]:
            lower, upper = model.forecast_interval(horizon)
            inside.append(lower[0, 0] <= number <= upper[0, 0])
            model.learn_one(number)
    assert np.mean(inside) == pytest.approx(0.95, abs=0.015 * horizon**0.5)
    with pytest.warns(UserWarning, match=f"rows {horizon + 1} to {horizon + 1} ahead have no bounds"):
        beyond = model.forecast_interval(horizon + 1)[0]
    assert np.isfinite(beyond[:horizon]).all() and np.isnan(beyond[horizon])


def test_rows_of_names() -> None:
    a = oscillation(100)
    model = StreamingForecaster(lags=3)
    assert np.isnan(model.predict_one())
    for x, y in zip(a, np.roll(a, 1)):
        model.learn_one({"x": x, "y": y})
    model.learn_one({"x": 0.5})  # y is missing
    named = model.predict_one()
    assert isinstance(named, dict) and list(named) == ["x", "y"]
    expected = StreamingForecaster(lags=3).fit(np.stack([a, np.roll(a, 1)], 1))
    np.testing.assert_allclose(
        list(named.values()), expected.partial_fit([[0.5, np.nan]]).forecast()[0]
    )
    with pytest.raises(ValueError, match="'z'"):
        model.learn_one({"z": 1.0})
    with pytest.raises(ValueError, match="mapping of the 2 columns"):
        model.learn_one(1.0)
    assert model.predict_one() == named  # what is refused changes nothing
    model.fit(a).learn_one(0.5)
    assert isinstance(model.predict_one(), float)


def test_errors() -> None:
    series = oscillation(30)
    with pytest.raises(ValueError, match="units must be 'window' or 'raw' but is 'metres'"):
        StreamingForecaster(units="metres").fit(series)
    with pytest.raises(ValueError, match="lags must be 1 or more, a whole number, but is 0"):
        StreamingForecaster(lags=0).fit(series)
    with pytest.raises(ValueError, match="interval_decay must be above 0"):
        StreamingForecaster(interval_decay=2.0).fit(series)
    with pytest.raises(ValueError, match="keys and queries"):
        StreamingForecaster("lru").fit(series)
    model = StreamingForecaster(lags=3).fit(series)
    with pytest.raises(ValueError, match="steps must be 1 or more"):
        model.forecast(0)
    with pytest.raises(ValueError, match="infinity"):
        model.learn_one(np.inf)
    with pytest.raises(ValueError, match="level"):
        model.forecast_interval(level=1.0)
