#!/usr/bin/env python3
"""Errors of least squares over a long stream, beside a batch solve of the rows that count:

    bench/windows.py                        # 10^7 rows; a few minutes
    bench/windows.py --rows 100000

Three features and an intercept, noise of .5, learned in parts of 1 to 2000 rows. *calm*: features of
one scale around 0. *bursts*: 100 rows of 10^6 in every 5000; windows are looked at where none is in
them. Errors are the largest of all coefficients at some twenty places, relative to the largest
coefficient; the batch solve is by orthogonal factors, of centred columns. Downdates take the oldest
row out of the same triangle by hyperbolic rotations, row by row in NumPy, over 10^5 rows at most. Behind
that, digits of NIST's certified problems where rows were learned and taken back.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Iterator

import nist
import numpy as np
from numpy.typing import NDArray
from ttr.sklearn import StreamingRegressor

Array = NDArray[np.float64]
BETA = np.array([1.0, -2.0, 0.5])
PERIOD, BURST = 5000, 100


def drawn(begin: int, end: int, bursts: bool) -> tuple[Array, Array]:
    """Rows begin .. end of a stream that is nowhere stored."""
    parts = []
    for block in range(begin // PERIOD, (end - 1) // PERIOD + 1):
        random = np.random.default_rng(block)
        x = random.standard_normal((PERIOD, 3))
        if bursts:
            x[:BURST] *= 1e6
        y = x @ BETA + 4 + 0.5 * random.standard_normal(PERIOD)
        parts.append(np.column_stack([x, y]))
    first = begin // PERIOD * PERIOD
    rows = np.concatenate(parts)[begin - first : end - first]
    return rows[:, :3], rows[:, 3]


# ---- The rows that count, at once ----------------------------------------------------------------


def batch(end: int, window: int, decay: float, bursts: bool) -> Array:
    """Slopes, by orthogonal factors of blocks and of these together."""
    counted = window or end
    if decay < 1:
        counted = min(counted, math.ceil(math.log(1e-20) / math.log(decay)))
    begin = max(0, end - counted)
    shift = np.column_stack(drawn(begin, begin + 1, bursts))[0]
    sums, weight = np.zeros(4), 0.0
    for x, y, w in blocks(end, counted, decay, bursts):
        rows = np.column_stack([x, y])
        sums, weight = sums + w @ (rows - shift), weight + w.sum()
    factor = np.zeros((0, 4))
    for x, y, w in blocks(end, counted, decay, bursts):
        rows = np.sqrt(w)[:, None] * (np.column_stack([x, y]) - shift - sums / weight)
        factor = np.asarray(np.linalg.qr(np.concatenate([factor, rows]), mode="r"))
    return np.asarray(np.linalg.lstsq(factor[:, :3], factor[:, 3], rcond=None)[0])


def blocks(
    end: int, counted: int, decay: float, bursts: bool
) -> Iterator[tuple[Array, Array, Array]]:
    for begin in range(max(0, end - counted), end, 100_000):
        x, y = drawn(begin, min(end, begin + 100_000), bursts)
        ages = end - 1 - begin - np.arange(len(x), dtype=np.float64)
        yield x, y, decay**ages


# ---- Streams -------------------------------------------------------------------------------------


def streamed(rows: int, window: int, decay: float, bursts: bool) -> tuple[float, float]:
    """The largest error, and microseconds a row."""
    recipe = "affine_rls{factor: qr, ridge: 0" + (f", decay: {decay}" if decay < 1 else "") + "}"
    model = StreamingRegressor(recipe, window=window or None)
    random = np.random.default_rng(1)
    places = looked_at(rows, bursts)
    if window == 0 and decay == 1:  # every batch is of all rows
        places = places[-1:]
    worst, seconds, end = 0.0, 0.0, 0
    while end < rows:
        begin, end = end, min(end + int(random.integers(1, 2001)), rows, places[0])
        x, y = drawn(begin, end, bursts)
        start = time.process_time()
        model.partial_fit(x, y)
        seconds += time.process_time() - start
        if end == places[0]:
            places.pop(0)
            worst = max(worst, error(model.coef_, batch(end, window, decay, bursts)))
            places = places or [rows]
    return worst, seconds / rows


def looked_at(rows: int, bursts: bool) -> list[int]:
    """Behind which rows: where a window of 100 is between two bursts."""
    places = np.linspace(rows / 20, rows, 20).astype(int) // PERIOD * PERIOD
    places = places - (PERIOD // 2 if bursts else 0)
    return [int(place) for place in np.unique(places[places > 0])]


def error(found: Array, want: Array) -> float:
    return float(np.abs(found - want).max() / np.abs(want).max())


# ---- Downdates -----------------------------------------------------------------------------------


class Downdated:
    """The triangle of a window, out of which the oldest row is rotated: A = L^T D L."""

    def __init__(self, width: int) -> None:
        self.d, self.rows = np.zeros(width - 1), np.eye(width - 1, width)

    def rotate(self, row: Array, weight: float) -> None:
        """A weight below 0 takes a row out, by hyperbolic rotations."""
        x = row.copy()
        for i in range(len(self.d)):
            if x[i] == 0 or weight == 0:
                continue
            d = self.d[i] + weight * x[i] * x[i]
            if d <= 0:
                continue
            c, s, mine = self.d[i] / d, weight * x[i] / d, self.rows[i].copy()
            left = x - x[i] * mine
            self.rows[i] = mine + s * left if c >= 0.5 else c * mine + s * x
            self.rows[i, : i + 1] = np.r_[np.zeros(i), 1]
            self.d[i], weight = d, c * weight
            x = left

    def slopes(self) -> Array:
        n = len(self.d)
        return np.asarray(np.linalg.solve(self.rows[:, :n], self.rows[:, n])[1:])


def downdated(rows: int, window: int, bursts: bool) -> float:
    triangle, worst = Downdated(5), 0.0
    x, y = drawn(0, rows, bursts)
    table = np.column_stack([np.ones(rows), x, y])
    places = set(looked_at(rows, bursts))
    for i, row in enumerate(table):
        triangle.rotate(row, 1.0)
        if i >= window:
            triangle.rotate(table[i - window], -1.0)
        if i + 1 in places:
            worst = max(worst, error(triangle.slopes(), batch(i + 1, window, 1, bursts)))
    return worst


# ---- Rows taken back -----------------------------------------------------------------------------


def taken_back(name: str, scale: float) -> tuple[float, float]:
    """Digits of a certified problem's slopes where five other rows, so many times as large, were
    learned and taken back: by `unlearn`, and by downdates."""
    problem = {each.name: each for each in nist.problems()}[name]
    random = np.random.default_rng(1)
    x = problem.x[:5] * (1 + scale * random.standard_normal((5, 1)))
    model = StreamingRegressor("affine_rls{factor: qr, ridge: 0}").fit(problem.x, problem.y)
    model.partial_fit(x, problem.y[:5]).unlearn(x, problem.y[:5])
    triangle = Downdated(problem.x.shape[1] + 2)
    near = np.column_stack([problem.x - problem.x[0], problem.y - problem.y[0]])
    other = np.column_stack([x - problem.x[0], problem.y[:5] - problem.y[0]])
    for row in [*near, *other]:
        triangle.rotate(np.append(1.0, row), 1.0)
    for row in other[::-1]:
        triangle.rotate(np.append(1.0, row), -1.0)
    certified = problem.coefficients[1:]
    return nist.digits(model.coef_, certified), nist.digits(triangle.slopes(), certified)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000_000)
    rows = parser.parse_args().rows
    print(f"{rows} rows\n\n| | calm | bursts | us a row |\n|---|---:|---:|---:|")
    for window, decay in ((0, 1.0), (0, 0.99), (100, 1.0), (100_000, 1.0)):
        if window > rows:
            continue
        found = [streamed(rows, window, decay, bursts) for bursts in (False, True)]
        name = f"window {window}" if window else f"decay {decay:g}"
        print(f"| {name} | {found[0][0]:.1e} | {found[1][0]:.1e} | {1e6 * found[0][1]:.2f} |", flush=True)
    fewer = min(rows, 100_000)
    calm, loud = (downdated(fewer, 100, bursts) for bursts in (False, True))
    print(f"| window 100 by downdates, {fewer} rows | {calm:.1e} | {loud:.1e} | |")
    print("\n| digits left | unlearn | downdates |\n|---|---:|---:|")
    warnings.simplefilter("ignore")  # of what is left of Longley
    for name in ("norris", "longley", "wampler1"):
        for scale in (1.0, 1e3):
            mine, other = taken_back(name, scale)
            print(f"| {name}, rows of {scale:g} | {mine:.1f} | {other:.1f} |")


if __name__ == "__main__":
    main()
