"""Windows and half-lives by a column of times, rows in which something is missing, paths of coefficients."""

from __future__ import annotations

import datetime
import pickle
from typing import Any

import numpy as np
import pytest
from batch_fits import Array, fitted
from ttr.sklearn import StreamingRegressor

EXACT = "affine_rls{factor: qr, ridge: 0, importance: input}"


def drawn(rows: int, seed: int = 0) -> tuple[Array, Array, Array]:
    """Times at irregular distances, some of them twice; coefficients that walk."""
    random = np.random.default_rng(seed)
    times = np.cumsum(np.round(random.exponential(1.0, rows), 1))
    x = random.standard_normal((rows, 2))
    beta = np.cumsum(0.2 * random.standard_normal((rows, 2)), axis=0)
    return times, x, np.sum(x * beta, axis=1) + 0.3 * random.standard_normal(rows) + 5


def table(times: Array, x: Array) -> Array:
    return np.column_stack([x[:, 0], times, x[:, 1]])


# ---- Windows of time -----------------------------------------------------------------------------


@pytest.mark.parametrize("window", ["15s", datetime.timedelta(seconds=15), np.timedelta64(15, "s")])
def test_a_window_of_time_after_every_part(window: Any) -> None:
    times, x, y = drawn(300)
    model = StreamingRegressor(EXACT, window=window, time=1)
    random = np.random.default_rng(1)
    end = 0
    while end < 280:
        begin, end = end, end + int(random.choice([1, 1, 1, 3, 20]))
        model.partial_fit(table(times, x)[begin:end], y[begin:end])
        now = np.flatnonzero(times[:end] > times[end - 1] - 15)
        if len(now) > 4:
            want = fitted(x[now], y[now, None], np.ones(len(now)))
            np.testing.assert_allclose(model.coef_, want.coefficients[0], rtol=1e-9)
            np.testing.assert_allclose(model.coef_stderr_, want.errors[0], rtol=1e-9)
    assert model.memory_.own.held == len(now) and model.n_features_in_ == 2


def test_a_gap_empties_a_window() -> None:
    times, x, y = drawn(60)
    times[40:] += 1e6
    model = StreamingRegressor(EXACT, window="1h", time=1)
    for i in range(60):
        model.partial_fit(table(times, x)[i : i + 1], y[i : i + 1])
    want = fitted(x[40:], y[40:, None], np.ones(20))
    np.testing.assert_allclose(model.coef_, want.coefficients[0], rtol=1e-10)


def test_rows_of_names_have_a_time() -> None:
    times, x, y = drawn(80)
    start = datetime.datetime(2024, 3, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))
    by_date = StreamingRegressor(EXACT, window="15s", time="at")
    by_number = StreamingRegressor(EXACT, window="15s", time="at")
    for t, row, value in zip(times, x.tolist(), y.tolist()):
        numbers = dict(zip("ab", row))
        by_date.learn_one({"at": start + datetime.timedelta(seconds=t), **numbers}, value)
        by_number.learn_one({**numbers, "at": t}, value)
    assert list(by_number.feature_names_in_) == ["a", "b"]
    np.testing.assert_allclose(by_date.coef_, by_number.coef_, rtol=1e-9)
    now = times > times[-1] - 15
    want = fitted(x[now], y[now, None], np.ones(now.sum()))
    np.testing.assert_allclose(by_number.coef_, want.coefficients[0], rtol=1e-10)
    row = {"a": 1.0, "b": 2.0, "at": times[-1]}
    assert by_number.predict_one(row) == pytest.approx(by_number.predict_one({"a": 1.0, "b": 2.0}))


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_tables_have_a_column_of_times(library: str) -> None:
    frames = pytest.importorskip(library)
    times, x, y = drawn(90)
    dates = np.datetime64("2024-01-01") + np.round(1e3 * times).astype("m8[ms]")
    columns = {"a": x[:, 0], "at": dates, "b": x[:, 1]}
    frame = frames.table(columns) if library == "pyarrow" else frames.DataFrame(columns)
    model = StreamingRegressor(EXACT, window="20s", time="at").fit(frame, y)
    now = times > times[-1] - 20
    want = fitted(x[now], y[now, None], np.ones(now.sum()))
    np.testing.assert_allclose(model.coef_, want.coefficients[0], rtol=1e-10)
    assert model.predict(frame).shape == (90,)


