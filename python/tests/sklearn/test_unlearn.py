"""Rows taken back: `StreamingRegressor.unlearn` beside a fit of the rows that remain."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from batch_fits import Array, fitted
from sklearn.exceptions import NotFittedError
from ttr.sklearn import StreamingRegressor

EXACT = "affine_rls{factor: qr, ridge: 0, importance: input}"
RIDGE = "affine_rls{factor: qr, importance: input}"
FADING = "affine_rls{ridge: 0.5, decay: 0.98, importance: input}"


def drawn(rows: int, seed: int = 0, offset: float = 0.0) -> tuple[Array, Array, Array]:
    random = np.random.default_rng(seed)
    x = np.round(random.standard_normal((rows, 3)) * 1024) / 1024 + offset
    y = x @ [[1.0, 2.0], [-1.0, 0.5], [0.25, 0.125]] + 0.5 * random.standard_normal((rows, 2))
    return x, np.round(y * 1024) / 1024, random.integers(1, 4, rows) / 2


def check(
    model: StreamingRegressor, x: Array, y: Array, w: Array, ridge: float, rtol: float
) -> None:
    want = fitted(x, y, w, ridge)
    np.testing.assert_allclose(model.coef_, want.coefficients, rtol=rtol)
    np.testing.assert_allclose(
        model.predict(x), want.predict(x), rtol=rtol, atol=rtol * np.abs(y).max()
    )
    np.testing.assert_allclose(model.residual_variance_, want.variance, rtol=rtol)
    np.testing.assert_allclose(model.coef_stderr_, want.errors, rtol=rtol)
    assert model.n_seen_ == len(x)


@pytest.mark.parametrize("recipe, ridge", [(EXACT, 0), (RIDGE, 1e-3)])
@pytest.mark.parametrize("offset", [0.0, 2.0**20])
@pytest.mark.parametrize("seed", range(3))
def test_rows_are_taken_back(recipe: str, ridge: float, offset: float, seed: int) -> None:
    """The first, the last, or any."""
    x, y, w = drawn(200, seed, offset)
    for gone in (slice(0, 90), slice(110, 200), slice(0, 200, 2)):
        model = StreamingRegressor(recipe).fit(x, y, w)
        assert model.unlearn(x[gone], y[gone], w[gone]) is model
        left = np.delete(np.arange(200), gone)
        check(model, x[left], y[left], w[left], ridge, 1e-11)


def test_rows_are_taken_back_one_by_one() -> None:
    x, y, w = drawn(400)
    model = StreamingRegressor(EXACT).fit(x, y, w)
    for i in range(380):
        model.unlearn(x[i : i + 1], y[i : i + 1], w[i : i + 1])
    check(model, x[380:], y[380:], w[380:], 0, 1e-11)
    model.partial_fit(x[:50], y[:50], w[:50])
    kept = np.r_[380:400, 0:50]
    check(model, x[kept], y[kept], w[kept], 0, 1e-11)


def test_what_was_added_is_taken_back() -> None:
    x, y, w = drawn(100)
    parts = [
        StreamingRegressor(RIDGE).fit(x[i : i + 20], y[i : i + 20], w[i : i + 20])
        for i in range(0, 100, 20)
    ]
    model = sum(parts).unlearn(x[40:60], y[40:60], w[40:60])
    left = np.r_[0:40, 60:100]
    check(model, x[left], y[left], w[left], 1e-3, 1e-11)


@pytest.mark.parametrize("seed", range(8))
def test_any_calls_are_one_fit_of_what_is_left(seed: int) -> None:
    """Parts learned, merged and taken back, as drawn."""
    random = np.random.default_rng(seed)
    x, y, w = drawn(2000, seed, offset=float(random.integers(-1000, 1000)))
    model, held = StreamingRegressor(RIDGE).fit(x[:40], y[:40], w[:40]), list(range(40))
    for begin in range(40, 2000, 40):
        part = np.arange(begin, begin + random.integers(1, 41))
        what = random.integers(4)
        if what == 0:
            model.partial_fit(x[part], y[part], w[part])
        elif what == 1:
            model = StreamingRegressor(RIDGE).fit(x[part], y[part], w[part]) + model
        elif what == 2:
            model += StreamingRegressor(RIDGE).fit(x[part], y[part], w[part])
        else:
            part = random.choice(held, max(1, len(held) // 3), replace=False)
            model.unlearn(x[part], y[part], w[part])
            held = sorted(set(held) - set(part.tolist()))
            continue
        held += part.tolist()
    check(model, x[held], y[held], w[held], 1e-3, 1e-10)


def test_all_rows_taken_back_leave_nothing() -> None:
    x, y, w = drawn(50)
    model = StreamingRegressor(RIDGE).fit(x, y, w).unlearn(x[::-1], y[::-1], w[::-1])
    assert (
        model.n_seen_ == 0 and (model.predict(x) == 0).all() and np.isnan(model.coef_stderr_).all()
    )
    model.partial_fit(x[:30], y[:30], w[:30])
    check(model, x[:30], y[:30], w[:30], 1e-3, 1e-11)


def test_the_latest_of_a_recipe_that_forgets() -> None:
    x, y, w = drawn(120)
    model = StreamingRegressor(FADING).fit(x, y, w)
    model.unlearn(x[100:], y[100:], w[100:], latest=True)
    want = StreamingRegressor(FADING).fit(x[:100], y[:100], w[:100])
    for name in ("coef_", "coef_stderr_", "residual_variance_", "n_seen_"):
        np.testing.assert_allclose(getattr(model, name), getattr(want, name), rtol=1e-11)
    model.partial_fit(x[100:], y[100:], w[100:])
    whole = StreamingRegressor(FADING).fit(x, y, w)
    np.testing.assert_allclose(model.predict_interval(x), whole.predict_interval(x), rtol=1e-11)


def test_what_remains_has_rounding_errors_of_what_was() -> None:
    """Beside rows of 10^7 those of 1 have 7 digits in squares: an error far above eps, and told."""
    x, y, _ = drawn(60)
    far = 1e7 * x[:30]
    model = StreamingRegressor(EXACT)
    model.fit(np.concatenate([far, x[30:]]), np.concatenate([1e7 * y[:30], y[30:]]))
    with pytest.warns(
        RuntimeWarning, match=r"\[unlearn\] what remains is not positive definite to rounding"
    ):
        model.unlearn(far, 1e7 * y[:30])
    assert np.isfinite(model.predict(x)).all() and model.n_seen_ == 30
    ridged = StreamingRegressor("affine_rls{ridge: 1, importance: input}").fit(1e3 * x, y)
    ridged.unlearn(1e3 * x[:-1], y[:-1])  # the ridge holds what one row leaves open
    want = fitted(1e3 * x[-1:], y[-1:], np.ones(1), 1)
    np.testing.assert_allclose(ridged.coef_, want.coefficients, atol=1e-9)


def test_few_rows_left_without_a_ridge_are_told() -> None:
    x, y, w = drawn(60)
    model = StreamingRegressor(EXACT).fit(x, y, w)
    with pytest.warns(RuntimeWarning, match="coefficients are those of least norm"):
        model.unlearn(x[2:], y[2:], w[2:])
    np.testing.assert_allclose(model.predict(x[:2]), y[:2], atol=1e-9)
    fresh = StreamingRegressor(EXACT).fit(x[:2], y[:2], w[:2])
    np.testing.assert_allclose(model.coef_, fresh.coef_, rtol=1e-8)


# ---- Refused -------------------------------------------------------------------------------------

X, Y, W = drawn(30)


def refused(text: str, *rows: Any, recipe: str = RIDGE, **options: Any) -> None:
    model = StreamingRegressor(recipe).fit(X, Y)
    before = pickle.dumps(model)
    with pytest.raises(ValueError, match=text):
        model.unlearn(*rows, **options)
    assert pickle.dumps(model) == before  # what is refused changes nothing


@pytest.mark.parametrize("recipe", [EXACT, RIDGE, "affine_rls{ridge: 0}", "rls"])
def test_rows_that_were_not_learned(recipe: str) -> None:
    refused("rows that were learned .* not positive", 10 * X[:9], Y[:9], recipe=recipe)
    refused("rows that were learned .* something remains", X + X[::-1], Y, recipe=recipe)


def test_weights_that_were_not_learned() -> None:
    refused("rows that were learned .* weigh more than all", X[:5], Y[:5], np.full(5, 100.0))
    refused("sample_weight must be of a recipe with importance", X[:5], Y[:5], W[:5], recipe="rls")


def test_more_rows_than_were_learned() -> None:
    refused(
        r"\[unlearn\] X must be of the 30 rows learned but has 31", np.r_[X, X[:1]], np.r_[Y, Y[:1]]
    )


def test_a_recipe_that_forgets() -> None:
    refused(r"\[unlearn\] recipe must not forget .* latest=True", X[:5], Y[:5], recipe=FADING)
    half = "affine_rls{decay: 0.25}"
    refused("X must be rows behind which older ones count but 0.25", X, Y, recipe=half, latest=True)


def test_recipes_without_sums() -> None:
    refused(r"\[unlearn\] recipe must solve least squares in x itself", X[:5], Y[:5], recipe="nlms")
    refused("whose ridge is a share", X[:5], Y[:5], recipe="rls{ridge_kind: relative}")


def test_other_tables() -> None:
    refused("features", X[:5, :2], Y[:5])
    refused(r"\[unlearn\] y must have 2 columns but has 1", X[:5], Y[:5, 0])
    refused("NaN", X[:5] * np.nan, Y[:5])
    with pytest.raises(NotFittedError, match="StreamingRegressor must have learned rows"):
        StreamingRegressor().unlearn(X, Y)
