"""Digits of least squares with an intercept: the certified problems of NIST's statistical reference
datasets (public domain), and rows that lie far from 0."""

from __future__ import annotations

import importlib.util
import pathlib
from typing import Any

import numpy as np
import pytest
from ttr.sklearn import StreamingRegressor

GRAM = "affine_rls{ridge: 0, importance: input}"
EXACT = "affine_rls{factor: qr, ridge: 0, importance: input}"
ROOT = pathlib.Path(__file__).parents[3]


def _nist() -> Any:
    """bench/nist.py, which makes the table of docs/sklearn.md."""
    spec = importlib.util.spec_from_file_location("nist", ROOT / "bench/nist.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


NIST = _nist()
PROBLEMS = {problem.name: problem for problem in NIST.problems()}


@pytest.mark.parametrize("name", list(PROBLEMS))
def test_certified_problems(name: str) -> None:
    """As many digits as LAPACK has of the whole table, but for half a digit, which is luck."""
    found = NIST.median_digits(PROBLEMS[name], NIST.RECIPE, 31)
    for how in ("fit", "learn_one"):
        for mine, of_lapack in zip(found[how], found["lstsq"]):
            assert mine >= of_lapack - 0.5 or np.isnan(of_lapack)


def _fitted(how: str, x: np.ndarray, y: np.ndarray, recipe: str = EXACT) -> StreamingRegressor:
    model = StreamingRegressor(recipe)
    if how == "fit":
        return model.fit(x, y)
    if how == "rows":
        for row, value in zip(x, y):
            model.learn_one(dict(enumerate(row)), value)
        return model
    for begin in range(0, len(x), 5):
        model.partial_fit(x[begin : begin + 5], y[begin : begin + 5])
    return model


# Those that NIST's tables have of LAPACK's orthogonal factors.
@pytest.mark.parametrize(
    "name, digits", [("norris", 12.0), ("longley", 10.9), ("wampler1", 9.3), ("wampler2", 10.2)]
)
@pytest.mark.parametrize("how", ["fit", "parts", "rows"])
@pytest.mark.parametrize("recipe", [GRAM, EXACT])
def test_certified_problems_in_parts(recipe: str, how: str, name: str, digits: float) -> None:
    problem = PROBLEMS[name]
    model = _fitted(how, problem.x, problem.y, recipe)
    got = np.append(model.intercept_, model.coef_)
    assert NIST.digits(got, problem.coefficients) >= digits
    errors = np.append(model.intercept_stderr_, model.coef_stderr_)
    if problem.errors.all():
        assert NIST.digits(errors, problem.errors) >= (7.5 if recipe == GRAM else 13)


@pytest.mark.parametrize(
    "name, digits", [("norris", 12.0), ("longley", 10.9), ("wampler1", 9.3), ("wampler2", 10.2)]
)
@pytest.mark.parametrize("junk", [0, 7, 100])
def test_certified_problems_in_a_window(junk: int, name: str, digits: float) -> None:
    """Behind rows that are a million times as large, and have left."""
    problem = PROBLEMS[name]
    random = np.random.default_rng(junk)
    scale = 1e6 * np.abs(problem.x).max(axis=0)
    model = StreamingRegressor(EXACT, window=len(problem.y))
    for row in random.standard_normal((junk, problem.x.shape[1])) * scale:
        model.learn_one(dict(enumerate(row.tolist())), 1e6 * float(random.standard_normal()))
    for row, value in zip(problem.x.tolist(), problem.y.tolist()):
        model.learn_one(dict(enumerate(row)), value)
    got = np.append(model.intercept_, model.coef_)
    assert NIST.digits(got, problem.coefficients) >= digits
    if problem.errors.all():
        errors = np.append(model.intercept_stderr_, model.coef_stderr_)
        assert NIST.digits(errors, problem.errors) >= 13


def _drawn(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Multiples of 2^-10, which stay exact beside an offset of 2^30."""
    generator = np.random.default_rng(3)
    x = np.round(generator.standard_normal((rows, 3)) * 1024) / 1024
    y = x @ [1.5, -2.0, 0.25] + 3 + 0.1 * generator.standard_normal(rows)
    return x, np.round(y * 1024) / 1024


@pytest.mark.parametrize("how", ["fit", "parts", "rows"])
@pytest.mark.parametrize(
    "recipe",
    [
        GRAM,
        EXACT,
        "affine_rls{importance: input}",
        "affine_rls{factor: qr, decay: 0.97, importance: input}",
    ],
)
@pytest.mark.parametrize("power", [10, 20, 30])
def test_an_offset_changes_the_intercept_alone(how: str, recipe: str, power: int) -> None:
    x, y = _drawn(200)
    offset = 2.0**power
    plain = _fitted(how, x, y, recipe)
    moved = _fitted(how, x + offset * np.array([1, -2, 0]), y - 3 * offset, recipe)
    query = x[:5]
    same = dict(rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(moved.coef_, plain.coef_, **same)
    np.testing.assert_allclose(moved.coef_stderr_, plain.coef_stderr_, **same)
    np.testing.assert_allclose(moved.residual_variance_, plain.residual_variance_, **same)
    far = query + offset * np.array([1, -2, 0])
    rounding = 1e-9 + 4 * np.spacing(3 * offset)
    np.testing.assert_allclose(moved.predict(far) + 3 * offset, plain.predict(query), atol=rounding)
    for there, here in zip(moved.predict_interval(far), plain.predict_interval(query)):
        np.testing.assert_allclose(there + 3 * offset, here, atol=rounding)


def test_rows_that_move_away_keep_their_digits() -> None:
    """A clock and a level that only rise, under a memory that forgets."""
    generator = np.random.default_rng(5)
    seconds = 1.7e9 + np.arange(5000.0)
    y = 44.86 * (seconds - 1.7e9) + generator.standard_normal(5000)
    model = StreamingRegressor("affine_rls{decay: 0.98, ridge: 0, importance: input}")
    for begin in range(0, 5000, 7):
        model.partial_fit(seconds[begin : begin + 7, None], y[begin : begin + 7])
    weights = 0.98 ** np.arange(4999, -1, -1.0)
    x = seconds - seconds[-1]
    want = np.polyfit(x, y, 1, w=np.sqrt(weights))
    np.testing.assert_allclose(model.coef_, want[:1], rtol=1e-9)
    np.testing.assert_allclose(model.predict(seconds[-1:, None]), want[1:], rtol=1e-12)


def test_rows_without_weight_place_nothing() -> None:
    model = StreamingRegressor(EXACT)
    model.learn_one({"x": 5.0}, 7.0, w=0)
    assert model.predict_one({"x": 5.0}) == 0
    for i in range(3):
        model.learn_one({"x": 1e9 + i}, 1.0 + i)
    np.testing.assert_allclose(model.coef_, [1], rtol=1e-12)


def test_a_feature_that_comes_late_has_been_zero() -> None:
    late, early = StreamingRegressor(EXACT), StreamingRegressor(EXACT)
    generator = np.random.default_rng(1)
    for i in range(60):
        a, b = 1e6 + generator.standard_normal(), generator.standard_normal() if i >= 20 else 0.0
        y = 2 * a - 3 * b + 0.01 * generator.standard_normal()
        early.learn_one({"a": a, "b": b}, y)
        late.learn_one({"a": a, "b": b} if i >= 20 else {"a": a}, y)
    np.testing.assert_allclose(late.coef_, early.coef_, rtol=1e-8)
    np.testing.assert_allclose(late.intercept_, early.intercept_, rtol=1e-8)
