"""`ttr.sklearn.StreamingRegressor` beside scikit-learn's own checks, the textbook's formulas and
the definition."""

from __future__ import annotations

import copy
import importlib
import pickle
import re
import sys
from typing import Any

import numpy as np
import pytest
import ttr
from numpy.typing import NDArray
from scipy.stats import t as student
from estimator_names import named
from sklearn.utils.estimator_checks import estimator_checks_generator
from ttr.sklearn import StreamingRegressor

Array = NDArray[np.float64]

OLS = "affine_rls{factor: qr, ridge: 0, importance: input}"


@pytest.mark.parametrize(
    "estimator, check", list(estimator_checks_generator(StreamingRegressor())), ids=named
)
def test_the_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


def draw(
    rows: int = 60, features: int = 3, noise: float = 0.3, seed: int = 0, outputs: int = 0
) -> tuple[Array, Array]:
    random = np.random.default_rng(seed)
    x = random.standard_normal((rows, features)) + 2
    coefficients = random.standard_normal((features, outputs) if outputs else features)
    y = x @ coefficients + 1
    return x, y + noise * random.standard_normal(y.shape)


def textbook(x: Array, y: Array, w: Array) -> tuple[Array, Array, float, Array]:
    """Coefficients (the intercept's last), their standard errors, s^2 and (X^T W X)^-1."""
    x = np.hstack([x, np.ones((len(x), 1))])
    inverse = np.linalg.inv(x.T @ (w[:, None] * x))
    coefficients = inverse @ x.T @ (w * y)
    rows = np.count_nonzero(w)
    variance = float(w @ (y - x @ coefficients) ** 2) / (rows - x.shape[1])
    return coefficients, np.sqrt(variance * np.diagonal(inverse)), variance, inverse


# ---- Coefficients, errors, intervals -------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_coefficients_and_their_errors_are_the_textbooks(weighted: bool) -> None:
    x, y = draw()
    w = np.random.default_rng(5).integers(0, 3, len(x)) + 0.5 if weighted else np.ones(len(x))
    w[::7] = 0 if weighted else 1
    coefficients, errors, variance, inverse = textbook(x, y, w)
    model = StreamingRegressor(OLS)
    model.fit(x[:20], y[:20], w[:20])
    model.partial_fit(x[20:21], y[20:21], w[20:21])
    for i in range(21, 30):
        model.learn_one(dict(enumerate(x[i])), y[i], w[i])
    model.partial_fit(x[30:], y[30:], w[30:])
    np.testing.assert_allclose(model.coef_, coefficients[:-1], rtol=1e-10)
    np.testing.assert_allclose(model.intercept_, coefficients[-1], rtol=1e-10)
    np.testing.assert_allclose(model.residual_variance_, variance, rtol=1e-9)
    np.testing.assert_allclose(model.coef_stderr_, errors[:-1], rtol=1e-9)
    np.testing.assert_allclose(model.intercept_stderr_, errors[-1], rtol=1e-9)
    assert model.n_seen_ == len(x)

    new = draw(seed=9)[0][:5]
    whole = np.hstack([new, np.ones((5, 1))])
    leverage = np.einsum("ni,ij,nj->n", whole, inverse, whole)
    q = student.ppf(0.95, np.count_nonzero(w) - 4)
    lower, upper = model.predict_interval(new, level=0.9)
    np.testing.assert_allclose((lower + upper) / 2, whole @ coefficients, rtol=1e-10)
    margin = q * np.sqrt(variance * (1 + leverage))
    np.testing.assert_allclose((upper - lower) / 2, margin, rtol=1e-9)


def test_the_constant_ridge_is_in_coefficients_and_errors() -> None:
    x, y = draw()
    a = x.T @ x + 2 * np.eye(3)
    model = StreamingRegressor("rls{ridge: 2, ridge_kind: constant}").fit(x, y)
    coefficients = np.linalg.solve(a, x.T @ y)
    least = np.sum((y - x @ coefficients) ** 2) + 2 * coefficients @ coefficients
    errors = np.sqrt(least / (len(x) - 3) * np.diagonal(np.linalg.inv(a)))
    np.testing.assert_allclose(model.coef_, coefficients, rtol=1e-10)
    np.testing.assert_allclose(model.coef_stderr_, errors, rtol=1e-9)
    assert model.intercept_ == 0 and model.intercept_stderr_ == 0


@pytest.mark.parametrize("recipe", [OLS, "affine_rls{decay: 0.97}", "nlms{eta: 0.1}"])
def test_intervals_cover(recipe: str) -> None:
    """4000 rows of 20 streams; one standard error of the binomial is 0.0034."""
    inside = []
    for seed in range(20):
        x, y = draw(400, noise=1, seed=seed)
        if recipe.startswith("nlms"):
            x = np.hstack([x - 2, np.ones((len(x), 1))])
        model = StreamingRegressor(recipe, interval_decay=0.99).fit(x[:200], y[:200])
        for i in range(200, 400):
            lower, upper = model.predict_interval(x[i : i + 1])
            inside.append(lower[0] <= y[i] <= upper[0])
            model.partial_fit(x[i : i + 1], y[i : i + 1])
    assert np.mean(inside) == pytest.approx(0.95, abs=0.012)


