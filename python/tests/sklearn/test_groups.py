"""A regressor for every group: that of the group's rows alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from ttr.sklearn import GroupedRegressor, StreamingRegressor

RANDOM = np.random.default_rng(0)
SHOPS = RANDOM.choice(["north", "south", "east"], 200)
X = RANDOM.standard_normal((200, 2))
SLOPES = {"north": [1.0, 2.0], "south": [-1.0, 0.5], "east": [0.0, 3.0]}
Y = np.array([x @ SLOPES[shop] for x, shop in zip(X, SHOPS)]) + 0.1 * RANDOM.standard_normal(200)


def table(library: str) -> Any:
    frames = pytest.importorskip(library)
    columns = {"a": X[:, 0], "shop": SHOPS, "b": X[:, 1]}
    return frames.table(columns) if library == "pyarrow" else frames.DataFrame(columns)


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
@pytest.mark.parametrize("options", [{}, {"window": 20}, {"half_life": 15}])
def test_every_group_is_a_fit_of_its_rows(library: str, options: dict[str, Any]) -> None:
    frame = table(library)
    model = GroupedRegressor(StreamingRegressor(**options), by="shop").fit(frame, Y)
    path = clone(model).path(frame, Y)
    assert list(model.regressors_) == list(dict.fromkeys(SHOPS.tolist()))
    predicted = model.predict(frame)
    for shop, regressor in model.regressors_.items():
        rows = SHOPS == shop
        alone = StreamingRegressor(**options)
        along = alone.path(X[rows], Y[rows])
        np.testing.assert_allclose(regressor.coef_, alone.coef_, rtol=1e-12)
        np.testing.assert_allclose(predicted[rows], alone.predict(X[rows]), rtol=1e-12)
        for mine, its in zip(path, along):
            np.testing.assert_array_equal(mine[rows], its)


def test_numbers_are_groups_too() -> None:
    codes = np.unique(SHOPS, return_inverse=True)[1]
    model = GroupedRegressor(by=2).fit(np.column_stack([X, codes]), Y)
    named = GroupedRegressor(by="shop")
    for row, shop, y in zip(X.tolist(), SHOPS.tolist(), Y.tolist()):
        named.learn_one({"a": row[0], "b": row[1], "shop": shop}, y)
    for code, shop in enumerate(np.unique(SHOPS).tolist()):
        np.testing.assert_allclose(model.regressors_[code].coef_, SLOPES[shop], atol=0.05)
        np.testing.assert_allclose(model.regressors_[code].coef_, named.regressors_[shop].coef_, rtol=1e-10)
        one = named.predict_one({"shop": shop, "a": 1.0})
        assert one == pytest.approx(model.predict([[1.0, 0.0, code]])[0], rel=1e-10)


def test_groups_that_come_later_and_those_that_nobody_knows() -> None:
    rows = np.column_stack([X, np.repeat([0.0, 1.0], 100)])
    model = GroupedRegressor(by=2).partial_fit(rows[:100], Y[:100])
    assert np.isnan(model.predict(rows)[100:]).all() and np.isfinite(model.predict(rows)[:100]).all()
    model.partial_fit(rows[100:], Y[100:])
    assert np.isfinite(model.predict(rows)).all() and list(model.regressors_) == [0.0, 1.0]
    assert np.isnan(GroupedRegressor(by="shop").predict_one({"shop": "west", "a": 1.0}))


def test_what_is_wrong_names_the_group() -> None:
    broken = X.copy()
    broken[np.flatnonzero(SHOPS == "south")[3], 1] = np.inf
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": broken[:, 0], "shop": SHOPS, "b": broken[:, 1]})
    with pytest.raises(ValueError, match="infinity in row 3, column 'b', of the group 'south'"):
        GroupedRegressor(by="shop").fit(frame, Y)
    with pytest.raises(ValueError, match="X must have the column 'city' but has"):
        GroupedRegressor(by="city").fit(frame, Y)
    with pytest.raises(ValueError, match="y must have 200 rows but has 3"):
        GroupedRegressor(by="shop").fit(frame, Y[:3])
    with pytest.raises(ValueError, match=r"x must have the group 'shop' but has \['a'\]"):
        GroupedRegressor(by="shop").learn_one({"a": 1.0}, 2.0)