# ---- Half-lives ----------------------------------------------------------------------------------


def test_a_half_life_weighs_rows_by_their_age() -> None:
    times, x, y = drawn(200)
    model = StreamingRegressor("affine_rls{factor: qr, ridge: 0}", half_life="20s", time=1)
    model.fit(table(times, x)[:150], y[:150])
    for i in range(150, 200):
        model.partial_fit(table(times, x)[i : i + 1], y[i : i + 1])
    g = 0.5 ** ((times[-1] - times) / 20)
    root = np.sqrt(g)[:, None]
    design = np.column_stack([x, np.ones(200)])
    want = np.linalg.lstsq(root * design, root[:, 0] * y, rcond=None)[0]
    np.testing.assert_allclose([*model.coef_, model.intercept_], want, rtol=1e-11)
    # The textbook's variance, of n_eff rows.
    rss, n_eff = np.sum(g * (y - design @ want) ** 2), g.sum() ** 2 / np.sum(g * g)
    variance = rss / (g.sum() * (1 - 3 / n_eff))
    assert model.residual_variance_ == pytest.approx(variance, rel=1e-10)


def test_a_half_life_of_rows() -> None:
    _, x, y = drawn(120)
    model = StreamingRegressor("affine_rls{factor: qr, ridge: 0}", half_life=30).fit(x, y)
    decay = 2 ** (-1 / 30)
    other = StreamingRegressor(f"affine_rls{{factor: qr, ridge: 0, decay: {decay!r}}}").fit(x, y)
    np.testing.assert_allclose(model.coef_, other.coef_, rtol=1e-12)
    np.testing.assert_allclose(model.coef_stderr_, other.coef_stderr_, rtol=1e-12)


def test_parts_with_a_half_life_are_merged_by_their_times() -> None:
    times, x, y = drawn(150)
    make = lambda: StreamingRegressor("affine_rls{factor: qr}", half_life="20s", time=1)
    one = make().fit(table(times, x), y)
    parts = [make().fit(table(times, x)[i::3], y[i::3]) for i in range(3)]
    for both in (sum(parts), sum(parts[::-1])):
        np.testing.assert_allclose(both.coef_, one.coef_, rtol=1e-10)
        np.testing.assert_allclose(both.coef_stderr_, one.coef_stderr_, rtol=1e-10)
        assert both.n_seen_ == 150


@pytest.mark.parametrize("decay", [{"half_life": 50}, {"half_life": "50s", "time": 2}])
def test_what_nothing_excites_does_not_wind_up(decay: dict[str, Any]) -> None:
    """10^5 rows in which one regressor never moves: nothing overflows, and the first rows in which it
    does are answered by what they say, as by a regressor that has just begun."""
    random = np.random.default_rng(3)
    rows = 100_000
    x = np.column_stack([random.standard_normal(rows), np.full(rows, 2.0), np.arange(rows)])
    y = 3 * x[:, 0] + 1 + 0.1 * random.standard_normal(rows)
    columns = slice(None) if "time" in decay else slice(0, 2)
    model = StreamingRegressor("affine_rls{factor: qr}", **decay).fit(x[:, columns], y)
    assert all(np.isfinite(array).all() for array in model.memory_.state.values())
    assert model.coef_ == pytest.approx([3, 0], abs=0.1)
    away = np.array([[0.0, 100.0, rows]])[:, columns]
    assert model.predict(away)[0] == pytest.approx(1, abs=0.2)  # not 10^300 times a rounding error
    # One row that is off by noise of .1 where the regressor moves by 10^-4: no slope of 10^3.
    model.partial_fit(np.array([[0.0, 2.0001, rows]])[:, columns], [1.1])
    assert abs(model.coef_[1]) < 0.1
    for i in range(200):
        row = np.array([[random.standard_normal(), random.standard_normal(), rows + i]])
        model.partial_fit(row[:, columns], [3 * row[0, 0] - 2 * row[0, 1] + 5])
    assert model.coef_ == pytest.approx([3, -2], abs=0.1)


