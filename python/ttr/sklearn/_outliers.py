"""What of a pair far from the rest a forecaster's memory learns (docs/forecast.md, "Outliers")."""

from __future__ import annotations

import numpy as np

import ttr

from ._constants import Array
from ._residuals import length


class Outliers:
    """Pairs come in the units of a window, whose key is no longer than 1.

    Linear memories without an intercept: a value longer than 1 is divided by its length, and so is its
    key. That is the same relation with less weight.

    All others: divided keys and values are another relation (an intercept is not divided, a kernel
    compares keys by their distance, a step over |k|^2 does not see a factor), so the key stays and the
    *error* is held: what is learned is the forecast plus an error no longer than the room. The room is
    the reach, 1 or how far a straight line goes on from its window, and doubles with every `horizon`
    errors that it held one after the other: what keeps on being an outlier is none.

    Networks: steps of descent diverge with targets far off, and then so do forecasts. The key stays, the
    value is no longer than 1: forecasts of a trend that leads out of its window stay behind.
    """

    def __init__(self, recipe: ttr.Recipe, lags: int, horizon: int) -> None:
        self._divides = weighs_by_length(recipe)
        self._descends = recipe.option("function") == "network"
        self._reach, self._horizon = reach(lags, horizon), horizon
        self._run = 0  # errors held one after the other

    def held(self, key: Array, value: Array, forecast: Array) -> tuple[Array, Array]:
        """The pair that is learned of a window's, of which so much had been forecast."""
        if self._divides or self._descends:
            times = max(length(value), 1.0)
            return key if self._descends else key / times, value / times
        forecast = np.where(np.isfinite(forecast), forecast, 0.0)
        error = value - forecast
        far, room = length(error), self._reach * 2 ** min(self._run / self._horizon, 1000)
        if not far > room:
            self._run = 0
            return key, value
        self._run += 1
        return key, forecast + error * (room / far)


def weighs_by_length(recipe: ttr.Recipe) -> bool:
    """Is a pair divided by d the same relation to the memory, with a weight of 1 / d^2?"""
    return all(recipe.option(name) == value for name, value in _HOMOGENEOUS) and not (
        recipe.option("optimizer") == "sgd" and recipe.option("step") == "nlms"
    )


def reach(lags: int, horizon: int) -> float:
    """How far from its mean a straight line is `horizon` rows behind a window of length 1, if that is
    more than 1: deviations 1 - (lags + 1) / 2 ... (lags - 1) / 2 have the length
    sqrt(lags (lags^2 - 1) / 12)."""
    moved = np.sqrt(lags * (lags**2 - 1) / 12)
    return max(1.0, float(((lags - 1) / 2 + horizon) / moved)) if lags > 1 else 1.0


_HOMOGENEOUS = (
    ("function", "linear"),
    ("features", "none"),
    ("normalise_sum", "none"),
    ("normalise_qk", "false"),
    ("output_norm", "none"),
)
