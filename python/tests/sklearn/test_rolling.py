"""`StreamingRegressor(window=n)`: after every row a batch fit of the last n."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from batch_fits import Array, fitted
from estimator_names import named
from sklearn.base import clone
from sklearn.utils.estimator_checks import estimator_checks_generator
from ttr.sklearn import StreamingRegressor

EXACT = "affine_rls{factor: qr, ridge: 0, importance: input}"
RIDGE = "affine_rls{factor: qr, importance: input}"
FADING = "affine_rls{ridge: 0.5, decay: 0.97, importance: input}"
CONSTANT = "affine_rls{factor: qr, ridge: 0.5, ridge_kind: constant, importance: input}"
RECIPES = [(EXACT, 0, 1.0), (RIDGE, 1e-3, 1.0), (CONSTANT, 0.5, 1.0), (FADING, 0.5, 0.97)]


@pytest.mark.parametrize(
    "estimator, check", list(estimator_checks_generator(StreamingRegressor(window=50))), ids=named
)
def test_the_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


def drawn(rows: int, seed: int = 0, offset: float = 0.0) -> tuple[Array, Array, Array]:
    """Coefficients that walk: a window that held other rows would show."""
    random = np.random.default_rng(seed)
    x = np.round(random.standard_normal((rows, 3)) * 1024) / 1024 + offset
    beta = np.cumsum(0.1 * random.standard_normal((rows, 3, 2)), axis=0)
    y = np.einsum("np,npo->no", x - offset, beta) + 0.5 * random.standard_normal((rows, 2))
    return x, np.round(y * 1024) / 1024 + offset, random.integers(1, 4, rows) / 2


def check(model: StreamingRegressor, want: Any, x: Array, rtol: float) -> None:
    np.testing.assert_allclose(model.coef_, want.coefficients, rtol=rtol, atol=rtol)
    scale = np.abs(want.predict(x)).max()
    np.testing.assert_allclose(model.predict(x), want.predict(x), atol=rtol * scale)
    np.testing.assert_allclose(model.residual_variance_, want.variance, rtol=rtol)
    np.testing.assert_allclose(model.coef_stderr_, want.errors, rtol=rtol)


# ---- The last rows -------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe, ridge, decay", RECIPES)
@pytest.mark.parametrize("window", [5, 16, 37, 100])
@pytest.mark.parametrize("offset", [0.0, 2.0**20])
def test_after_every_row(
    recipe: str, ridge: float, decay: float, window: int, offset: float
) -> None:
    """Rows one by one and in parts of any length, from the first to several turns of the window."""
    x, y, w = drawn(450, window, offset)
    random = np.random.default_rng(window)
    model = StreamingRegressor(recipe, window=window)
    end = 0
    while end < len(x) - 130:
        begin, end = end, end + (int(random.integers(1, 130)) if random.random() < 0.05 else 1)
        model.partial_fit(x[begin:end], y[begin:end], w[begin:end])
        now = slice(max(0, end - window), end)
        if end > 6 and window > 5:
            kept = x[now], y[now], w[now]
            want = fitted(*kept, ridge * decay ** len(kept[0]), decay)
            check(model, want, x[now], 1e-9)
    assert model.n_seen_ == end
    fresh = StreamingRegressor(recipe).fit(x[now], y[now], w[now])
    np.testing.assert_allclose(model.predict(x), fresh.predict(x), rtol=1e-7, atol=1e-7)
    for mine, its in zip(model.predict_interval(x), fresh.predict_interval(x)):
        if decay == 1 or "constant" not in recipe:
            np.testing.assert_allclose(mine, its, rtol=1e-7, atol=1e-7)


def test_many_rows_leave_no_error() -> None:
    """Errors that add up would show: rows of 1 behind rows of 10^6, over and over, every row learned
    alone. bench/forgetting.py has a million of them."""
    random = np.random.default_rng(1)
    rows, window = 200_000, 100
    x = random.standard_normal((rows, 2))
    x[np.arange(rows) // 1000 % 2 == 0] *= 1e6
    y = x @ [[1.0], [-2.0]] + 0.5 * random.standard_normal((rows, 1))
    model = StreamingRegressor(EXACT, window=window).partial_fit(x[:1], y[:1])
    one = np.ones(1)
    for i in range(1, rows):
        model.memory_.memorize(x[i : i + 1], y[i : i + 1], one)
        if i % 997 == 0 and (i - window) // 1000 == i // 1000:
            now = slice(i + 1 - window, i + 1)
            want = fitted(x[now], y[now], np.ones(window))
            np.testing.assert_allclose(model.coef_, want.coefficients, rtol=1e-9)
    assert model.n_seen_ == rows


def test_fit_keeps_the_last_rows_alone() -> None:
    x, y, w = drawn(1000)
    model = StreamingRegressor(RIDGE, window=40).fit(x, y, w)
    check(model, fitted(x[-40:], y[-40:], w[-40:], 1e-3), x[-40:], 1e-11)
    assert model.n_seen_ == 1000
    model.fit(x[:30], y[:30], w[:30])
    check(model, fitted(x[:30], y[:30], w[:30], 1e-3), x[:30], 1e-11)
    assert model.n_seen_ == 30


def test_a_level_that_jumps_leaves_nothing_behind() -> None:
    x, y, w = drawn(300)
    x[120:] += 1e9
    y[120:] -= 1e9
    model = StreamingRegressor(EXACT, window=50)
    for i in range(300):
        model.partial_fit(x[i : i + 1], y[i : i + 1], w[i : i + 1])
        if i >= 170:
            now = slice(i - 49, i + 1)
            want = fitted(x[now], y[now], w[now])
            np.testing.assert_allclose(model.coef_, want.coefficients, rtol=1e-6, atol=1e-6)
    there = fitted(x[-50:] - 1e9, y[-50:] + 1e9, w[-50:])  # exact: all are multiples of 2^-10
    np.testing.assert_allclose(model.coef_, there.coefficients, rtol=1e-10)


@pytest.mark.parametrize("recipe", ["rls{ridge: 2}", "weighted_rls", "mesa{decay: 0.9}"])
def test_rows_without_an_intercept(recipe: str) -> None:
    x, y, _ = drawn(90)
    model = StreamingRegressor(recipe, window=25, decay=0.95)
    for i in range(90):
        model.partial_fit(x[i : i + 1], y[i : i + 1])
    fresh = StreamingRegressor(recipe, decay=0.95).fit(x[-25:], y[-25:])
    np.testing.assert_allclose(model.predict(x), fresh.predict(x), rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(model.coef_, fresh.coef_, rtol=1e-11)
    if recipe.startswith("mesa"):
        return  # with a constant ridge and forgetting a fit's residual variance is approximate
    for name in ("coef_", "coef_stderr_", "residual_variance_"):
        np.testing.assert_allclose(getattr(model, name), getattr(fresh, name), rtol=1e-11)
    assert (model.intercept_ == 0).all()


def test_rows_without_weight_take_their_place() -> None:
    x, y, w = drawn(60)
    w[::3] = 0
    model = StreamingRegressor(EXACT, window=35)
    for i in range(0, 60, 20):
        model.partial_fit(x[i : i + 20], y[i : i + 20], w[i : i + 20])
    check(model, fitted(x[-35:], y[-35:], w[-35:]), x, 1e-11)
    named_rows = StreamingRegressor(EXACT, window=3)
    for i in range(5):
        named_rows.learn_one({"a": float(i)}, 2.0 * i, w=float(i < 4))
    assert named_rows.predict_one({"a": 10.0}) == pytest.approx(20)
    for _ in range(3):
        named_rows.learn_one({"a": 1.0}, 7.0, w=0)
    assert named_rows.predict_one({"a": 10.0}) == 0  # nothing counts any more


# ---- As any estimator ----------------------------------------------------------------------------


def test_copies_go_on() -> None:
    x, y, w = drawn(200)
    model = StreamingRegressor(FADING, window=30).fit(x[:77], y[:77], w[:77])
    model.predict(x)
    others = [pickle.loads(pickle.dumps(model)), copy.deepcopy(model)]
    fresh = clone(model)
    assert fresh.window == 30 and not hasattr(fresh, "memory_")
    for one in (model, *others):
        for i in range(77, 130):
            one.partial_fit(x[i : i + 1], y[i : i + 1], w[i : i + 1])
    for other in others:
        np.testing.assert_array_equal(other.predict(x), model.predict(x))
        np.testing.assert_array_equal(other.predict_interval(x), model.predict_interval(x))


def test_rows_of_names_and_features_that_come_later() -> None:
    x, y, _ = drawn(80)
    x[:50, 2] = 0
    late = StreamingRegressor(RIDGE, window=40)
    for i, (row, value) in enumerate(zip(x, y[:, 0])):
        numbers = dict(zip("abc", row.tolist()))
        if i < 50:
            del numbers["c"]
        late.learn_one(numbers, value)
    assert list(late.feature_names_in_) == ["a", "b", "c"] and late.n_seen_ == 80
    whole = StreamingRegressor(RIDGE).fit(x[40:], y[40:, 0])
    np.testing.assert_allclose(late.coef_, whole.coef_, rtol=1e-10)
    np.testing.assert_allclose(late.coef_stderr_, whole.coef_stderr_, rtol=1e-10)
    row = dict(zip("cab", x[3, [2, 0, 1]]))
    assert late.predict_one(row) == pytest.approx(whole.predict(x[3:4])[0], rel=1e-10)


def test_windows_that_follow_each_other_are_merged() -> None:
    x, y, w = drawn(120)
    for cut in (10, 60, 100):
        a = StreamingRegressor(FADING, window=40).fit(x[:cut], y[:cut], w[:cut])
        b = StreamingRegressor(FADING, window=40).fit(x[cut:], y[cut:], w[cut:])
        both = a + b
        one = StreamingRegressor(FADING, window=40).fit(x, y, w)
        np.testing.assert_allclose(both.coef_, one.coef_, rtol=1e-11)
        np.testing.assert_allclose(both.coef_stderr_, one.coef_stderr_, rtol=1e-11)
        assert both.n_seen_ == 120 and a.n_seen_ == cut


# ---- Refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [0, -3, 2.5, True])
def test_a_window_is_a_number_of_rows(window: Any) -> None:
    with pytest.raises(ValueError, match=r"\[sklearn\] window must be 1 or more, a whole number"):
        StreamingRegressor(window=window).fit(*drawn(9)[:2])


@pytest.mark.parametrize("recipe", ["nlms", "nadaraya_watson", "feature_rls", "titans"])
def test_recipes_without_sums(recipe: str) -> None:
    with pytest.raises(ValueError, match="solve least squares in x itself .*window of its own"):
        StreamingRegressor(recipe, window=9).fit(*drawn(9)[:2])


def test_other_refusals() -> None:
    x, y, w = drawn(30)
    with pytest.raises(ValueError, match="ridge is a share"):
        StreamingRegressor("rls{ridge_kind: relative}", window=9).fit(x, y)
    model = StreamingRegressor(window=9).fit(x, y)
    with pytest.raises(ValueError, match=r"\[unlearn\] window must be None but is 9: rows leave"):
        model.unlearn(x[-1:], y[-1:])
    with pytest.raises(ValueError, match="window of both must be 9 but the other's are None"):
        model + StreamingRegressor().fit(x, y)
    with pytest.raises(ValueError, match="importance: input"):
        StreamingRegressor("rls", window=9).fit(x, y, w)
    with pytest.raises(ValueError, match="columns"):
        model.partial_fit(x, y[:, 0])
    assert model.n_seen_ == 30
    one = StreamingRegressor(window=9).fit(x, y[:, 0])
    for weight in (-1.0, np.inf, np.nan):
        with pytest.raises(ValueError, match=r"\[learn_one\] w must be 0 or more and finite but is"):
            one.learn_one({0: 1.0}, 1.0, w=weight)
    assert one.n_seen_ == 30