# ---- What is missing -----------------------------------------------------------------------------


def holes(rows: int) -> tuple[Array, Array]:
    _, x, y = drawn(rows)
    x[5::11, 0] = np.nan
    y[::13] = np.nan
    return x, y


@pytest.mark.parametrize("window", [None, 25])
@pytest.mark.parametrize("nulls", ["drop", "zero", "wait"])
def test_missing_values(nulls: str, window: int | None) -> None:
    x, y = holes(120)
    model = StreamingRegressor(EXACT, nulls=nulls, window=window)
    model.fit(x[:40], y[:40])
    for row, value in zip(x[40:].tolist(), y[40:].tolist()):
        model.learn_one(dict(enumerate(row)), value)
    kept, weights = x.copy(), np.ones(120)
    if nulls == "zero":
        kept = np.nan_to_num(x, nan=0.0)
    weights[np.isnan(kept).any(axis=1) | np.isnan(y)] = 0
    rows = np.flatnonzero(weights) if nulls == "drop" else np.arange(120)
    rows = rows[-window:] if window else rows
    rows = rows[weights[rows] > 0]
    want = fitted(kept[rows], y[rows, None], np.ones(len(rows)))
    np.testing.assert_allclose(model.coef_, want.coefficients[0], rtol=1e-10)
    predicted = model.predict(x)
    assert (np.isnan(predicted) == ((nulls != "zero") & np.isnan(x).any(axis=1))).all()
    one = model.predict_one({0: None, 1: 1.0})  # type: ignore[dict-item]
    assert np.isnan(one) if nulls != "zero" else one == pytest.approx(model.predict_one({1: 1.0}))


def test_time_goes_on_while_rows_wait() -> None:
    """Fading does not stop for a row in which something is missing, where one that is dropped never was."""
    _, x, y = drawn(60)
    y[50:] = np.nan
    recipe = "affine_rls{factor: qr, decay: 0.9, importance: input}"
    waits = StreamingRegressor(recipe, nulls="wait").fit(x, y)
    drops = StreamingRegressor(recipe, nulls="drop").fit(x, y)
    assert waits.memory_.own.fit()["sums"][0] == pytest.approx(
        0.9**10 * drops.memory_.own.fit()["sums"][0]
    )
    np.testing.assert_allclose(waits.coef_, drops.coef_, rtol=1e-2)


# ---- Paths ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [None, 20])
def test_a_path_has_the_fit_behind_every_row(window: int | None) -> None:
    _, x, y = drawn(90)
    model = StreamingRegressor(EXACT, window=window)
    path = model.path(x[:50], y[:50])
    more = model.path(x[50:], y[50:])
    coef = np.concatenate([path.coef, more.coef])
    intercept = np.concatenate([path.intercept, more.intercept])
    predictions = np.concatenate([path.predictions, more.predictions])
    assert coef.shape == (90, 2) and intercept.shape == predictions.shape == (90,)
    for i in range(10, 90):
        now = slice(max(0, i + 1 - window) if window else 0, i + 1)
        want = fitted(x[now], y[now, None], np.ones(len(x[now])))
        np.testing.assert_allclose(coef[i], want.coefficients[0], rtol=1e-9)
        assert predictions[i] == pytest.approx(x[i] @ coef[i - 1] + intercept[i - 1], rel=1e-9)
    np.testing.assert_allclose(model.coef_, coef[-1], rtol=1e-12)


def test_a_path_of_several_outputs() -> None:
    _, x, y = drawn(40)
    both = np.column_stack([y, 2 * y])
    path = StreamingRegressor(EXACT).path(x, both)
    assert path.coef.shape == (40, 2, 2) and path.intercept.shape == path.predictions.shape == (40, 2)
    np.testing.assert_allclose(path.coef[9:, 1], 2 * path.coef[9:, 0], rtol=1e-9)


# ---- Rows alone, and copies ----------------------------------------------------------------------


