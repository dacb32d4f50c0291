"""What is given as rows: labels are labels, and what is no row is refused by its name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from ttr.sklearn import StreamingForecaster, StreamingRegressor

Array = NDArray[np.float64]
SERIES = np.sin(np.arange(100.0) / 5)
TABLE = np.random.default_rng(0).standard_normal((30, 2))
TARGET = 2 * TABLE[:, 0] - TABLE[:, 1]


class Frame:
    """What pandas and polars have in common: an array with labels."""

    def __init__(self, values: Array, columns: list[Any]) -> None:
        self.values, self.columns, self.shape = values, columns, values.shape

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        return self.values.astype(dtype or float)

    def __len__(self) -> int:
        return len(self.values)


# ---- Labels --------------------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [[1, 2], [2, 1], [(0, "a"), (0, "b")]])
def test_labels_of_a_regressor_are_no_positions(labels: list[Any]) -> None:
    model = StreamingRegressor().fit(Frame(TABLE, labels), TARGET)
    before = model.predict_one(dict(zip(labels, [1.0, 0.0])))
    assert before == pytest.approx(2, rel=1e-2)
    model.learn_one(dict(zip(labels, [1.0, 0.0])), 2.0)
    assert model.n_features_in_ == 2
    np.testing.assert_allclose(model.coef_, [2, -1], rtol=1e-2)


@pytest.mark.parametrize("labels", [[2, 1], [1, 3], ["a", "b"]])
def test_other_labels_are_refused(labels: list[Any]) -> None:
    other, table = Frame(TABLE, labels), Frame(TABLE, [1, 2])
    regressor = StreamingRegressor().fit(table, TARGET)
    forecaster = StreamingForecaster(lags=2).fit(table)
    calls: list[Any] = [
        lambda: regressor.predict(other),
        lambda: regressor.partial_fit(other, TARGET),
        lambda: forecaster.predict(other),
        lambda: forecaster.partial_fit(other),
        lambda: forecaster.score(other),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"columns of X must be \[1, 2\], in this order, but are"):
            call()
    assert regressor.n_seen_ == forecaster.n_seen_ == 30


def test_labels_of_the_first_row_are_those_of_tables_to_come() -> None:
    regressor, forecaster = StreamingRegressor(), StreamingForecaster(lags=2)
    regressor.learn_one({2: 0.0, 1: 1.0}, 2.0)
    forecaster.learn_one({2: 0.0, 1: 1.0})
    with pytest.raises(ValueError, match=r"must be \[2, 1\], in this order, but are \[1, 2\]"):
        regressor.partial_fit(Frame(TABLE, [1, 2]), TARGET)
    with pytest.raises(ValueError, match=r"must be \[2, 1\], in this order, but are \[1, 2\]"):
        forecaster.partial_fit(Frame(TABLE, [1, 2]))
    forecaster.partial_fit(Frame(TABLE, [2, 1]))


@pytest.mark.parametrize("labels", [[1, 2], ["a", "b"]])
def test_labels_of_a_forecaster_are_no_positions(labels: list[Any]) -> None:
    model = StreamingForecaster(lags=2).fit(Frame(TABLE, labels))
    named = model.predict_one()
    assert isinstance(named, dict) and list(named) == labels
    np.testing.assert_array_equal(list(named.values()), model.forecast()[0])
    with pytest.raises(ValueError, match=r"y must be of the columns .* but has 0"):
        model.learn_one({0: 1.0, 1: 1.0})
    model.learn_one({labels[1]: 5.0, labels[0]: 1.0})
    expected = StreamingForecaster(lags=2).fit(np.append(TABLE, [[1.0, 5.0]], 0))
    np.testing.assert_array_equal(model.forecast(), expected.forecast())


# ---- Single rows ---------------------------------------------------------------------------------


@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize(
    "row, text",
    [
        ({"a": "red"}, r"y\['a'\] must be a number but is 'red'"),
        ({"a": None}, r"y\['a'\] must be a number but is None"),
        (None, "y must be a number but is None"),
        ("red", "y must be a number but is 'red'"),
        ([1.0, 2.0], "y must be a number but is"),
    ],
)
def test_what_is_no_row_of_a_forecaster(row: Any, text: str, started: bool) -> None:
    model = StreamingForecaster(lags=2)
    if started:
        model.learn_one({"a": 1.0})
    with pytest.raises(ValueError, match=rf"\[learn_one\] {text}"):
        model.learn_one(row)
    assert hasattr(model, "reader_") == started


def test_a_first_row_has_a_column() -> None:
    with pytest.raises(ValueError, match=r"\[learn_one\] y must have a column in the first row"):
        StreamingForecaster().learn_one({})


@pytest.mark.parametrize("started", [False, True])
def test_what_is_no_row_to_predict(started: bool) -> None:
    model = StreamingRegressor()
    if started:
        model.learn_one({"a": 1.0}, 1.0)
    with pytest.raises(ValueError, match=r"\[predict_one\] x\['a'\] must be a number but is 'red'"):
        model.predict_one({"a": "red"})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match=r"\[predict_one\] x must be {feature: number} but is NoneType"):
        model.predict_one(None)  # type: ignore[arg-type]


# ---- What is no series ---------------------------------------------------------------------------

DAYS = np.arange("2020-01", "2020-04", dtype="datetime64[D]")
TIMES: list[Any] = [np.arange(100.0), np.arange(100), np.arange(100.0)[:, None], np.exp(SERIES).cumsum(), None]


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("method", ["fit", "partial_fit", "score"])
def test_times_are_no_series(method: str, times: Any) -> None:
    model = StreamingForecaster(lags=4).fit(SERIES)
    with pytest.raises(ValueError, match=rf"\[{method}\] y must be the series itself, .*call {method}\(series\)"):
        getattr(model, method)(times, SERIES)
    assert model.n_seen_ == 100


def test_dates_are_no_series() -> None:
    with pytest.raises(ValueError, match=r"y must be the series itself, .* but is dates: call fit\(series\)"):
        StreamingForecaster(lags=4).fit(DAYS)


def test_a_rising_series_is_one() -> None:
    rising = np.arange(50.0)
    StreamingForecaster(lags=4).fit(rising)
    for y in (rising, SERIES):  # as scikit-learn's own tools call it
        with pytest.warns(UserWarning, match="what stands behind y is not read"):
            StreamingForecaster(lags=4).fit(y, rising)
    with pytest.raises(ValueError, match=r"must be given by name, fit\(y, X=...\)"):
        StreamingForecaster(lags=4).fit(SERIES, np.zeros((100, 2)))


@pytest.mark.parametrize("steps", [[1, 2, 3], range(1, 4), np.arange(1, 4), [1, 3], 3, DAYS[:3]])
def test_steps_ahead_are_no_rows(steps: Any) -> None:
    model = StreamingForecaster(lags=4).fit(SERIES)
    with pytest.raises(ValueError, match=r"\[predict\] y must be the rows that follow .* predict\((h=3|fh=.*3\])"):
        model.predict(steps)
    assert model.predict([1.0, 2.0, 3.0]).shape == model.predict([3, 1, 2]).shape == (3,)


@pytest.mark.parametrize("steps", [[1, 2, 3], 2.5, "3", True, 0])
def test_steps_are_a_whole_number(steps: Any) -> None:
    model = StreamingForecaster(lags=4).fit(SERIES)
    with pytest.raises(ValueError, match=r"\[forecast\] steps must be 1 or more, a whole number, but is"):
        model.forecast(steps)


# ---- Too few rows --------------------------------------------------------------------------------


def test_too_few_rows_are_counted() -> None:
    with pytest.raises(ValueError, match=r"\[fit\] y must have at least lags \+ horizon = 53 samples but has 20"):
        StreamingForecaster(lags=52).fit(np.arange(20.0))
    missing = np.append([np.nan] * 60, SERIES[:7])
    with pytest.raises(ValueError, match=r"lags \+ horizon = 8 samples but has 7 samples of known values"):
        StreamingForecaster(lags=5, horizon=3).fit(missing)
    StreamingForecaster(lags=5, horizon=2).fit(missing)


@pytest.mark.parametrize("horizon", [1, 3])
def test_a_stream_begins_with_too_few_rows(horizon: int) -> None:
    model = StreamingForecaster(lags=4, horizon=horizon)
    needed = 4 + horizon - 1
    for rows, number in enumerate(SERIES[:needed]):
        if rows:
            for call in (model.forecast, model.forecast_interval):
                with pytest.raises(ValueError, match=f"rows read must be at least {needed}, .* but are {rows}:"):
                    call()
        assert np.isnan(model.predict_one())
        model.learn_one(number)
    assert np.isfinite(model.forecast(horizon)).all() and np.isfinite(model.predict_one())


@pytest.mark.parametrize("lags", [2.5, "2", True, 0, None])
def test_lags_are_a_whole_number(lags: Any) -> None:
    with pytest.raises(ValueError, match="lags must be 1 or more, a whole number, but is"):
        StreamingForecaster(lags=lags).fit(SERIES)
