"""What is no good table: an answer with its reason, or an error that names what is wrong and where."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from ttr.sklearn import StreamingForecaster, StreamingRegressor

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((40, 2))
Y = X @ [1.0, 2.0] + 3
SERIES = np.sin(np.arange(60.0) / 3)


def panel(**changes: Any) -> dict[str, Any]:
    table = {"unique_id": np.repeat(["a", "b"], 30), "ds": np.tile(np.arange(30), 2), "y": SERIES}
    return {**table, **changes}


def with_value(array: NDArray[Any], place: Any, value: Any) -> NDArray[Any]:
    changed = array.copy()
    changed[place] = value
    return changed


# ---- An answer -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "recipe",
    ["affine_rls{importance: input, ridge: 0}", "affine_rls", "affine_rls{factor: qr, ridge: 0}"],
)
def test_constant_and_repeated_columns(recipe: str) -> None:
    """The coefficients of least norm: halves of a column that stands twice, 0 of a constant one."""
    table = np.column_stack([X[:, 0], X[:, 0], np.full(40, 7.0)])
    y = 3 * X[:, 0] + 1
    model = StreamingRegressor(recipe).fit(table, y)
    np.testing.assert_allclose(model.coef_, [1.5, 1.5, 0], atol=1e-3)
    np.testing.assert_allclose(model.predict(table), y, atol=1e-3)


def test_a_constant_series() -> None:
    model = StreamingForecaster(lags=3).fit(np.full(30, 7.3))
    assert (model.forecast(5) == 7.3).all()


def test_one_row() -> None:
    model = StreamingRegressor().partial_fit(X[:1], Y[:1])
    assert model.predict(X[:1])[0] == pytest.approx(Y[0])
    assert np.isnan(model.coef_stderr_).all()
    with pytest.raises(ValueError, match="at least lags \\+ horizon = 17 samples but has 1 sample "):
        StreamingForecaster().fit([1.0])


@pytest.mark.parametrize("options", [{}, {"window": 5}, {"half_life": 9}])
def test_one_row_of_everything(options: dict[str, Any]) -> None:
    model = StreamingRegressor(**options).fit(X[:1], Y[:1])
    assert model.predict(X[:1])[0] == pytest.approx(Y[0]) and model.n_seen_ == 1
    assert np.isnan(model.coef_stderr_).all() and np.isnan(model.residual_variance_)
    assert np.isnan(model.predict_interval(X[:1])).all()


@pytest.mark.parametrize("nulls", ["drop", "zero", "wait"])
def test_a_regressor_of_nothing(nulls: str) -> None:
    """Nothing is known, and that is the answer; what comes later is learned."""
    missing = np.full(40, np.nan)
    model = StreamingRegressor(nulls=nulls).fit(X, missing)
    np.testing.assert_array_equal(model.predict(X), np.zeros(40))
    assert np.isnan(model.coef_stderr_).all()
    model.partial_fit(X, Y)
    np.testing.assert_allclose(model.coef_, StreamingRegressor().fit(X, Y).coef_, rtol=1e-12)


def test_weights_of_zero() -> None:
    """Such rows do not count, and a table of nothing else is refused, as scikit-learn wants it."""
    weights = with_value(np.ones(40), slice(0, 20), 0)
    model = StreamingRegressor().fit(with_value(X, 0, 1e6), Y, sample_weight=weights)
    np.testing.assert_allclose(model.coef_, StreamingRegressor().fit(X[20:], Y[20:]).coef_, rtol=1e-9)
    with pytest.raises(ValueError, match="non-zero number"):
        model.partial_fit(X, Y, sample_weight=np.zeros(40))


def test_all_missing() -> None:
    with pytest.raises(ValueError, match="but has 0 samples of known values"):
        StreamingForecaster(lags=3).fit(np.full(30, np.nan))
    ahead = StreamingForecaster(lags=3).fit_panel(
        panel(y=with_value(SERIES, slice(30, 60), np.nan))
    )
    assert ahead.reasons_ == {"b": "3 rows from the first value on are needed, and 0 are there"}
    assert np.isnan(ahead.forecast(2)["StreamingForecaster"]).tolist() == [False, False, True, True]


def test_series_of_no_row_and_of_one() -> None:
    """A series without rows is not in a long table; an empty table has none."""
    rows = np.r_[0:31]
    table = {name: column[rows] for name, column in panel().items()}
    fitted = StreamingForecaster(lags=3).fit_panel(table)
    assert fitted.reasons_ == {"b": "3 rows from the first value on are needed, and 1 are there"}
    with pytest.raises(ValueError, match="columns must be of one length, 1 or more"):
        StreamingForecaster(lags=3).fit_panel({name: column[:0] for name, column in panel().items()})


def test_time_that_runs_backwards() -> None:
    """Rows of a table may stand in any order; what comes later must not lie before."""
    back = {name: column[::-1] for name, column in panel().items()}
    forward = StreamingForecaster(lags=3).fit_panel(panel())
    model = StreamingForecaster(lags=3).fit_panel(back)
    for name in ("a", "b"):
        np.testing.assert_array_equal(
            model.forecasters_[name].forecast(), forward.forecasters_[name].forecast()
        )
    late = {"unique_id": ["a"], "ds": [10], "y": [1.0]}
    with pytest.raises(ValueError, match=r"ds of 'a' .* row 0 \(10\) comes behind what was learned"):
        forward.partial_fit(late)


# ---- An error that says where --------------------------------------------------------------------


def test_rows_of_a_series_are_named() -> None:
    series = np.sin(np.arange(20.0))
    for value, message in ((np.inf, "finite but is infinity"), ("much", "numbers but is 'much'")):
        bad = with_value(series.astype(object), 7, value)
        with pytest.raises(ValueError, match=rf"\[fit\] y must be {message} in row 7, column 0"):
            StreamingForecaster(lags=3).fit(bad[:, None])
        model = StreamingForecaster(lags=3).fit(series)
        with pytest.raises(ValueError, match=rf"\[partial_fit\] y must be {message} in row 7"):
            model.partial_fit(bad)
        assert model.n_seen_ == 20
    with pytest.raises(ValueError, match=r"\[fit\] X must be numbers but is 'dry' in row 2"):
        StreamingForecaster(lags=3).fit(series, X=with_value(series.astype(object), 2, "dry"))


@pytest.mark.parametrize(
    "weight, message", [(-1, "is -1.0 in row 3 .Negative"), (np.nan, "is nan in row 3 .NaN")]
)
def test_weights(weight: float, message: str) -> None:
    with pytest.raises(ValueError, match=rf"\[fit\] sample_weight must be 0 or more and finite but {message}"):
        StreamingRegressor().fit(X, Y, sample_weight=with_value(np.ones(40), 3, weight))


@pytest.mark.parametrize("nulls", ["raise", "drop", "zero", "wait"])
@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_infinities(value: float, nulls: str) -> None:
    model = StreamingRegressor(nulls=nulls).fit(X, Y)
    with pytest.raises(ValueError, match=r"\[fit\] X must be finite but is infinity in row 3, column 1"):
        StreamingRegressor(nulls=nulls).fit(with_value(X, (3, 1), value), Y)
    with pytest.raises(ValueError, match=r"y must be finite but is infinity in row 3$"):
        model.partial_fit(X, with_value(Y, 3, value))
    with pytest.raises(ValueError, match=r"\[predict\] X must be finite but is infinity in row 3, column 1"):
        model.predict(with_value(X, (3, 1), value))
    with pytest.raises(ValueError, match=r"x\[0\] must be finite but is"):
        model.learn_one({0: value, 1: 0.0}, 1.0)
    with pytest.raises(ValueError, match="infinity"):
        StreamingForecaster(lags=3).fit(with_value(SERIES, 3, value))
    with pytest.raises(ValueError, match="y of 'b' must be finite or missing but is infinite in row 33"):
        StreamingForecaster(lags=3).fit_panel(panel(y=with_value(SERIES, 33, value)))
    assert model.n_seen_ == 40


def test_missing_numbers() -> None:
    with pytest.raises(ValueError, match=r"X must be finite but is NaN in row 3, column 1; nulls='drop'"):
        StreamingRegressor().fit(with_value(X, (3, 1), np.nan), Y)
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"height": X[:, 0], "age": with_value(X[:, 1], 3, np.nan)})
    with pytest.raises(ValueError, match=r"is NaN in row 3, column 'age'"):
        StreamingRegressor().fit(frame, Y)


def test_words() -> None:
    words = with_value(X.astype(object), (3, 1), "tall")
    with pytest.raises(ValueError, match=r"\[fit\] X must be numbers but is 'tall' in row 3, column 1"):
        StreamingRegressor().fit(words, Y)
    with pytest.raises(ValueError, match=r"\[predict\] X must be numbers but is 'tall' in row 3, column 1"):
        StreamingRegressor().fit(X, Y).predict(words)
    with pytest.raises(ValueError, match=r"\[fit\] y must be numbers but is 'old' in row 2"):
        StreamingRegressor().fit(X, with_value(Y.astype(object), 2, "old"))
    with pytest.raises(ValueError, match="high"):
        StreamingForecaster(lags=3).fit(with_value(SERIES.astype(object), 3, "high"))
    with pytest.raises(ValueError, match="y must be numbers"):
        StreamingForecaster(lags=3).fit_panel(panel(y=np.full(60, "high")))
    with pytest.raises(ValueError, match=r"x\['height'\] must be a number but is 'tall'"):
        StreamingRegressor().learn_one({"height": "tall"}, 1.0)  # type: ignore[dict-item]


def test_duplicated_stamps() -> None:
    twice = with_value(panel()["ds"], 33, 2)
    with pytest.raises(ValueError, match="rows 32 and 33 are both of 2"):
        StreamingForecaster(lags=3).fit_panel(panel(ds=twice))
    with pytest.raises(ValueError, match="rows 0 and 30 are both of 0"):
        StreamingForecaster(lags=3).fit_panel(panel(unique_id=np.full(60, "a")))
