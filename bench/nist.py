#!/usr/bin/env python3
"""Digits of least squares on the certified problems of NIST's statistical reference datasets:

    bench/nist.py                            # the table of docs/sklearn.md
    bench/nist.py --recipe 'affine_rls{importance: input}'

-log10 of the largest relative error of the certified coefficients, and of their standard errors, at
most 15, as many as are certified. Beside numpy.linalg.lstsq of the whole table: `fit` of the whole
table, `learn_one` row by row. The ridge is 0. Problems without an intercept take `rls` where others
take `affine_rls`.
"""

from __future__ import annotations

import argparse
import json
import pathlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
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
    return beta, np.sqrt(variance * np.sum((vt / s[:, None]) ** 2, axis=0))


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


def fits(problem: Problem, recipe: str) -> dict[str, Fit]:
    return {
        "lstsq": by_lstsq(problem),
        "fit": by_ttr(problem, recipe, row_by_row=False),
        "learn_one": by_ttr(problem, recipe, row_by_row=True),
    }


def table(recipe: str) -> list[str]:
    lines = [
        "| digits of | coefficients: lstsq | `fit` | `learn_one` | errors: lstsq | `fit` | `learn_one` |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for problem in problems():
        found = fits(problem, recipe).values()
        shown: list[Any] = [digits(beta, problem.coefficients) for beta, _ in found]
        shown += [digits(errors, problem.errors) for _, errors in found]
        cells = ["" if np.isnan(number) else f"{number:.1f}" for number in shown]
        lines.append(f"| {problem.name} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--recipe", default=RECIPE, help=f"affine_rls with options, {RECIPE}")
    print("\n".join(table(parser.parse_args().recipe)))


if __name__ == "__main__":
    main()
