"""Options of `ttr.sklearn.StreamingForecaster`: sparse lags, differences, logarithms, strategies and
conformal intervals."""

from __future__ import annotations

import pickle
import shutil
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import t as student
from ttr.sklearn import StreamingForecaster, _plot

Array = NDArray[np.float64]


def seasons(rows: int, seed: int = 0) -> Array:
    """A trend and a year of twelve rows, growing by 1 % a row."""
    random = np.random.default_rng(seed)
    t = np.arange(rows)
    level = 100 * np.exp(0.01 * t) * (1 + 0.3 * np.sin(2 * np.pi * t / 12))
    return np.asarray(level * np.exp(0.02 * random.standard_normal(rows)))


@pytest.mark.parametrize("horizon", [1, 2])
def test_sparse_lags_are_those_rows_alone(horizon: int) -> None:
    """Raw units: the textbook's regression of x_t on x_{t-h}, x_{t-h-11}."""
    x = seasons(120)
    lags = [1, 12]
    model = StreamingForecaster("rls{ridge: 1}", lags=lags, horizon=horizon, units="raw").fit(x)
    first = 11 + horizon
    keys = np.stack([x[first - horizon - lag + 1 : len(x) - horizon - lag + 1] for lag in lags], 1)
    weights = np.linalg.solve(keys.T @ keys + np.eye(2), keys.T @ x[first:])
    expected = weights @ [x[-1], x[-12]]
    assert model.forecast(horizon)[-1, 0] == pytest.approx(expected, rel=1e-9)
    every = StreamingForecaster(lags=range(1, 17)).fit(x)
    np.testing.assert_array_equal(every.forecast(20), StreamingForecaster(lags=16).fit(x).forecast(20))


@pytest.mark.parametrize("differences", [[1], [12], [1, 12]])
def test_differences_are_taken_and_undone(differences: list[int]) -> None:
    x = seasons(150)
    x[60] = np.nan
    whole = StreamingForecaster(lags=4, differences=differences, ahead=6).fit(x)
    filled = x.copy()
    filled[60] = whole.forecasts_[60, 0]
    w = filled
    for season in differences:
        w = w[season:] - w[:-season]
    w[60 - sum(differences)] = np.nan  # what was forecast teaches nothing
    inner = StreamingForecaster(lags=4).fit(w).forecast(6)[:, 0]
    levels = [filled]
    for season in differences:
        levels.append(levels[-1][season:] - levels[-1][:-season])
    for season, level in zip(differences[::-1], levels[-2::-1]):
        history = list(level)
        for change in inner:
            history.append(change + history[-season])
        inner = np.array(history[len(level) :])
    np.testing.assert_allclose(whole.forecast(6)[:, 0], inner, rtol=1e-9)
    parts = StreamingForecaster(lags=4, differences=differences, ahead=6).fit(x[:70])
    parts = pickle.loads(pickle.dumps(parts)).partial_fit(x[70:])
    np.testing.assert_array_equal(parts.forecast_interval(6), whole.forecast_interval(6))


def test_logarithms_are_taken_and_undone() -> None:
    x = seasons(150)
    plain = StreamingForecaster(lags=13, ahead=6).fit(np.log(x))
    model = StreamingForecaster(lags=13, ahead=6, log=True).fit(x)
    np.testing.assert_allclose(model.forecast(6), np.exp(plain.forecast(6)), rtol=1e-12)
    np.testing.assert_allclose(
        model.forecast_interval(6), np.exp(plain.forecast_interval(6)), rtol=1e-12
    )
    np.testing.assert_allclose(model.forecasts_, np.exp(plain.forecasts_), rtol=1e-12)
    with pytest.raises(ValueError, match="above 0 with log=True but is -1.0 in row 2, column 0"):
        model.partial_fit([3.0, 4.0, -1.0])


