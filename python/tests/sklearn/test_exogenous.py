"""Columns that are known before their row, calendars, and indices of pandas."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from ttr.sklearn import StreamingForecaster

Array = NDArray[np.float64]


def driven(rows: int, seed: int = 0) -> tuple[Array, Array]:
    """A series that follows two columns of its own row, and itself; the columns."""
    random = np.random.default_rng(seed)
    X = random.standard_normal((rows, 2))
    y = np.zeros(rows)
    for t in range(1, rows):
        y[t] = 0.6 * y[t - 1] + 3 * X[t, 0] - 2 * X[t, 1] + 0.01 * random.standard_normal()
    return 100 + 7 * y, X


def test_raw_units_are_the_textbooks_regression() -> None:
    y, X = driven(60)
    model = StreamingForecaster("rls{ridge: 1}", lags=2, units="raw").fit(y, X=X)
    future = np.array([[0.3, -1.0], [2.0, 0.5]])
    keys = np.column_stack([y[1:-1], y[:-2], X[2:]])
    weights = np.linalg.solve(keys.T @ keys + np.eye(4), keys.T @ y[2:])
    first = weights @ [y[-1], y[-2], *future[0]]
    second = weights @ [first, y[-1], *future[1]]
    np.testing.assert_allclose(model.forecast(2, X=future)[:, 0], [first, second], rtol=1e-9)
    before = StreamingForecaster("rls{ridge: 1}", lags=2, units="raw").fit(y[:-1], X=X[:-1])
    assert model.forecasts_[-1, 0] == before.predict_one(X[-1])


@pytest.mark.parametrize("recipe", ["rls{ridge: 0.1}", "affine_rls"])
def test_what_is_known_is_used_and_its_unit_does_not_matter(recipe: str) -> None:
    y, X = driven(400)
    blind = StreamingForecaster(recipe, lags=4).fit(y)
    model = StreamingForecaster(recipe, lags=4).fit(y, X=X)
    errors = [np.std((y[:, None] - one.forecasts_)[200:]) for one in (blind, model)]
    assert errors[1] < 0.1 * errors[0]
    other = StreamingForecaster(recipe, lags=4).fit(5 * y - 3, X=[1000, 1e-3] * X + [7, -2e3])
    np.testing.assert_allclose(other.forecasts_, 5 * model.forecasts_ - 3, rtol=1e-6)


def test_in_any_parts_and_row_by_row() -> None:
    y, X = driven(120)
    y[50] = np.nan
    whole = StreamingForecaster(lags=4, log=True).fit(y + 200, X=X)
    parts = StreamingForecaster(lags=4, log=True).fit(y[:60] + 200, X=X[:60])
    ahead = parts.predict(y[60:] + 200, X=X[60:])
    parts = pickle.loads(pickle.dumps(parts))
    for value, row in zip(y[60:] + 200, X[60:]):
        expected = parts.predict_one(row)
        parts.learn_one(value, X=row)
        assert parts.forecasts_[0, 0] == expected
    np.testing.assert_array_equal(whole.forecasts_[60:, 0], ahead)
    np.testing.assert_array_equal(whole.forecast(5, X=X[:5]), parts.forecast(5, X=X[:5]))
    assert 0.8 < whole.coverage(y[40:] + 200, X=X[40:]) and whole.score(y + 200, X=X) > 0.9


def test_errors_beyond_the_horizon_are_those_of_what_was_known() -> None:
    y, X = driven(600)
    model = StreamingForecaster(lags=4, ahead=6).fit(y[:500], X=X[:500])
    lower, upper = model.forecast_interval(6, X=X[500:506])
    assert np.isfinite(lower).all()
    blind = StreamingForecaster(lags=4, ahead=6).fit(y[:500])
    wide = np.subtract(*blind.forecast_interval(6)[::-1])
    assert ((upper - lower) < 0.3 * wide).all()


def test_what_is_not_there_is_named() -> None:
    pandas = pytest.importorskip("pandas")
    y, X = driven(50)
    frame = pandas.DataFrame(X, columns=["sun", "rain"])
    model = StreamingForecaster(lags=4).fit(y, X=frame)
    for call, text in [
        (lambda: model.forecast(3), r"\[forecast\] X must be given for the 3 rows to come, as in fit \(sun, rain\)"),
        (lambda: model.predict(h=2), "X must be given for the 2 rows to come"),
        (lambda: model.predict(y), r"\[predict\] X must be given for the 50 rows of y"),
        (lambda: model.learn_one(1.0), "X must be given for the row"),
        (lambda: model.learn_one(1.0, X={"sun": 1}), r"X must be of sun, rain but has \['sun'\]"),
        (lambda: model.forecast(2, X=frame[["rain", "sun"]][:2]), "the columns of X must be"),
        (lambda: model.forecast(3, X=frame[:2]), r"X must have 3 rows .* but is of shape \(2, 2\)"),
        (lambda: StreamingForecaster(lags=4).fit(y).forecast(1, X=X[:1]), "X must be None, as in fit"),
        (lambda: StreamingForecaster(lags=4, horizon=2).fit(y, X=X), "horizon must be 1"),
        (lambda: StreamingForecaster(lags=4, differences=[1]).fit(y, X=X), "without differences"),
        (lambda: StreamingForecaster(lags=4, calendar="month").fit(y), "dates as its index"),
        (lambda: StreamingForecaster(lags=4, calendar="month").learn_one(1.0), "begin with fit"),
        (lambda: StreamingForecaster(lags=4, calendar="moon").fit(y), "calendar must be of month, weekday, hour"),
    ]:
        with pytest.raises(ValueError, match=text):
            call()
    frame.loc[7, "rain"] = np.nan
    with pytest.raises(ValueError, match=r"known in every row but is nan in row 7, column 'rain'"):
        StreamingForecaster(lags=4).fit(y, X=frame)
    model.learn_one(y[0], X={"rain": 1.0, "sun": 2.0})
    assert model.n_seen_ == 51


# ---- Indices of pandas ---------------------------------------------------------------------------


def test_an_index_comes_back_and_absent_stamps_are_missing() -> None:
    pandas = pytest.importorskip("pandas")
    days = pandas.date_range("2024-01-01", periods=80, name="day")
    y = pandas.Series(driven(80)[0], index=days, name="sales")
    whole = y.copy()
    whole.iloc[[30, 31, 60]] = np.nan
    gaps = y.drop(days[[30, 31, 60]])
    model = StreamingForecaster(lags=4, ahead=3).fit(gaps)
    expected = StreamingForecaster(lags=4, ahead=3).fit(whole.to_numpy())
    ahead = model.predict(fh=[1, 3])
    assert ahead.index.tolist() == [pandas.Timestamp("2024-03-21"), pandas.Timestamp("2024-03-23")]
    assert ahead.index.name == "day" and ahead.name == "sales"
    np.testing.assert_array_equal(ahead, expected.predict(fh=[1, 3]))
    np.testing.assert_array_equal(
        model.forecasts_[:, 0], np.delete(expected.forecasts_[:, 0], [30, 31, 60])
    )
    lower, upper = model.forecast_interval(3)
    assert lower.index.equals(model.forecast(3).index) and (lower < upper).all()
    later = pandas.Series([1.0, 2.0], index=pandas.to_datetime(["2024-03-22", "2024-03-23"]))
    model.partial_fit(later)
    np.testing.assert_array_equal(
        model.forecast(2), expected.partial_fit([np.nan, 1.0, 2.0]).forecast(2)[:, 0]
    )
    for bad, text in [
        (later, "row 0 .2024-03-22 00:00:00. comes behind what was read before"),
        (later[::-1].shift(9, freq="D"), "must rise from row to row"),
        (pandas.Series([1.0], index=pandas.to_datetime(["2024-03-24 12:00"])), "must come every"),
        (pandas.Series([1.0]), "index of y must be a DatetimeIndex as before but is a RangeIndex"),
    ]:
        with pytest.raises(ValueError, match=text):
            model.partial_fit(bad)
    uneven = pandas.Series(y.to_numpy()[:5], pandas.to_datetime(
        ["2024-01-01", "2024-01-04", "2024-01-11", "2024-01-30", "2024-02-04"]))
    with pytest.raises(ValueError, match="is uneven: resample it, or give the values alone"):
        StreamingForecaster(lags=2).fit(uneven)


@pytest.mark.parametrize("freq", ["MS", "ME", "QS", "B", "h"])
@pytest.mark.parametrize("periods", [False, True])
def test_indices_go_on(freq: str, periods: bool) -> None:
    pandas = pytest.importorskip("pandas")
    if periods:
        name = {"MS": "M", "ME": "M", "QS": "Q", "h": "h"}.get(freq)
        if name is None:
            pytest.skip("no period")
        index = pandas.period_range("2020-01", periods=44, freq=name)
    else:
        index = pandas.date_range("2020-01-01", periods=44, freq=freq)
    frame = pandas.DataFrame({"a": driven(40)[0], "b": driven(40, 1)[0]}, index=index[:40])
    ahead = StreamingForecaster(lags=3).fit(frame.drop(index[17])).forecast(4)
    assert list(ahead.columns) == ["a", "b"]
    assert ahead.index.tolist() == index[40:].tolist()


def test_series_and_frames_of_other_libraries() -> None:
    arrow = pytest.importorskip("pyarrow")
    polars = pytest.importorskip("polars")
    y, X = driven(40)
    expected = StreamingForecaster(lags=4).fit(y, X=X).forecast(2, X=X[:2])
    for frame in (arrow.table, polars.DataFrame):
        known = frame({"sun": X[:, 0], "rain": X[:, 1]})
        for column in (arrow.array(y), polars.Series("y", y)):
            model = StreamingForecaster(lags=4).fit(column, X=known)
            np.testing.assert_array_equal(model.forecast(2, X=known[:2]), expected)
            with pytest.raises(ValueError, match=r"the columns of X must be \['sun', 'rain'\]"):
                model.forecast(2, X=known[:2].select(["rain", "sun"]))
        both = StreamingForecaster(lags=4).fit(frame({"a": y, "b": -y}))
        assert list(both.predict_one()) == ["a", "b"]


def test_other_indices() -> None:
    pandas = pytest.importorskip("pandas")
    y = pandas.Series(driven(40)[0])
    model = StreamingForecaster(lags=3).fit(y[:30]).partial_fit(y[30:])
    assert model.predict(h=2).index.tolist() == [40, 41]
    zoned = y.set_axis(pandas.date_range("2024-03-01", periods=40, tz="Europe/Berlin"))
    ahead = StreamingForecaster(lags=3).fit(zoned).predict(h=2)
    assert ahead.index[1] == pandas.Timestamp("2024-04-11", tz="Europe/Berlin")
    model.learn_one(5.0)
    assert model.predict(h=1).index.tolist() == [41]


def test_calendars() -> None:
    """A week that is nothing but its days, and a holiday season of months."""
    pandas = pytest.importorskip("pandas")
    days = pandas.date_range("2022-01-03", periods=700)
    random = np.random.default_rng(0)
    values = np.array([0, 5, 1, 7, 2, 20, -3])[days.day_of_week] + np.where(days.month == 12, 30, 0)
    y = pandas.Series(50 + values + 0.1 * random.standard_normal(700), index=days)
    model = StreamingForecaster("affine_rls", lags=2, calendar=["weekday", "month"], ahead=14)
    gaps = y[:650].drop(days[[100, 101, 102]])
    model.fit(gaps)
    ahead = model.predict(h=14)
    assert np.abs(ahead - y[650:664]).max() < 2
    blind = StreamingForecaster("affine_rls", lags=2, ahead=14).fit(gaps).predict(h=14)
    assert np.abs(blind - y[650:664]).max() > 8
    parts = StreamingForecaster("affine_rls", lags=2, calendar=["weekday", "month"], ahead=14)
    parts.fit(gaps[:200]).partial_fit(gaps[200:])
    for value in y[650:655]:
        parts.learn_one(value)
    whole = model.partial_fit(y[650:655])
    np.testing.assert_array_equal(parts.forecast_interval(14), whole.forecast_interval(14))


# ---- Panels --------------------------------------------------------------------------------------


def panel(rows: int) -> dict[str, Any]:
    y, X = driven(rows)
    days = np.datetime64("2024-01-01") + np.arange(rows)
    return {
        "unique_id": np.repeat(["a", "b"], rows),
        "ds": np.tile(days, 2),
        "y": np.concatenate([y, 3 * y]),
        "sun": np.tile(X[:, 0], 2),
        "rain": np.tile(X[:, 1], 2),
    }


def test_a_panel_has_exogenous_columns_and_calendars() -> None:
    whole = panel(120)
    first = {name: column[whole["ds"] < np.datetime64("2024-04-10")] for name, column in whole.items()}
    later = {name: column[whole["ds"] >= np.datetime64("2024-04-10")] for name, column in whole.items()}
    model = StreamingForecaster(lags=4, calendar="weekday", ahead=5)
    fitted = model.fit_panel(first, X=["sun", "rain"])
    future = {name: column for name, column in later.items() if name != "y"}
    ahead = fitted.forecast(5, 0.9, X=future)
    y, X = driven(120)
    rows = len(first["y"]) // 2
    plain = StreamingForecaster(lags=4).fit_panel(first, X=["sun", "rain"]).forecast(5, X=future)
    alone = StreamingForecaster(lags=4).fit(y[:rows], X=X[:rows]).forecast(5, X=X[rows : rows + 5])
    np.testing.assert_array_equal(plain["StreamingForecaster"][:5], alone[:, 0])
    assert np.abs(ahead["StreamingForecaster"][:5] - y[rows : rows + 5]).max() < 5
    assert np.isfinite(ahead["StreamingForecaster-lo-90"][::5]).all()
    with pytest.raises(ValueError, match="X must be a table of unique_id, ds, sun, rain, as fit_panel's"):
        fitted.forecast(5)
    with pytest.raises(ValueError, match="X must have the rows to come of 'a' but has none of 2024-04-30"):
        fitted.forecast(50, X=future)
    with pytest.raises(ValueError, match=r"unique_id, ds, y, sun and no others but has .*'rain'"):
        model.fit_panel(first, X=["sun"])
    first["rain"] = first["rain"].copy()
    first["rain"][3] = np.nan
    with pytest.raises(ValueError, match="rain must be known in every row but is nan in row 3"):
        model.fit_panel(first, X=["sun", "rain"])
