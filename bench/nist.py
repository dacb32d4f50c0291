#!/usr/bin/env python3
"""Digits of least squares on the certified problems of NIST's statistical reference datasets:

    bench/nist.py                            # the table of docs/sklearn.md
    bench/nist.py --recipe 'affine_rls{importance: input}'
    bench/nist.py --offsets                  # digits of slopes where regressors or the response are moved

-log10 of the largest relative error of the certified coefficients, and of their standard errors, at
most 15, as many as are certified; the median over orders of the rows, as any order rounds in its own
way. Beside numpy.linalg.lstsq of the whole table: `fit` of the whole table, `learn_one` row by row.
The ridge is 0. Problems without an intercept take `rls` where others take `affine_rls`.
"""

from __future__ import annotations

import argparse
import json
import pathlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from ttr._markdown import table as markdown
from ttr.sklearn import StreamingRegressor

Array = NDArray[np.float64]
DATA = pathlib.Path(__file__).resolve().parents[1] / "data/nist_linear.json"
RECIPE = "affine_rls{factor: qr, importance: input}"


class Problem(NamedTuple):
    name: str
    x: Array  # [n, p], powers where it is a polynomial
    y: Array
    intercept: bool
    coefficients: Array  # the intercept first
    errors: Array  # 0 where all residuals are

    @property
    def design(self) -> Array:
        ones = np.ones((len(self.x), int(self.intercept)))
        return np.concatenate([ones, self.x], axis=1)


def problems() -> list[Problem]:
    """From the easiest to the hardest, as NIST has them."""
    found = []
    for name, given in json.loads(DATA.read_text(encoding="utf-8")).items():
        rows = np.array(given["rows"], dtype=float)
        x = np.concatenate([rows[:, 1:] ** d for d in range(1, given["degree"] + 1)], axis=1)
        certified = (np.array(given[key], dtype=float) for key in ("coefficients", "errors"))
        found.append(Problem(name, x, rows[:, 0], given["intercept"], *certified))
    return found


def digits(got: Array, certified: Array) -> float:
    """NaN where nothing relative is certified."""
    if not np.all(certified):
        return float("nan")
    error = np.abs(got - certified) / np.abs(certified)
    return float(-np.log10(np.maximum(error, 1e-15)).min())


Fit = tuple[Array, Array]  # coefficients, the intercept first, and their standard errors


def by_lstsq(problem: Problem) -> Fit:
    x, y = problem.design, problem.y
    beta = np.linalg.lstsq(x, y, rcond=None)[0]
    _, s, vt = np.linalg.svd(x, full_matrices=False)
    variance = np.sum((y - x @ beta) ** 2) / (len(x) - x.shape[1])
    errors = np.sqrt(variance * np.sum((vt / s[:, None]) ** 2, axis=0))
    return np.asarray(beta, np.float64), np.asarray(errors, np.float64)


def by_ttr(problem: Problem, recipe: str, row_by_row: bool) -> Fit:
    linear = recipe if problem.intercept else recipe.replace("affine_rls", "rls")
    model = StreamingRegressor(linear.replace("{", "{ridge: 0, "))
    if row_by_row:
        for row, value in zip(problem.x, problem.y):
            model.learn_one(dict(enumerate(row)), value)
    else:
        model.fit(problem.x, problem.y)
    first = int(problem.intercept)
    beta = np.append([model.intercept_] * first, model.coef_)
    return beta, np.append([model.intercept_stderr_] * first, model.coef_stderr_)


def reordered(problem: Problem, orders: int) -> Iterator[Problem]:
    """The rows as they are given, then in orders that are drawn."""
    yield problem
    random = np.random.default_rng(0)
    for _ in range(orders - 1):
        order = random.permutation(len(problem.y))
        yield problem._replace(x=problem.x[order], y=problem.y[order])


def fits(problem: Problem, recipe: str) -> dict[str, Fit]:
    return {
        "lstsq": by_lstsq(problem),
        "fit": by_ttr(problem, recipe, row_by_row=False),
        "learn_one": by_ttr(problem, recipe, row_by_row=True),
    }


def median_digits(problem: Problem, recipe: str, orders: int) -> dict[str, tuple[float, float]]:
    """Of coefficients and of standard errors, by method."""
    found: dict[str, list[tuple[float, float]]] = {}
    for rows in reordered(problem, orders):
        for method, (beta, errors) in fits(rows, recipe).items():
            both = digits(beta, problem.coefficients), digits(errors, problem.errors)
            found.setdefault(method, []).append(both)
    medians = {method: np.median(both, axis=0) for method, both in found.items()}
    return {method: (float(both[0]), float(both[1])) for method, both in medians.items()}


def table(recipe: str, orders: int) -> str:
    head = ["digits of", "coefficients: lstsq", "`fit`", "`learn_one`", "errors: lstsq", "`fit`", "`learn_one`"]
    rows = []
    for problem in problems():
        found = median_digits(problem, recipe, orders).values()
        shown = [beta for beta, _ in found] + [errors for _, errors in found]
        rows.append([problem.name, *("" if np.isnan(number) else f"{number:.1f}" for number in shown)])
    return markdown(head, rows)


def slope_digits(x: Array, y: Array, recipe: str, moved: str, offset: float, kind: str) -> float:
    """Of slopes, with `offset` added in numbers of that kind, beside lstsq of the rows as they were."""
    known = np.linalg.lstsq(x - x.mean(0), y - y.mean(), rcond=None)[0]
    far_x = (x + offset * (moved == "regressors")).astype(kind)
    far_y = (y + offset * (moved == "response")).astype(kind)
    model = StreamingRegressor(recipe.replace("{", "{ridge: 0, ")).fit(far_x, far_y)
    return digits(model.coef_, known)


def offsets_table(recipe: str) -> str:
    """1000 rows of four standard normal regressors, noise of .1."""
    random = np.random.default_rng(0)
    x = random.standard_normal((1000, 4))
    y = x @ [1.0, -2.0, 0.5, 3.0] + 4 + 0.1 * random.standard_normal(1000)
    offsets = (0.0, 1e3, 1e6, 1e9)
    rows = []
    for kind in ("float64", "float32"):
        for moved in ("regressors", "response"):
            found = [slope_digits(x, y, recipe, moved, offset, kind) for offset in offsets]
            rows.append([f"{moved}, {kind}", *(f"{number:.1f}" for number in found)])
    return markdown(["digits of slopes", *(f"{offset:.0e}" for offset in offsets)], rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--recipe", default=RECIPE, help=f"affine_rls with options; {RECIPE}")
    parser.add_argument("--orders", type=int, default=31, help="of the rows; 31")
    parser.add_argument("--offsets", action="store_true", help="how many digits an offset takes")
    given = parser.parse_args()
    print(offsets_table(given.recipe) if given.offsets else table(given.recipe, given.orders))


if __name__ == "__main__":
    main()
