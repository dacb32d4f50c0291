"""Forty series of one table: forecasts, intervals, and whether these keep what they promise.

    python examples/panel/panel.py [FOLDER]      # pictures go there, which the command `ttr` draws

Monthly sales of forty shops, each with its own level, growth and season, as a long table of
`unique_id`, `ds`, `y`. The last year is kept back; everything before is read once.

sales.csv has four of them, without two months of one, for the command:

    ttr forecast examples/panel/sales.csv --by unique_id --lags 13 --log --ahead 12 --interval --out sales/
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from ttr.sklearn import ForecasterPanel, StreamingForecaster

SHOPS, MONTHS, YEAR = 40, 132, 12


def sales() -> dict[str, NDArray]:
    random = np.random.default_rng(0)
    t = np.arange(MONTHS)
    months = np.datetime64("2014-01") + t
    values = []
    for _ in range(SHOPS):
        level, growth, phase = random.uniform(50, 500), random.uniform(0, 0.01), random.uniform(0, 12)
        season = 1 + 0.3 * np.sin(2 * np.pi * (t + phase) / YEAR)
        values.append(level * np.exp(growth * t + 0.05 * random.standard_normal(MONTHS)) * season)
    names = np.repeat([f"shop {i:02d}" for i in range(SHOPS)], MONTHS)
    return {"unique_id": names, "ds": np.tile(months, SHOPS), "y": np.concatenate(values)}


def halves(table: dict[str, NDArray]) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
    """What is read, and the year that is kept back."""
    last = table["ds"] > table["ds"].max() - YEAR
    parts = ({name: column[rows] for name, column in table.items()} for rows in (~last, last))
    return next(parts), next(parts)


def report(panel: ForecasterPanel, kept: dict[str, NDArray]) -> tuple[float, float]:
    """The errors of a year, over those of repeating the year before; the share inside of bounds."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # every row has bounds
        ahead = panel.forecast(YEAR, level=0.9)
    assert (ahead["unique_id"] == kept["unique_id"]).all()
    assert (ahead["ds"].astype("M8[M]") == kept["ds"]).all()
    errors = np.abs(ahead["StreamingForecaster"] - kept["y"])
    inside = (ahead["StreamingForecaster-lo-90"] <= kept["y"]) & (
        kept["y"] <= ahead["StreamingForecaster-hi-90"]
    )
    return float(errors.mean()), float(inside.mean())


def main(folder: Path | None = None) -> tuple[float, float, float]:
    read, kept = halves(sales())
    # Sales grow by shares: logarithms, and an intercept. A month is like those of the year before.
    forecaster = StreamingForecaster("affine_rls{ridge: 0.1}", lags=13, log=True, ahead=YEAR)
    panel = forecaster.fit_panel(read)
    error, inside = report(panel, kept)
    shape = (SHOPS, -1)
    naive = np.abs(read["y"].reshape(shape)[:, -YEAR:] - kept["y"].reshape(shape)).mean()
    print(f"mean error {error:.2f}, repeating the year before {naive:.2f}, inside 90 %: {inside:.3f}")

    panel.partial_fit(kept)  # the year comes, and is learned
    print(f"{len(panel.forecasters_)} series go on after {panel.forecasters_['shop 00'].n_seen_} rows")
    if folder is not None:
        for name in ("shop 00", "shop 01"):
            rows = kept["y"][kept["unique_id"] == name]
            picture = panel.forecasters_[name].plot(rows, steps=YEAR, level=0.9)
            (folder / f"{name.replace(' ', '-')}.svg").write_text(picture, encoding="utf-8")
    return error, naive, inside


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
