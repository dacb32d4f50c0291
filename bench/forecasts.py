"""The table of docs/forecast.md, "Several steps ahead": scaled errors one and twelve rows ahead.

    python bench/forecasts.py                 # needs statsmodels, whose data they are
    python bench/forecasts.py --options       # options on ten series; needs sktime, too, for some of these,
                                              # and has statsforecast's models beside where that is there

Rolling origin: from the middle of a series on, every row in turn is the last one known, and the row one
and twelve behind it is forecast; then one row more is learned. The mean absolute error, over that of the
last value in the first half, one row ahead (MASE, Hyndman and Koehler 2006); with --options over that of
the value one season before, and beside it the share of rows inside of intervals of level .95.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

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


# ---- Options -------------------------------------------------------------------------------------


def shipped() -> dict[str, tuple[Array, int]]:
    """Series that packages ship, with their seasons."""
    from sktime.datasets import load_airline, load_lynx, load_PBS_dataset
    from statsmodels.datasets import elnino, macrodata

    macro = macrodata.load_pandas().data
    old = all_series()
    return {
        "airline": (load_airline().to_numpy(float), 12),
        "lynx": (load_lynx().to_numpy(float), 1),
        "co2": (old["co2, monthly"][0][0], 12),
        "sunspots": (old["sunspots"][0][0], 1),
        "cpi": (macro["cpi"].to_numpy(), 4),
        "gdp": (macro["realgdp"].to_numpy(), 4),
        "unemployment": (macro["unemp"].to_numpy(), 4),
        "nile": (old["nile"][0][0], 1),
        "prescriptions": (load_PBS_dataset().to_numpy(float), 12),
        "el nino": (elnino.load_pandas().data.drop(columns="YEAR").to_numpy().ravel(), 12),
    }


def with_options(season: int) -> dict[str, dict[str, Any]]:
    lags = {12: 13, 4: 9, 1: 11}[season]
    reach = {"ahead": AHEAD, "intervals": "conformal"}
    direct = {"horizon": AHEAD, "strategy": "direct", "intervals": "conformal"}
    seasonal = [season] if season > 1 else []
    return {
        "rls": {"lags": lags, **reach},
        "rls, log": {"lags": lags, "log": True, **reach},
        "rls, log, differences": {"lags": lags, "log": True, "differences": seasonal, **reach},
        "affine_rls, log": {"recipe": "affine_rls{ridge: 0.1}", "lags": lags, "log": True, **reach},
        "rls, log, direct": {"lags": lags, "log": True, **direct},
        "rls, log, combined": {"lags": lags, "log": True, **direct, "strategy": "combined"},
    }


def of_origins(options: dict[str, Any], series: Array, season: int) -> list[float]:
    """MASE one and twelve rows ahead, coverage twelve rows ahead."""
    half = len(series) // 2
    scale = np.mean(np.abs(series[season:half] - series[: half - season]))
    shift = 1.0 if options.get("log") and series.min() <= 0 else 0.0
    model = StreamingForecaster(**options).fit(series[:half] + shift)
    errors: dict[int, list[float]] = {1: [], AHEAD: []}
    inside = []
    for t in range(half, len(series)):
        forecasts = model.forecast(AHEAD)[:, 0] - shift
        for k, found in errors.items():
            if t + k <= len(series):
                found.append(abs(series[t + k - 1] - forecasts[k - 1]))
        if t + AHEAD <= len(series):
            lower, upper = (bound[-1, 0] - shift for bound in model.forecast_interval(AHEAD))
            inside.append(lower <= series[t + AHEAD - 1] <= upper)
        model.learn_one(series[t] + shift)
    return [*(float(np.mean(found) / scale) for found in errors.values()), float(np.mean(inside))]


def of_peers(series: Array, season: int) -> dict[str, list[float]]:
    """The same of statsforecast: orders found in the first half, states that go on."""
    import pandas
    from statsforecast import StatsForecast
    from statsforecast.models import AutoARIMA, AutoTheta

    half = len(series) // 2
    scale = np.mean(np.abs(series[season:half] - series[: half - season]))
    frame = pandas.DataFrame({"unique_id": "a", "ds": np.arange(len(series)), "y": series})
    models = [AutoARIMA(season_length=season), AutoTheta(season_length=season)]
    found = StatsForecast(models=models, freq=1).cross_validation(
        df=frame, h=AHEAD, n_windows=len(series) - half - AHEAD + 1, refit=False, level=[95]
    )
    lead = found["ds"] - found["cutoff"]
    result = {}
    for name in ("AutoARIMA", "AutoTheta"):
        apart = (found[name] - found["y"]).abs()
        inside = (found["y"] >= found[f"{name}-lo-95"]) & (found["y"] <= found[f"{name}-hi-95"])
        result[name] = [apart[lead == k].mean() / scale for k in (1, AHEAD)]
        result[name].append(inside[lead == AHEAD].mean())
    return result


def options_table() -> str:
    cells: dict[str, list[list[float]]] = {}
    series = shipped()
    for values, season in series.values():
        for name, options in with_options(season).items():
            cells.setdefault(name, []).append(of_origins(options, values, season))
        try:
            peers = of_peers(values, season)
        except ImportError:
            continue
        for name, row in peers.items():
            cells.setdefault(name, []).append(row)
    rows = []
    for name, found in cells.items():
        one, twelve = np.exp(np.mean(np.log(np.array(found)[:, :2]), axis=0))
        each = [f"{a:.3g}, {b:.3g}, {c:.2f}" for a, b, c in found]
        rows.append([name, f"{one:.3f}, {twelve:.3f}, {np.mean([c for *_, c in found]):.3f}", *each])
    return markdown(["one, twelve ahead, coverage", "geometric mean", *series], rows)


def main() -> None:
    if sys.argv[1:] == ["--options"]:
        warnings.simplefilter("ignore")
        print(options_table())
        return
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
