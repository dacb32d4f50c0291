"""Pictures of a forecaster, drawn by the command `ttr chart`: its series, forecasts and bounds, and
its errors."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import numpy as np

from ttr._command import program

from ._constants import Array

if TYPE_CHECKING:
    from ._forecaster import StreamingForecaster


def picture(forecaster: StreamingForecaster, rows: Array, ahead: Array, level: float) -> str:
    """SVG of rows [n] that were read last, and of those to come, with bounds [3, steps]."""
    made = forecaster.forecasts_[-len(rows) :, 0]
    if len(made) != len(rows):
        raise ValueError(
            f"[plot] y must be the {len(made)} rows that were read last, or the last of them, but has "
            f"{len(rows)}"
        )
    to_come, lower, upper = ahead
    seen, steps = np.arange(1.0 - len(rows), 1), np.arange(1.0, len(to_come) + 1)
    series = [
        _line("series", seen, rows),
        _line(f"forecast, {forecaster.horizon} before", seen, made),
        {**_line(f"to come, {100 * level:.10g} %", steps, to_come)}
        | {"low": _finite(lower), "high": _finite(upper)},
    ]
    panels = [
        _panel("series", series),
        _panel("error of the forecasts", [_line("series - forecast", seen, rows - made)]),
    ]
    chart = {"title": str(forecaster.recipe), "subtitle": f"lags {forecaster.lags}"}
    return _drawn({**chart, "panels": panels})


def _panel(title: str, series: list[dict[str, Any]]) -> dict[str, Any]:
    x = {"label": "rows from the last", "scale": "linear"}
    return {"title": title, "x": x, "y": {"scale": "linear"}, "series": series}


def _line(name: str, x: Array, y: Array) -> dict[str, Any]:
    return {"name": name, "mark": "line", "x": x.tolist(), "y": _finite(y)}


def _finite(y: Array) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in y]


def _drawn(chart: dict[str, Any]) -> str:
    command = program()
    if command is None:
        raise RuntimeError("[plot] the command ttr must be on the path, which draws, but is not")
    text = json.dumps(chart, allow_nan=False)
    drawn = subprocess.run([command, "chart"], input=text, capture_output=True, encoding="utf-8")
    if drawn.returncode != 0:
        raise RuntimeError(f"[plot] {drawn.stderr.strip()}")
    return drawn.stdout