def test_direct_forecasts_have_a_memory_each() -> None:
    x = seasons(150)
    model = StreamingForecaster(lags=13, horizon=4, strategy="direct").fit(x)
    lower, upper = model.forecast_interval(4)
    for k in range(1, 5):
        alone = StreamingForecaster(lags=13, horizon=k).fit(x)
        assert model.forecast(4)[k - 1] == alone.forecast(k)[-1]
        np.testing.assert_array_equal(
            [lower[k - 1], upper[k - 1]], [bound[-1] for bound in alone.forecast_interval(k)]
        )
    np.testing.assert_array_equal(model.forecasts_, alone.forecasts_)
    np.testing.assert_array_equal(model.forecast(9)[4:], alone.forecast(9)[4:])


@pytest.mark.parametrize("horizon, ahead", [(1, 5), (3, 3), (3, 5)])
def test_combined_forecasts_are_the_mean_of_two_ways(horizon: int, ahead: int) -> None:
    x = seasons(150)
    x[70] = np.nan
    options: dict[str, Any] = {"lags": 13, "log": True}
    model = StreamingForecaster(horizon=horizon, ahead=ahead, strategy="combined", **options).fit(x)
    direct = StreamingForecaster(horizon=horizon, strategy="direct", **options).fit(x)
    recursive = StreamingForecaster("affine_rls{ridge: 0.1}", **options).fit(x)
    np.testing.assert_allclose(
        model.forecast(6), np.sqrt(direct.forecast(6) * recursive.forecast(6)), rtol=1e-13
    )
    # Rows were forecast so, and intervals follow from how far off that was.
    young = StreamingForecaster(horizon=horizon, ahead=ahead, strategy="combined", **options)
    paths = {}  # by the row that was read last
    for t, value in enumerate(x):
        young.learn_one(value)
        if t >= 11 + horizon:
            paths[t] = young.forecast(ahead)[:, 0]
    for t in range(11 + 2 * horizon, len(x)):
        assert model.forecasts_[t, 0] == paths[t - horizon][horizon - 1]
    errors = [np.log(x[t + ahead] / path[-1]) for t, path in paths.items() if t + ahead < len(x)]
    early = horizon - 1 if ahead == horizon else 0  # not of all rows up to the horizon
    counted = np.array([error for error in errors if np.isfinite(error)])[26 - early :]
    quantile = student.ppf(0.975, len(counted) * 3 * ahead / (2 * ahead**2 + 1))
    lower, upper = model.forecast_interval(ahead)
    width = np.log(upper[-1, 0] / lower[-1, 0]) / 2
    assert width == pytest.approx(quantile * np.sqrt(np.mean(counted**2)), rel=1e-9)


def test_combined_forecasters_go_on_bit_for_bit() -> None:
    x = seasons(150)
    options: dict[str, Any] = {"lags": 4, "horizon": 3, "ahead": 5, "strategy": "combined"}
    whole = StreamingForecaster(**options, intervals="conformal").fit(x)
    parts = StreamingForecaster(**options, intervals="conformal").fit(x[:70])
    parts = pickle.loads(pickle.dumps(parts)).partial_fit(x[70:])
    np.testing.assert_array_equal(parts.forecast(8), whole.forecast(8))
    np.testing.assert_array_equal(parts.forecast_interval(5), whole.forecast_interval(5))
    np.testing.assert_array_equal(parts.forecasts_, whole.forecasts_[70:])
    with pytest.raises(ValueError, match="exogenous must be 0 with the strategy combined but is 1"):
        StreamingForecaster(strategy="combined").fit(x, X=x)


def test_conformal_intervals_cover_and_forget_a_spike() -> None:
    random = np.random.default_rng(0)
    x = np.cumsum(random.standard_t(2, 3000))
    model = StreamingForecaster(lags=4, intervals="conformal").fit(x[:500])
    inside = []
    for t in range(500, 3000):
        lower, upper = model.forecast_interval()
        inside.append(lower[0, 0] <= x[t] <= upper[0, 0])
        model.learn_one(x[t])
    assert np.mean(inside) == pytest.approx(0.95, abs=0.015)

    def width(intervals: str, spike: float) -> float:
        series = random_walk.copy()
        series[500] += spike
        lower, upper = (
            StreamingForecaster(lags=4, intervals=intervals).fit(series).forecast_interval()
        )
        return float(upper[0, 0] - lower[0, 0])

    random_walk = np.cumsum(random.standard_normal(1000))
    assert width("conformal", 1e4) < 1.2 * width("conformal", 0)
    assert width("student", 1e4) > 100 * width("student", 0)


