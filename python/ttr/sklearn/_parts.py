"""What adapters for many machines share: one part of a table, and two fits as one.

A part is a frame with its labels (pandas), or a {column: array} where an engine has those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np
from sklearn.base import clone

from ._forecaster import StreamingForecaster
from ._regressor import StreamingRegressor

T = TypeVar("T")


def fit_part(model: StreamingRegressor, frames: Iterable[Any], y: str) -> StreamingRegressor | None:
    """A new regressor of the rows of these frames, with all columns but y as features. None: no rows."""
    fitted = None
    for frame in frames:
        if len(frame) > 0:
            fitted = clone(model) if fitted is None else fitted
            fitted.partial_fit(frame.drop(columns=y), frame[y])
    return fitted


def merge_parts(a: StreamingRegressor | None, b: StreamingRegressor | None) -> Any:
    """The regressor of both parts."""
    return b if a is None else a if b is None else a.merge(b)


def merged(model: StreamingRegressor | None) -> StreamingRegressor:
    """ValueError: no part had rows."""
    if model is None:
        raise ValueError("[fit] table must have rows but has none")
    return model


def tree(parts: list[T], join: Callable[[T, T], T]) -> T:
    """All parts as one, two by two, in their order: log2 of them wait for each other."""
    if not parts:
        raise ValueError("[fit] table must have parts but has none")
    while len(parts) > 1:
        pairs = [join(a, b) for a, b in zip(parts[::2], parts[1::2])]
        parts = pairs + parts[2 * len(pairs) :]
    return parts[0]


def forecast_part(
    frame: Any, forecaster: StreamingForecaster, freq: Any, steps: int, level: Any
) -> Any:
    """Forecasts of the series of one frame, each whole, as `ForecasterPanel.forecast` has them."""
    if len(frame) == 0:
        return empty_forecasts(frame, level)
    return forecaster.fit_panel(frame[["unique_id", "ds", "y"]], freq).forecast(steps, level)


def empty_forecasts(frame: Any, level: Any) -> Any:
    """No rows, with the columns and types of forecasts."""
    none = frame.iloc[:0][["unique_id", "ds"]].copy()
    levels: Any = [] if level is None else np.atleast_1d(np.asarray(level, np.float64))
    bounds = [f"-{side}-{100 * one:.10g}" for one in levels for side in ("lo", "hi")]
    for name in ("", *bounds):
        none[f"StreamingForecaster{name}"] = np.zeros(0)
    return none
