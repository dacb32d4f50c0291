"""The table of docs/forecast.md, "Several steps ahead": scaled errors one and twelve rows ahead.

    python bench/forecasts.py                 # needs statsmodels, whose data they are

Rolling origin: from the middle of a series on, every row in turn is the last one known, and the row one
and twelve behind it is forecast; then one row more is learned. The mean absolute error, over that of the
last value in the first half, one row ahead (MASE, Hyndman and Koehler 2006).
"""

from __future__ import annotations


import numpy as np
from numpy.typing import NDArray
from reporting.tables import markdown
from statsmodels.datasets import co2, nile, sunspots
from ttr.sklearn import StreamingForecaster

Array = NDArray[np.float64]
MEMORIES = {
    "rls": "rls{ridge: 0.1}",
    "affine_rls": "affine_rls",
    "weighted_rls": "weighted_rls{decay: 0.99, ridge: 0.1}",
    "local_linear": "local_linear{kernel: gaussian, bandwidth: 1, window: 256}",
    "kernel_rls": "kernel_rls",
    "nadaraya_watson": "nadaraya_watson{window: 256, bandwidth: 0.02}",
    "nlms": "nlms",
    "deltanet": "deltanet",
}
AHEAD = 12


def all_series() -> dict[str, tuple[list[Array], int]]:
    """Each with the lags that its seasons ask for."""
    weekly = co2.load_pandas().data["co2"]
    monthly = weekly.resample("MS").mean().interpolate().to_numpy()
    spots = sunspots.load_pandas().data["SUNACTIVITY"].to_numpy()
    return {
        "co2, monthly": ([monthly], 13),
        "sunspots": ([spots], 11),
        "nile": ([nile.load_pandas().data["volume"].to_numpy()], 4),
        "8 walks with drift": ([walk(seed) for seed in range(8)], 4),
        "10 + t": ([10 + np.arange(400.0)], 4),
    }


def walk(seed: int) -> Array:
    random = np.random.default_rng(seed)
    return np.asarray(np.cumsum(0.3 + random.standard_normal(400)))


def scaled_errors(recipe: str, series: Array, lags: int) -> list[float]:
    """One and twelve rows ahead."""
    half = len(series) // 2
    scale = np.mean(np.abs(np.diff(series[:half])))
    model = StreamingForecaster(recipe, lags=lags).fit(series[:half])
    errors: dict[int, list[float]] = {1: [], AHEAD: []}
    for t in range(half, len(series)):
        forecasts = model.forecast(AHEAD)[:, 0]
        for k, found in errors.items():
            if t + k <= len(series):
                found.append(abs(series[t + k - 1] - forecasts[k - 1]))
        model.learn_one(series[t])
    return [float(np.mean(found) / scale) for found in errors.values()]


def main() -> None:
    table = all_series()
    rows = []
    for name, recipe in MEMORIES.items():
        cells = [
            np.mean([scaled_errors(recipe, one, lags) for one in series], axis=0)
            for series, lags in table.values()
        ]
        rows.append([name, *(f"{a:.3g}, {b:.3g}" for a, b in cells)])
    print(markdown(["one, twelve ahead", *table], rows))


if __name__ == "__main__":
    main()