def test_a_panel_has_them_too() -> None:
    x = seasons(100)
    table = {"unique_id": ["a"] * 100, "ds": np.arange(100), "y": x}
    options: dict[str, Any] = {"lags": [1, 2, 12], "log": True, "differences": [1], "ahead": 3}
    panel = StreamingForecaster(**options).fit_panel(table)
    alone = StreamingForecaster(**options).fit(x)
    np.testing.assert_array_equal(
        panel.forecast(3, 0.9)["StreamingForecaster-lo-90"], alone.forecast_interval(3, 0.9)[0][:, 0]
    )


@pytest.mark.parametrize(
    "options, message",
    [
        ({"lags": [3, 2]}, "lags must be whole numbers of 1 or more that rise"),
        ({"lags": []}, r"lags must be 1 or more, a whole number, but is \[\]"),
        ({"lags": [1, 0.5]}, "lags must be 1 or more, a whole number, but is 0.5"),
        ({"differences": [0]}, "differences must be 1 or more, a whole number, but is 0"),
        ({"differences": [1], "horizon": 2}, "horizon must be 1 with differences"),
        ({"strategy": "both"}, "strategy must be of recursive, direct, combined but is 'both'"),
        ({"intervals": "normal"}, "intervals must be of student, conformal but is 'normal'"),
    ],
)
def test_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StreamingForecaster(**options).fit(seasons(60))


def test_more_rows_are_needed_with_differences() -> None:
    with pytest.raises(ValueError, match=r"lags \+ horizon \+ differences = 18 samples but has 17"):
        StreamingForecaster(lags=4, differences=[1, 12]).fit(seasons(17))
    assert np.isfinite(StreamingForecaster(lags=4, differences=[1, 12]).fit(seasons(18)).forecast())


# ---- Looking at it -------------------------------------------------------------------------------


def test_coverage_is_watched() -> None:
    random = np.random.default_rng(0)
    steady, wild = np.cumsum(random.standard_normal(1200)), 5 * random.standard_normal(300)
    for options in ({"horizon": 1}, {"horizon": 3}):
        model = StreamingForecaster(lags=4, **options).fit(steady[:800])
        before = model.forecast(3)
        assert model.coverage(steady[800:]) == pytest.approx(0.95, abs=0.03)
        with pytest.warns(RuntimeWarning, match=r"intervals of level 0.95 hold 0\.[0-9]+ of the last"):
            assert model.coverage(steady[799] + np.cumsum(wild)) < 0.6
        np.testing.assert_array_equal(model.forecast(3), before)
    model = StreamingForecaster(lags=4).fit(steady[:800])
    inside = []
    for value in steady[800:900]:
        bounds = model.forecast_interval(1, 0.8)
        inside.append(bounds[0][0, 0] <= value <= bounds[1][0, 0])
        model.learn_one(value)
    again = StreamingForecaster(lags=4).fit(steady[:800])
    assert again.coverage(steady[800:900], 0.8) == np.mean(inside)
    assert np.isfinite(StreamingForecaster("rls", lags=4, units="raw").fit(steady).condition_)


@pytest.mark.skipif(shutil.which("ttr") is None, reason="the command ttr draws")
def test_a_picture() -> None:
    x = seasons(100)
    model = StreamingForecaster(lags=4, ahead=3).fit(x)
    drawn = model.plot(x, steps=5)
    assert drawn.lstrip().startswith("<svg") and "to come, 95 %" in drawn
    assert model.plot(x[-20:]) != drawn
    with pytest.raises(ValueError, match="must be the 100 rows that were read last"):
        model.plot(seasons(120))


def test_a_picture_needs_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_plot, "program", lambda: None)
    x = seasons(60)
    with pytest.raises(RuntimeError, match="the command ttr must be on the path"):
        StreamingForecaster(lags=4).fit(x).plot(x)
