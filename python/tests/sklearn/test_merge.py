"""Regressors of several tables as one: `merge`, `+`, `sum`."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from batch_fits import Array, fitted
from sklearn.exceptions import NotFittedError
from ttr.sklearn import StreamingRegressor

EXACT = "affine_rls{factor: qr, ridge: 0, importance: input}"
RIDGE = "affine_rls{factor: qr, importance: input}"
GRAM = "affine_rls{importance: input}"
FADING = "affine_rls{ridge: 0.5, decay: 0.99, importance: input}"
CONSTANT = "affine_rls{factor: qr, ridge: 0.5, ridge_kind: constant, importance: input}"

Table = tuple[Array, Array, Array]


def tables(parts: int, offset: float, seed: int = 0, outputs: int = 2) -> list[Table]:
    """x, y, weights; every part around another origin. Multiples of 2^-10, which an offset keeps."""
    random = np.random.default_rng(seed)
    coefficients = np.array([[1.0, 2.0], [-1.0, 0.5], [0.25, 0.125]])[:, :outputs]
    drawn = []
    for _ in range(parts):
        rows = random.integers(1, 40)
        x = random.standard_normal((rows, 3)) + offset * random.standard_normal(3)
        x = np.round(x * 1024) / 1024
        y = x @ coefficients + 3 + 0.5 * random.standard_normal((rows, outputs))
        weights = random.integers(0, 4, rows) / 2
        weights[0] = 1
        drawn.append((x, np.round(y * 1024) / 1024, weights))
    return drawn


def joined(parts: list[Table]) -> Table:
    x, y, w = zip(*parts)
    return np.concatenate(x), np.concatenate(y), np.concatenate(w)


def learned(recipe: str, part: Table) -> StreamingRegressor:
    return StreamingRegressor(recipe).fit(*part)


def check(model: StreamingRegressor, one: StreamingRegressor, x: Array, rtol: float) -> None:
    for name in ("coef_", "coef_stderr_", "residual_variance_"):
        np.testing.assert_allclose(getattr(model, name), getattr(one, name), rtol=rtol)
    scale = np.abs(one.predict(x)).max()
    np.testing.assert_allclose(model.predict(x), one.predict(x), atol=rtol * scale)
    for mine, its in zip(model.predict_interval(x), one.predict_interval(x)):
        np.testing.assert_allclose(mine, its, atol=rtol * scale)
    assert model.n_seen_ == one.n_seen_


@pytest.mark.parametrize(
    "recipe",
    [EXACT, RIDGE, GRAM, FADING, FADING.replace("{", "{factor: qr, "), CONSTANT, "rls{ridge: 2}",
     "rls{factor: qr, ridge: 2}"],
)  # fmt: skip
@pytest.mark.parametrize("seed", range(4))
def test_64_parts_are_one_fit(recipe: str, seed: int) -> None:
    parts = tables(64, 1.0, seed)
    if recipe.startswith("rls"):
        parts = [(x, y, np.ones(len(x))) for x, y, _ in parts]
    whole = joined(parts)
    check(sum(learned(recipe, part) for part in parts), learned(recipe, whole), whole[0], 1e-12)


@pytest.mark.parametrize(
    "recipe, ridge, decay", [(EXACT, 0, 1), (RIDGE, 1e-3, 1), (FADING, 0.5, 0.99)]
)
@pytest.mark.parametrize("seed", range(4))
def test_the_sum_of_parts_is_the_batch_fit(
    recipe: str, ridge: float, decay: float, seed: int
) -> None:
    parts = tables(64, 1.0, seed)
    x, y, w = joined(parts)
    model = sum(learned(recipe, part) for part in parts)
    want = fitted(x, y, w, ridge * decay ** len(x), decay)
    np.testing.assert_allclose(model.coef_, want.coefficients, rtol=1e-11)
    np.testing.assert_allclose(model.intercept_, want.intercept, rtol=1e-11)
    np.testing.assert_allclose(model.residual_variance_, want.variance, rtol=1e-11)
    np.testing.assert_allclose(model.coef_stderr_, want.errors, rtol=1e-11)


@pytest.mark.parametrize("recipe", [EXACT, RIDGE])
@pytest.mark.parametrize("seed", range(4))
def test_every_part_at_an_origin_of_its_own(recipe: str, seed: int) -> None:
    """Means of parts differ by 10^6, rows by .5 from the fit: a residual sum of squares is some 10^-13
    of the sums that it follows from. Coefficients lose nothing."""
    parts = tables(64, 1e6, seed)
    x, y, w = joined(parts)
    model = sum(learned(recipe, part) for part in parts)
    want = fitted(x, y, w, 0 if recipe == EXACT else 1e-3)
    np.testing.assert_allclose(model.coef_, want.coefficients, rtol=1e-12)
    np.testing.assert_allclose(model.predict(x), want.predict(x), rtol=1e-12, atol=1e-12 * 1e6)
    rtol = np.finfo(np.float64).eps * (1e6 / 0.5) ** 2
    np.testing.assert_allclose(model.residual_variance_, want.variance, rtol=rtol)


@pytest.mark.parametrize("recipe", [EXACT, RIDGE, FADING])
def test_far_from_zero_is_as_near_it(recipe: str) -> None:
    parts = tables(64, 1.0)
    away = 2.0**20 * np.array([1.0, -3.0, 0.0])
    moved = [(x + away, y - 2.0**20, w) for x, y, w in parts]
    here = sum(learned(recipe, part) for part in parts)
    there = sum(learned(recipe, part) for part in moved)
    for name in ("coef_", "coef_stderr_", "residual_variance_"):
        np.testing.assert_allclose(getattr(there, name), getattr(here, name), rtol=1e-11)
    x = parts[0][0]
    np.testing.assert_allclose(there.predict(x + away) + 2.0**20, here.predict(x), atol=1e-8)


@pytest.mark.parametrize("recipe", [EXACT, RIDGE, FADING, CONSTANT])
def test_any_nesting(recipe: str) -> None:
    a, b, c, d = (learned(recipe, part) for part in tables(4, 3.0, 7))
    x = tables(1, 3.0, 8)[0][0]
    check((a + b) + (c + d), a + (b + (c + d)), x, 1e-12)


def test_any_order_without_forgetting() -> None:
    parts = [learned(RIDGE, part) for part in tables(8, 3.0)]
    check(sum(parts[::-1]), sum(parts), tables(1, 3.0, 8)[0][0], 1e-12)


def test_the_later_part_is_not_the_earlier() -> None:
    a, b = (learned(FADING, part) for part in tables(2, 1.0, 3))
    assert np.abs((a + b).coef_ - (b + a).coef_).max() > 1e-3


def test_a_sum_goes_on_and_its_parts_stay() -> None:
    first, second, third = tables(3, 10.0, 5)
    a, b = learned(FADING, first), learned(FADING, second)
    before = pickle.dumps(a), pickle.dumps(b)
    both = a.merge(b)
    assert (pickle.dumps(a), pickle.dumps(b)) == before
    both = pickle.loads(pickle.dumps(copy.deepcopy(both))).partial_fit(*third)
    check(both, learned(FADING, joined([first, second, third])), third[0], 1e-11)
    assert both.get_params() == a.get_params()
    alone = sum([a])
    alone.partial_fit(*third)
    assert a.n_seen_ == len(first[0]) and alone.n_seen_ > a.n_seen_


def test_rows_of_names_come_together() -> None:
    x, y, _ = joined(tables(4, 1.0, outputs=1))
    names = ["a", "b", "c"]
    models = [StreamingRegressor(), StreamingRegressor()]
    for i, (row, value) in enumerate(zip(x, y[:, 0])):
        models[i >= 20].learn_one(dict(zip(names, row)), value)
    both = sum(models)
    assert list(both.feature_names_in_) == names
    one = StreamingRegressor().fit(x, y[:, 0])
    np.testing.assert_allclose(both.coef_, one.coef_, rtol=1e-12)
    both.learn_one({"d": 1.0}, 2.0)
    assert both.n_features_in_ == 4


def test_parts_that_say_nothing() -> None:
    """Rows without weight, single rows, parts that leave directions out."""
    x, y, w = joined(tables(4, 1.0, outputs=1))
    y = y[:, 0]
    empty = StreamingRegressor(EXACT)
    for row in x[:3]:
        empty.learn_one(dict(enumerate(row)), 7.0, w=0)
    for both in (empty + learned(EXACT, (x, y, w)), learned(EXACT, (x, y, w)) + empty):
        one = learned(EXACT, (x, y, w))
        np.testing.assert_allclose(both.coef_, one.coef_, rtol=1e-12)
        np.testing.assert_allclose(both.coef_stderr_, one.coef_stderr_, rtol=1e-12)
        assert both.n_seen_ == len(x) + 3
    np.testing.assert_array_equal((empty + empty).coef_, np.zeros(3))
    w = np.ones(len(x))
    rows = sum(learned(EXACT, (x[i : i + 1], y[i : i + 1], w[:1])) for i in range(len(x)))
    check(rows, learned(EXACT, (x, y, w)), x, 1e-11)
    assert np.isnan(
        sum(learned(EXACT, (x[i : i + 1], y[i : i + 1], w[:1])) for i in range(3)).coef_stderr_
    ).all()


# ---- What does not go together -------------------------------------------------------------------

X, Y = np.random.default_rng(0).standard_normal((2, 30, 3))


def plain(
    recipe: Any = RIDGE, y: Array = Y[:, 0], x: Array = X, **gates: float
) -> StreamingRegressor:
    return StreamingRegressor(recipe, **gates).fit(x, y)


@pytest.mark.parametrize(
    "a, b, text",
    [
        (
            plain(),
            plain(EXACT),
            r"\[merge\] recipe of both must be .*ridge: 0.001.* but the other's are ",
        ),
        (
            plain("weighted_rls", decay=0.9),
            plain("weighted_rls", decay=0.8),
            "gates of both must be .*0.9",
        ),
        (
            plain(),
            plain(x=X[:, :2]),
            r"features of both must be \[0, 1, 2\] but the other's are \[0, 1\]",
        ),
        (plain(), plain(y=Y), "outputs of both must be 1 in one axis but the other's are 3"),
        (plain(), plain(y=Y[:, :1]), "outputs of both must be 1 in one axis but the other's are 1"),
        (
            plain("nlms"),
            plain("nlms"),
            r"\[merge\] recipe must solve least squares in x itself .* but is",
        ),
        (plain("feature_rls"), plain("feature_rls"), "must solve least squares in x itself"),
        (plain("nadaraya_watson"), plain("nadaraya_watson"), "fit one regressor on all rows"),
        (
            plain("rls{ridge_kind: relative}"),
            plain(),
            "ridge is a share of all rows' A: take ridge_kind",
        ),
        (plain(), plain("nlms"), "must solve least squares in x itself"),
    ],
)
def test_what_does_not_go_together(a: StreamingRegressor, b: StreamingRegressor, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        a + b


def test_other_names_do_not_go_together() -> None:
    a, b = StreamingRegressor(), StreamingRegressor()
    a.learn_one({"x": 1.0, "y": 2.0}, 1.0)
    b.learn_one({"x": 1.0, "z": 2.0}, 1.0)
    with pytest.raises(
        ValueError, match=r"features of both must be \['x', 'y'\] but the other's are"
    ):
        a + b


def test_nothing_learned_does_not_add_up() -> None:
    for a, b in ((plain(), StreamingRegressor()), (StreamingRegressor(), plain())):
        with pytest.raises(NotFittedError, match="StreamingRegressor must have learned rows"):
            a.merge(b)
    for other in (1, "a", None):
        with pytest.raises(TypeError):
            plain() + other
        with pytest.raises(TypeError):
            other + plain()
