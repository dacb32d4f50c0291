"""Estimators that go on learning, for those who know scikit-learn. NumPy and scikit-learn.

    python examples/python/streaming.py [data/co2_weekly.csv]

Part 1 forecasts weekly CO2 with its gaps, week by week and then a year ahead. Part 2 is a
regression whose coefficients drift: with and without forgetting, with standard errors.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
from ttr.sklearn import StreamingForecaster, StreamingRegressor


def forecast(path: Path) -> None:
    with path.open(newline="") as file:
        series = np.array([float(row["co2"] or "nan") for row in csv.DictReader(file)])

    model = StreamingForecaster("rls{ridge: 0.1}", lags=52).fit(series[:2000])
    print(f"skill over repeating the last value: {model.score(series[2000:]):.3f}")

    for value in series[2000:]:  # as weeks come; NaN where one is missing
        model.learn_one(value)
    lower, upper = model.forecast_interval(1, level=0.95)
    print(f"next week {model.predict_one():.2f} ppm, within {lower[0, 0]:.2f} .. {upper[0, 0]:.2f}")
    year = model.forecast(52)[:, 0]
    print(f"a year ahead {year[-1]:.2f} ppm, highest in week {year.argmax() + 1}")


def regress() -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal((3000, 2))
    slope = np.linspace(1, 3, len(x))  # drifts
    y = slope * x[:, 0] - 2 * x[:, 1] + 5 + 0.3 * random.standard_normal(len(x))

    for recipe in ("affine_rls", "affine_rls{decay: 0.98}"):
        model = StreamingRegressor(recipe).fit(x, y)
        coefficients = zip(model.coef_, model.coef_stderr_)
        text = ", ".join(f"{c:.3f} +- {e:.3f}" for c, e in coefficients)
        print(f"{recipe}: {text}; the first is {slope[-1]:.0f} now")

    # The same, row by row with names, as river's models are used.
    model = StreamingRegressor("affine_rls{decay: 0.98}")
    errors = []
    for (a, b), value in zip(x.tolist(), y):
        errors.append(value - model.predict_one({"a": a, "b": b}))
        model.learn_one({"a": a, "b": b}, value)
    print(f"root mean square error on the way: {np.sqrt(np.mean(np.square(errors[100:]))):.3f}")


if __name__ == "__main__":
    here = Path(__file__).resolve().parents[2]
    forecast(Path(sys.argv[1]) if len(sys.argv) > 1 else here / "data" / "co2_weekly.csv")
    regress()