def test_errors_of_coefficients_that_forget() -> None:
    """S2 / S: without it they would be 1.4 times too large."""
    far = []
    for seed in range(400):
        random = np.random.default_rng(seed)
        x = random.standard_normal((300, 2))
        y = x @ [1.0, -2.0] + 3 + random.standard_normal(len(x))
        model = StreamingRegressor("affine_rls{decay: 0.97, ridge: 0}").fit(x, y)
        far.append((model.coef_ - [1, -2]) / model.coef_stderr_)
    assert np.std(far) == pytest.approx(1, abs=0.1)


def test_no_degrees_of_freedom_no_errors() -> None:
    x, y = draw(4)
    model = StreamingRegressor(OLS).fit(x, y)
    assert np.isnan(model.coef_stderr_).all() and np.isnan(model.residual_variance_)
    assert np.isnan(model.predict_interval(x)).all()
    np.testing.assert_allclose(model.predict(x), y)


def test_several_outputs() -> None:
    x, y = draw(outputs=2)
    model = StreamingRegressor(OLS).fit(x, y)
    for i in range(2):
        alone = StreamingRegressor(OLS).fit(x, y[:, i])
        np.testing.assert_allclose(model.coef_[i], alone.coef_)
        np.testing.assert_allclose(model.intercept_[i], alone.intercept_)
        np.testing.assert_allclose(model.coef_stderr_[i], alone.coef_stderr_)
        for whole, single in zip(model.predict_interval(x), alone.predict_interval(x)):
            np.testing.assert_allclose(whole[:, i], single)


def test_linear_memories_of_steps_have_coefficients_without_errors() -> None:
    x, y = draw(500, noise=0)
    x = np.hstack([x, np.ones((len(x), 1))])
    model = StreamingRegressor("nlms").fit(x, y)
    np.testing.assert_allclose(x @ model.coef_, model.predict(x))
    with pytest.raises(AttributeError, match="least squares"):
        model.coef_stderr_
    with pytest.raises(AttributeError, match="linear in x"):
        StreamingRegressor("nadaraya_watson").fit(x, y).coef_
    assert not hasattr(StreamingRegressor("feature_rls").fit(x, y), "coef_")


# ---- Any recipe, any parts -----------------------------------------------------------------------


def learns(recipe: str) -> bool:
    try:
        StreamingRegressor(recipe).fit(*draw(3))
    except ValueError as error:
        assert re.search(r"\[sklearn\] recipe must|under residual: true", str(error))
        return False
    return True


LEARNING = [name for name in ttr.zoo() if learns(name)]


def test_which_recipes_learn() -> None:
    refused = set(ttr.zoo()) - set(LEARNING)
    networks = {"ttt_linear", "ttt_mlp"}  # their values are as long as their keys
    several = {"delta_product", "erase_then_delta", "affine_projection"}  # pairs a row
    assert refused == {"intention", "hgrn2", "lru", "hgrn", "rg_lru", *several, *networks}


@pytest.mark.parametrize("recipe", LEARNING)
def test_every_recipe_in_any_parts(recipe: str) -> None:
    x, y = draw(24, features=4)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    whole = StreamingRegressor(recipe, step=0.1).fit(x, y)
    parts = StreamingRegressor(recipe, step=0.1)
    parts.partial_fit(x[:1], y[:1]).partial_fit(x[1:9], y[1:9])
    parts = pickle.loads(pickle.dumps(parts))
    copied = copy.deepcopy(parts)
    for i in range(9, 14):
        parts.learn_one(dict(enumerate(x[i])), y[i])
    parts.partial_fit(x[14:], y[14:])
    scale = max(1.0, np.abs(whole.predict(x)).max())
    assert scale < 1e3
    np.testing.assert_allclose(parts.predict(x), whole.predict(x), atol=1e-9 * scale)
    assert parts.predict_one(dict(enumerate(x[0]))) == pytest.approx(parts.predict(x)[0], abs=1e-12)
    np.testing.assert_allclose(
        parts.predict_interval(x), whole.predict_interval(x), atol=1e-7 * scale
    )
    assert copied.n_seen_ == 9 and parts.n_seen_ == 24


@pytest.mark.parametrize(
    "recipe", ["affine_rls", "weighted_rls", "kda", "nadaraya_watson", "titans"]
)
def test_predictions_are_the_definitions(recipe: str) -> None:
    x, y = draw(20, features=4)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    model = StreamingRegressor(recipe, step=0.1).fit(x[:-1], y[:-1])
    keys, values = x[None, :-1, None], y[None, :-1, None, None]
    gates = {
        "log_decay": np.full((1, 19, 1), np.log(0.99)),
        "step": np.full((1, 19, 1), 0.1),
        "momentum": np.full((1, 19, 1), 0.5),
        "weight_decay": np.full((1, 19, 1), 0.01),
    }
    if recipe == "kda":
        gates["log_decay"] = np.full((1, 19, 1, 4), np.log(0.99))
    required = {s["keyword"] for s in ttr.input_specs(recipe) if s["required"]}
    gates = {name: gate for name, gate in gates.items() if name in required}
    layer = ttr.Layer(recipe, engine="definition")
    _, state = layer.forward(keys, keys, values, **gates)
    answer = layer.retrieve(x[None, -1:, None], state=state)
    assert model.predict(x[-1:])[0] == pytest.approx(answer.item(), rel=1e-9, abs=1e-9)