def test_copies_with_times_go_on() -> None:
    times, x, y = drawn(100)
    model = StreamingRegressor(EXACT, window="25s", half_life="9s", time=1)
    model.fit(table(times, x)[:60], y[:60])
    other = pickle.loads(pickle.dumps(model))
    for one in (model, other):
        one.partial_fit(table(times, x)[60:], y[60:])
    np.testing.assert_array_equal(model.coef_, other.coef_)
    np.testing.assert_array_equal(model.coef_stderr_, other.coef_stderr_)


# ---- Refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, text",
    [
        ({"window": "7d"}, r"time must name a column for window='7d' but is None"),
        ({"half_life": "7d"}, r"time must name a column for half_life='7d' but is None"),
        ({"window": "7 parsecs", "time": 1}, r"window must be such as '6h', '7d', '15m' but is"),
        ({"half_life": 0, "time": 1}, r"half_life must be above 0 and finite but is 0"),
        ({"half_life": True, "time": 1}, r"half_life must be a number or such as '7d' but is True"),
        ({"time": 1}, r"time must be None but is given"),
        ({"window": 9, "time": 1}, r"time must be None but is given"),
        ({"half_life": 3, "recipe": "rls{decay: 0.9}"}, r"recipe must not forget where there is a half"),
        ({"half_life": 3, "recipe": "nlms"}, r"recipe must solve least squares in x itself"),
        ({"nulls": "skip"}, r"nulls must be of raise, drop, zero, wait but is 'skip'"),
    ],
)
def test_options_that_mean_nothing(options: dict[str, Any], text: str) -> None:
    times, x, y = drawn(20)
    with pytest.raises(ValueError, match=text):
        StreamingRegressor(**options).fit(table(times, x), y)


def test_times_that_are_none() -> None:
    times, x, y = drawn(20)
    good = table(times, x)
    model = StreamingRegressor(window="9s", time=1).fit(good, y)
    before = model.coef_
    back = good.copy()
    back[:, 1] += 100
    back[7, 1] = back[5, 1]
    with pytest.raises(ValueError, match="times must be .* or later, as time goes on, but is .* in row 7"):
        model.partial_fit(back, y)
    with pytest.raises(ValueError, match="times must be .* or later, as time goes on, but is .* in row 0"):
        model.partial_fit(good, y)
    back[3, 1] = np.nan
    with pytest.raises(ValueError, match="times must be finite but is nan in row 3"):
        model.partial_fit(back, y)
    for row, text in [
        ({0: 1.0, 2: 1.0}, r"x must have the time 1 but has \[0, 2\]"),
        ({0: 1.0, 1: "noon", 2: 1.0}, "times must be numbers or dates but are 'noon' in row 0"),
        ({0: 1.0, 1: 0.0, 2: 1.0}, "times must be .* or later"),
    ]:
        with pytest.raises(ValueError, match=text):
            model.learn_one(row, 1.0)  # type: ignore[arg-type]
    np.testing.assert_array_equal(model.coef_, before)
    with pytest.raises(ValueError, match=r"X must have the column 'at' but is of shape"):
        StreamingRegressor(window="9s", time="at").fit(good, y)
    dates = np.array(["2024-01-01", "NaT"], "M8[D]")
    with pytest.raises(ValueError, match="times must be known but are missing in row 1"):
        frame = {"a": [1.0, 2.0], "at": dates}
        pandas = pytest.importorskip("pandas")
        StreamingRegressor(window="9s", time="at").fit(pandas.DataFrame(frame), [1.0, 2.0])


def test_equal_times_are_one_time() -> None:
    times, x, y = drawn(40)
    times[10:20] = times[10]
    model = StreamingRegressor(EXACT, window="1000s", time=1).fit(table(times, x), y)
    want = fitted(x, y[:, None], np.ones(40))
    np.testing.assert_allclose(model.coef_, want.coefficients[0], rtol=1e-11)


def test_rows_of_a_window_leave_by_themselves() -> None:
    times, x, y = drawn(40)
    for options in ({"window": "9s"}, {"half_life": "9s"}):
        model = StreamingRegressor(EXACT, time=1, **options).fit(table(times, x), y)
        with pytest.raises(ValueError, match=r"\[unlearn\] (window|time) must be None but is"):
            model.unlearn(table(times, x)[-1:], y[-1:])
