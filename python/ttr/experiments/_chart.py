"""Line charts as data; the command `ttr chart` draws them."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ttr._command import program


@dataclass
class Series:
    """Points x, y with a bar of `error` to both sides; a y that is not finite is a gap."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    error: Sequence[float]


@dataclass(frozen=True)
class Axis:
    """y from `low` to `high`, from the data where these are absent; by its logarithm where `log`."""

    low: float | None = None
    high: float | None = None
    log: bool = False


@dataclass
class Panel:
    """Lines over one pair of axes. What stands at x is the chart's where `x_label` is empty."""

    title: str
    series: list[Series] = field(default_factory=list)
    y: Axis = Axis(0.0, 1.0)
    x_label: str = ""


def describe(title: str, subtitle: str, panels: Sequence[Panel], x_label: str) -> dict[str, Any]:
    """What `ttr chart` reads: panels side by side, x by its logarithm."""
    described = [_panel(panel, panel.x_label or x_label) for panel in panels]
    return {"title": title, "subtitle": subtitle, "panels": described}


def chart(title: str, subtitle: str, panels: Sequence[Panel], x_label: str) -> str:
    """The chart as SVG, by `draw`."""
    return draw(describe(title, subtitle, panels, x_label))


def draw(described: dict[str, Any]) -> str:
    """A chart as SVG; empty, with a word on standard error, where the command cannot draw."""
    text = json.dumps(described, allow_nan=False)
    command = program()
    if command is None:
        print("ttr.experiments: no picture, which the command ttr draws", file=sys.stderr)
        return ""
    return subprocess.run([command, "chart"], input=text, stdout=-1, encoding="utf-8").stdout


def _panel(panel: Panel, x_label: str) -> dict[str, Any]:
    # Counts are read by powers of two, shares by powers of ten.
    counts = all(x >= 1 for series in panel.series for x in series.x)
    ends = {"min": panel.y.low, "max": panel.y.high}
    return {
        "title": panel.title,
        "x": {"label": x_label, "scale": "log2" if counts else "log10"},
        "y": {"scale": "log10" if panel.y.log else "linear"}
        | {name: end for name, end in ends.items() if end is not None},
        "series": [_series(series, panel.y) for series in panel.series],
    }


def _series(series: Series, y: Axis) -> dict[str, Any]:
    errors = [e if math.isfinite(e) else 0.0 for e in series.error]
    low = [v - e if y.low is None else max(v - e, y.low) for v, e in zip(series.y, errors)]
    high = [v + e if y.high is None else min(v + e, y.high) for v, e in zip(series.y, errors)]
    columns = {"x": series.x, "y": series.y, "low": low, "high": high}
    finite = {n: [v if math.isfinite(v) else None for v in vs] for n, vs in columns.items()}
    return {"name": series.name, "mark": "line_points", **finite}
