"""`ttr.sklearn.StreamingForecaster` far ahead: recursion, its intervals, and trends that it follows."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable

import numpy as np
import pytest
import ttr
from numpy.typing import NDArray
from ttr.sklearn import StreamingForecaster

Array = NDArray[np.float64]
MEMORIES = (
    "rls",
    "affine_rls",
    "local_linear",
    "local_linear{kernel: gaussian, bandwidth: 1}",
    "nlms",
    "deltanet",
    "kernel_rls",
    "nadaraya_watson{bandwidth: 0.1}",
)
WINDOWS = ((2, 1), (8, 1), (4, 12))  # lags, horizon


def oscillation(rows: int, seed: int = 0, noise: float = 0.3) -> Array:
    random = np.random.default_rng(seed)
    x = np.zeros(rows + 50)
    for t in range(2, len(x)):
        x[t] = 1.6 * x[t - 1] - 0.8 * x[t - 2] + noise * random.standard_normal()
    return x[50:]


# ---- Recursion -----------------------------------------------------------------------------------


@pytest.mark.parametrize("horizon", [1, 3])
def test_forecasts_take_the_places_of_rows(horizon: int) -> None:
    """As missing rows, while a gap is no longer than the lags; from there on the same way."""
    series = oscillation(100)
    model = StreamingForecaster("rls", lags=6, horizon=horizon).fit(series)
    ahead = model.forecast(200)[:, 0]
    gap = model.predict([np.nan] * (6 + horizon))
    np.testing.assert_array_equal(ahead[: 6 + horizon], gap)
    np.testing.assert_array_equal(ahead[:horizon], model.forecast(horizon)[:, 0])
    raw = StreamingForecaster("rls", lags=2, units="raw").fit(series)
    expected = list(series[-2:])
    keys = np.stack([series[1:-1], series[:-2]], axis=1)
    weights = np.linalg.solve(keys.T @ keys + 1e-3 * np.eye(2), keys.T @ series[2:])
    for _ in range(200):
        expected.append(float(weights @ expected[:-3:-1]))
    np.testing.assert_allclose(raw.forecast(200)[:, 0], expected[2:], rtol=1e-9, atol=1e-12)


def test_a_sine_goes_on_far_beyond_the_lags() -> None:
    """The forecasts were flat from row lags + horizon on."""
    t = np.arange(600)
    model = StreamingForecaster("weighted_rls{decay: .95}", lags=16).fit(np.sin(0.1 * t[:400]))
    np.testing.assert_allclose(model.forecast(200)[:, 0], np.sin(0.1 * t[400:]), atol=1e-6)


# ---- Intervals -----------------------------------------------------------------------------------


def test_every_step_up_to_ahead_has_bounds_that_cover() -> None:
    """The command's test, tests/experiments/real_future_test.cc: s is that of the moving-average
    weights."""
    series = oscillation(2500)
    model = StreamingForecaster(lags=2, units="raw", ahead=8).fit(series[:800])
    inside = []
    for t in range(800, 2492):
        if t % 8 == 0:
            lower, upper = model.forecast_interval(8, level=0.8)
            rows = series[t : t + 8, None]
            inside.append((lower <= rows) & (rows <= upper))
        model.learn_one(series[t])
    count = len(inside)
    np.testing.assert_allclose(np.mean(inside, axis=0), 0.8, atol=3.5 * np.sqrt(0.16 / count))
    weights = [1.0, 1.6]
    for _ in range(6):
        weights.append(1.6 * weights[-1] - 0.8 * weights[-2])
    expected = 1.2816 * 0.3 * np.sqrt(np.cumsum(np.square(weights)))
    np.testing.assert_allclose((upper - lower)[:, 0] / 2, expected, rtol=0.1)


def test_beyond_ahead_a_warning_says_why_there_are_none() -> None:
    series = oscillation(300)
    model = StreamingForecaster(lags=4, horizon=2, ahead=5).fit(series)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isfinite(model.forecast_interval(5)).all()
    with pytest.warns(UserWarning, match=r"rows 6 to 9 ahead have no bounds.*give ahead=9"):
        lower, _ = model.forecast_interval(9)
    assert np.isfinite(lower[:5]).all() and np.isnan(lower[5:]).all()
    plain = StreamingForecaster(lags=4, horizon=2).fit(series)
    np.testing.assert_array_equal(plain.forecasts_, model.forecasts_)  # nothing else changes
    np.testing.assert_array_equal(plain.forecast(9), model.forecast(9))
    with pytest.raises(ValueError, match="ahead must be 1 or more"):
        StreamingForecaster(ahead=0).fit(series)


def test_stopped_and_resumed_is_one_reading() -> None:
    series = oscillation(260)
    series[[60, 61, 150]] = np.nan
    options = {"lags": 4, "horizon": 2, "ahead": 100}
    whole = StreamingForecaster("affine_rls", **options).fit(series)
    parts = StreamingForecaster("affine_rls", **options).fit(series[:130])
    parts = pickle.loads(pickle.dumps(parts)).partial_fit(series[130:])
    np.testing.assert_array_equal(whole.forecast(100), parts.forecast(100))
    np.testing.assert_array_equal(whole.forecast_interval(100), parts.forecast_interval(100))


# ---- Trends --------------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", MEMORIES)
@pytest.mark.parametrize("lags, horizon", WINDOWS)
def test_trends_lead_out_of_the_window(recipe: str, lags: int, horizon: int) -> None:
    """tests/experiments/real_outliers_test.cc has the same."""

    def twelfth(function: Callable[[Array], Array]) -> tuple[float, Array]:
        series = function(np.arange(412.0))
        model = StreamingForecaster(recipe, lags=lags, horizon=horizon).fit(series[:400])
        return float(model.forecast(12)[-1, 0]), series

    forecast, series = twelfth(lambda t: 10 + t)
    assert forecast == pytest.approx(series[-1], abs=0.07)
    forecast, series = twelfth(lambda t: 0.01 * t**2)
    assert forecast == pytest.approx(series[-1], abs=10)  # it rises by 97
    forecast, series = twelfth(lambda t: np.exp(0.1 * t))
    slow = recipe == "deltanet" and horizon > 1  # its steps with divided keys are short
    gone = (forecast - series[399]) / (series[-1] - series[399])
    assert gone == pytest.approx(1, abs=0.35 if slow else 0.05)
    assert twelfth(lambda t: np.full_like(t, 7.3))[0] == 7.3
    if recipe == "nlms" and lags == 2:
        return  # keys of one dimension: its recursion is not stable
    noise = oscillation(412, noise=0.02)
    forecast, _ = twelfth(lambda t: noise + np.where(t < 300, 1, 50))
    assert forecast == pytest.approx(50, abs=1.5)


@pytest.mark.parametrize("recipe", MEMORIES)
def test_one_spike_rules_no_memory(recipe: str) -> None:
    series = oscillation(1000)
    spiked = series.copy()
    spiked[500] += 1e6
    errors = []
    for one in (series, spiked):
        forecasts = StreamingForecaster(recipe, lags=6).fit(one).forecasts_[-200:, 0]
        errors.append(np.sqrt(np.mean((forecasts - one[-200:]) ** 2)))
    assert errors[1] < 1.6 * errors[0]
