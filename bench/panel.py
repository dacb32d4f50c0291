"""The table of docs/sklearn.md, "Many series": a panel beside statsforecast's fastest models.

    python bench/panel.py [SERIES]      # needs statsforecast and pandas; 500 series without a number
    python bench/panel.py --long        # seconds to read 10 000 series of 1000 rows with 16 lags

Monthly series of 120 rows with level, growth, season and noise of their own, one column a series; the
last twelve rows are kept back. The mean absolute error over that of the value a year before in what was
read (MASE), the share inside of intervals of level .9, and seconds of processor time for fit, forecasts
and intervals, in one process after a first run on three series, which compiles.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas
from reporting.tables import markdown
from ttr.sklearn import StreamingForecaster

YEAR, ROWS = 12, 120


def table(series: int) -> pandas.DataFrame:
    random = np.random.default_rng(0)
    t = np.arange(ROWS)
    level, growth = random.uniform(50, 500, (series, 1)), random.normal(0.003, 0.004, (series, 1))
    phase, depth = random.uniform(0, YEAR, (series, 1)), random.uniform(0, 0.4, (series, 1))
    walk = 0.02 * random.standard_normal((series, ROWS)).cumsum(1)
    noise = 0.04 * random.standard_normal((series, ROWS))
    season = 1 + depth * np.sin(2 * np.pi * (t + phase) / YEAR)
    y = level * np.exp(growth * t + walk + noise) * season
    ids = np.repeat([f"s{i:05d}" for i in range(series)], ROWS)
    return pandas.DataFrame({"unique_id": ids, "ds": np.tile(t, series), "y": y.ravel()})


def methods() -> dict[str, Callable[[pandas.DataFrame], tuple[pandas.DataFrame, str]]]:
    from statsforecast import StatsForecast
    from statsforecast.models import AutoETS, AutoTheta, SeasonalNaive, Theta

    options: dict[str, dict[str, Any]] = {
        "ttr, rls, log": {"lags": 13, "log": True, "ahead": YEAR},
        "ttr, affine_rls, log": {
            "recipe": "affine_rls{ridge: 0.1}", "lags": 13, "log": True, "ahead": YEAR
        },
        "ttr, rls, log, direct": {
            "lags": 13, "log": True, "horizon": YEAR, "strategy": "direct"
        },
        "ttr, rls, log, combined": {
            "lags": 13, "log": True, "horizon": YEAR, "strategy": "combined"
        },
    }

    def ours(given: dict[str, Any]) -> Any:
        return lambda frame: (
            StreamingForecaster(**given).fit_panel(frame, 1).forecast(YEAR, 0.9),
            "StreamingForecaster",
        )

    def theirs(model: Any) -> Any:
        return lambda frame: (
            StatsForecast(models=[model], freq=1).forecast(df=frame, h=YEAR, level=[90]),
            repr(model),
        )

    peers = [SeasonalNaive(YEAR), Theta(YEAR), AutoTheta(season_length=YEAR), AutoETS(YEAR)]
    found = {name: ours(given) for name, given in options.items()}
    return found | {f"statsforecast {model!r}": theirs(model) for model in peers}


def long_panel(series: int, rows: int) -> str:
    """Random walks, on all cores."""
    y = np.random.default_rng(0).standard_normal((series, rows)).cumsum(1)
    ids, ds = np.repeat(np.arange(series), rows), np.tile(np.arange(rows), series)
    wall, busy = time.perf_counter(), time.process_time()
    StreamingForecaster(lags=16).fit_panel({"unique_id": ids, "ds": ds, "y": y.ravel()})
    wall, busy = time.perf_counter() - wall, time.process_time() - busy
    return f"{series} series of {rows} rows: {wall:.1f} s, {busy:.1f} s of processor time"


def main() -> None:
    warnings.simplefilter("ignore")
    if sys.argv[1:] == ["--long"]:
        print(long_panel(10_000, 1000))
        return
    whole = table(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
    read, kept = whole[whole["ds"] < ROWS - YEAR], whole[whole["ds"] >= ROWS - YEAR]
    wide = read["y"].to_numpy().reshape(-1, ROWS - YEAR)
    scale = np.abs(wide[:, YEAR:] - wide[:, :-YEAR]).mean(1)
    rows = []
    for name, method in methods().items():
        method(read[read["unique_id"] < "s00003"])
        start = time.process_time()
        ahead, column = method(read)
        seconds = time.process_time() - start
        both = kept.merge(ahead, on=["unique_id", "ds"])
        assert len(both) == len(kept)
        apart = np.abs(both[column] - both["y"]).to_numpy().reshape(-1, YEAR).mean(1)
        inside = (both[f"{column}-lo-90"] <= both["y"]) & (both["y"] <= both[f"{column}-hi-90"])
        rows.append([name, f"{np.mean(apart / scale):.3f}", f"{inside.mean():.3f}", f"{seconds:.2f}"])
    print(markdown([f"{len(scale)} series", "MASE", "inside 90 %", "s"], rows))


if __name__ == "__main__":
    main()
