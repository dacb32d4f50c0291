"""Digits of least squares with an intercept: the certified problems of NIST's statistical reference
datasets (public domain), and rows that lie far from 0."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ttr.sklearn import StreamingRegressor

GRAM = "affine_rls{ridge: 0, importance: input}"
EXACT = "affine_rls{factor: qr, ridge: 0, importance: input}"

_NORRIS = """
0.1 0.2 338.8 337.4 118.1 118.2 888.0 884.6 9.2 10.1 228.1 226.5 668.5 666.3 998.5 996.3 449.1 448.6
778.9 777.0 559.2 558.2 0.3 0.4 0.1 0.6 778.1 775.5 668.8 666.9 339.3 338.0 448.9 447.5 10.8 11.6
557.7 556.0 228.3 228.1 998.0 995.8 888.8 887.6 119.6 120.2 0.3 0.3 0.6 0.3 557.6 556.8 339.3 339.1
888.0 887.2 998.5 999.0 778.9 779.0 10.2 11.1 117.6 118.3 228.9 229.2 668.4 669.1 449.2 448.9 0.2 0.5
"""
_LONGLEY = """
60323 83.0 234289 2356 1590 107608 1947  61122 88.5 259426 2325 1456 108632 1948
60171 88.2 258054 3682 1616 109773 1949  61187 89.5 284599 3351 1650 110929 1950
63221 96.2 328975 2099 3099 112075 1951  63639 98.1 346999 1932 3594 113270 1952
64989 99.0 365385 1870 3547 115094 1953  63761 100.0 363112 3578 3350 116219 1954
66019 101.2 397469 2904 3048 117388 1955 67857 104.6 419180 2822 2857 118734 1956
68169 108.4 442769 2936 2798 120445 1957 66513 110.8 444546 4681 2637 121950 1958
68655 112.6 482704 3813 2552 123366 1959 69564 114.2 502601 3931 2514 125368 1960
69331 115.7 518173 4806 2572 127852 1961 70551 116.9 554894 4007 2827 130081 1962
"""


def _table(text: str, columns: int) -> np.ndarray:
    return np.array(text.split(), float).reshape(-1, columns)


def _problems() -> list[Any]:
    """Regressors, response, certified coefficients (the intercept first), standard errors, and the
    digits that are asked for: those of LAPACK's orthogonal factors, as NIST's tables have them."""
    norris, longley = _table(_NORRIS, 2), _table(_LONGLEY, 7)
    powers = np.vander(np.arange(21.0), 6, increasing=True)
    small = 10.0 ** -np.arange(6)
    return [
        pytest.param(
            norris[:, 1:],
            norris[:, 0],
            [-0.262323073774029, 1.00211681802045],
            [0.232818234301152, 0.429796848199937e-03],
            12.0,
            id="norris",
        ),
        pytest.param(
            longley[:, 1:],
            longley[:, 0],
            [-3482258.63459582, 15.0618722713733, -0.358191792925910e-01, -2.02022980381683,
             -1.03322686717359, -0.511041056535807e-01, 1829.15146461355],
            [890420.383607373, 84.9149257747669, 0.334910077722432e-01, 0.488399681651699,
             0.214274163161675, 0.226073200069370, 455.478499142212],
            10.9,
            id="longley",
        ),
        pytest.param(powers[:, 1:], powers.sum(1), np.ones(6), None, 9.3, id="wampler 1"),
        pytest.param(powers[:, 1:], powers @ small, small, None, 10.2, id="wampler 2"),
    ]  # fmt: skip


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


def _digits(got: np.ndarray, certified: Any) -> float:
    error = np.abs(got - certified) / np.abs(certified)
    return float(-np.log10(np.maximum(error, 1e-16)).min())


@pytest.mark.parametrize("how", ["fit", "parts", "rows"])
@pytest.mark.parametrize("x, y, coefficients, errors, digits", _problems())
def test_certified_problems(
    how: str, x: np.ndarray, y: np.ndarray, coefficients: Any, errors: Any, digits: float
) -> None:
    model = _fitted(how, x, y)
    assert _digits(np.append(model.intercept_, model.coef_), coefficients) >= digits
    if errors is not None:
        assert _digits(np.append(model.intercept_stderr_, model.coef_stderr_), errors) >= 7.5


def _drawn(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Multiples of 2^-10, which stay exact beside an offset of 2^30."""
    generator = np.random.default_rng(3)
    x = np.round(generator.standard_normal((rows, 3)) * 1024) / 1024
    y = x @ [1.5, -2.0, 0.25] + 3 + 0.1 * generator.standard_normal(rows)
    return x, np.round(y * 1024) / 1024


@pytest.mark.parametrize("how", ["fit", "parts", "rows"])
@pytest.mark.parametrize(
    "recipe", [EXACT, "affine_rls{importance: input}", "affine_rls{decay: 0.97, importance: input}"]
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
