#!/usr/bin/env python3
"""Errors of rows taken back, and of rolling windows, beside a batch fit of the rows that remain:

    bench/forgetting.py                     # some four minutes
    bench/forgetting.py --rows 10000

Three features and an intercept, noise of .5, at 0 and where every number has 10^6 added. Errors are
the largest of all coefficients and of all checks, relative to the largest coefficient; the batch fit
is numpy.linalg.lstsq on centred columns. Time is of a row learned (and one taken back), in us.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from numpy.typing import NDArray
from ttr.sklearn import StreamingRegressor

Array = NDArray[np.float64]
RECIPE = "affine_rls{ridge: 0}"
BETA = np.array([1.0, -2.0, 0.5])


def drawn(rows: int, offset: float) -> tuple[Array, Array]:
    """Multiples of 2^-10, to which an offset can be added without rounding."""
    random = np.random.default_rng(0)
    x = np.round(1024 * random.standard_normal((rows, 3))) / 1024
    y = np.round(1024 * (x @ BETA + 0.5 * random.standard_normal(rows))) / 1024
    return x + offset, y + offset


def batch(x: Array, y: Array) -> tuple[Array, float]:
    """Coefficients and s^2."""
    x, y = x - x.mean(0), y - y.mean()
    beta = np.linalg.lstsq(x, y, rcond=None)[0]
    return beta, float(np.sum((y - x @ beta) ** 2) / (len(x) - 4))


def errors(model: StreamingRegressor, x: Array, y: Array) -> tuple[float, float]:
    beta, variance = batch(x, y)
    off = np.abs(model.coef_ - beta).max() / np.abs(beta).max()
    return float(off), float(abs(model.residual_variance_ / variance - 1))


def shrinking(x: Array, y: Array, left: int) -> tuple[float, float, float]:
    """All rows learned, then taken back one by one until some are left."""
    model = StreamingRegressor(RECIPE).fit(x, y)
    begin = time.process_time()
    for i in range(len(x) - left):
        model.unlearn(x[i : i + 1], y[i : i + 1])
    seconds = time.process_time() - begin
    return *errors(model, x[-left:], y[-left:]), seconds / (len(x) - left)


def rolling(
    model: StreamingRegressor, x: Array, y: Array, window: int
) -> tuple[float, float, float]:
    """A row learned and what is too old forgotten, over and over."""
    worst, seconds = np.zeros(2), 0.0
    for i, (row, value) in enumerate(zip(x.tolist(), y.tolist())):
        begin = time.process_time()
        model.learn_one(dict(enumerate(row)), value)
        if model.window is None and i >= window:
            old = slice(i - window, i - window + 1)
            model.unlearn(x[old], y[old])
        seconds += time.process_time() - begin
        if i > 2 * window and i % max(1, len(x) // 500) == 0:
            now = slice(i + 1 - window, i + 1)
            worst = np.maximum(worst, errors(model, x[now], y[now]))
    return float(worst[0]), float(worst[1]), seconds / len(x)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--rows", type=int, default=100_000, help="windows roll over ten times as many"
    )
    parser.add_argument("--window", type=int, default=100)
    given = parser.parse_args()
    rows, window = given.rows, given.window
    print(f"{'':44}{'coefficients':>14}{'s^2':>10}{'us a row':>10}")
    for offset in (0.0, 1e6):
        x, y = drawn(rows, offset)
        report(f"unlearn, {rows} rows to {window}, at {offset:g}", *shrinking(x, y, window))
        figures = rolling(StreamingRegressor(RECIPE), x, y, window)
        report(f"learn, unlearn, {rows} rows, at {offset:g}", *figures)
        model, more = StreamingRegressor(RECIPE, window=window), drawn(10 * rows, offset)
        report(f"window={window}, {10 * rows} rows, at {offset:g}", *rolling(model, *more, window))


def report(what: str, coefficients: float, variance: float, seconds: float) -> None:
    print(f"{what:44}{coefficients:14.1e}{variance:10.1e}{1e6 * seconds:10.1f}", flush=True)


if __name__ == "__main__":
    main()