# ---- Rows of names -------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", ["affine_rls", "rls{decay: 0.9}", "nlms", "gla", "softmax"])
def test_features_that_come_later(recipe: str) -> None:
    """A feature that was not there has been 0."""
    x, y = draw(30)
    x[:12, 2] = 0
    late, whole = StreamingRegressor(recipe), StreamingRegressor(recipe)
    for i, (row, value) in enumerate(zip(x, y)):
        named = dict(zip("abc", row.tolist()))
        whole.learn_one(named, value)
        if i < 12:
            del named["c"]
        late.learn_one(dict(reversed(named.items())) if i > 20 else named, value)
    row = {"c": 0.3, "a": -1.0, "unknown": 7.0}
    assert late.predict_one(row) == pytest.approx(whole.predict_one(row), rel=1e-8)
    assert list(late.feature_names_in_) == ["a", "b", "c"] and late.n_features_in_ == 3
    if "rls" in recipe:
        np.testing.assert_allclose(late.coef_stderr_, whole.coef_stderr_, rtol=1e-6)


def test_rows_of_names_meet_tables() -> None:
    pandas = pytest.importorskip("pandas")
    x, y = draw()
    table = pandas.DataFrame(x, columns=["a", "b", "c"])
    model = StreamingRegressor().fit(table[:40], y[:40])
    model.learn_one({"c": x[40, 2], "b": x[40, 1], "a": x[40, 0]}, y[40])
    expected = StreamingRegressor().fit(x[:41], y[:41])
    np.testing.assert_allclose(model.predict(table), expected.predict(x))
    with pytest.raises(ValueError, match="new ones"):
        other = StreamingRegressor("feature_rls").fit(x, y)
        other.learn_one({0: 1.0, 1: 1.0, 2: 1.0, "new": 1.0}, 1.0)


def test_nothing_known_predicts_nothing() -> None:
    assert StreamingRegressor().predict_one({"a": 1.0}) == 0


# ---- Bad input -----------------------------------------------------------------------------------


def test_errors() -> None:
    x, y = draw()
    with pytest.raises(ValueError, match="importance: input"):
        StreamingRegressor("rls").fit(x, y, np.arange(len(x)))
    with pytest.raises(ValueError, match=r"\[sklearn\] decay must be above 0"):
        StreamingRegressor(decay=1.5).fit(x, y)
    with pytest.raises(ValueError, match=r"step must be 0 or more but is nan"):
        StreamingRegressor(step=float("nan")).fit(x, y)
    with pytest.raises(ValueError, match="whole sequence"):
        StreamingRegressor("intention").fit(x, y)
    with pytest.raises(ValueError, match="eta_kind of constant or relative"):
        StreamingRegressor("batch_gd{eta_kind: input}").fit(x, y)
    with pytest.raises(ValueError, match="nearest|unknown|must be"):
        StreamingRegressor("rlss").fit(x, y)
    model = StreamingRegressor().fit(x, y)
    before = model.predict(x)
    with pytest.raises(ValueError, match="columns"):
        model.partial_fit(x, np.stack([y, y], 1))
    with pytest.raises(ValueError, match="level must be above 0"):
        model.predict_interval(x, level=95)
    with pytest.raises(ValueError, match="finite"):
        model.learn_one({0: float("nan")}, 1.0)
    with pytest.raises(ValueError, match="finite"):
        model.learn_one({0: 1.0}, float("inf"))
    with pytest.raises(ValueError, match="w must be 0 or more and finite"):
        model.learn_one({0: 1.0}, 1.0, w=-1.0)
    with pytest.raises(ValueError, match="one output but has 2"):
        StreamingRegressor().fit(x, np.stack([y, y], 1)).learn_one({0: 1.0}, 1.0)
    assert (model.predict(x) == before).all() and model.n_seen_ == len(x)


def test_without_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name == "ttr.sklearn" or name.startswith("ttr.sklearn."):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ImportError, match="pip install scikit-learn"):
        importlib.import_module("ttr.sklearn")


@pytest.mark.parametrize(
    "x, y, text",
    [
        ({"a": "red"}, 1.0, r"x\['a'\] must be a number but is 'red'"),
        ({"a": None}, 1.0, r"x\['a'\] must be a number but is None"),
        ({"a": 1.0}, None, "y must be a number but is None"),
        (None, 1.0, "x must be {feature: number} but is NoneType"),
        ({}, 1.0, "x must have a feature in the first row"),
    ],
)
def test_a_row_that_is_none_is_refused_by_name(x: object, y: object, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        StreamingRegressor().learn_one(x, y)
