"""Line charts as SVG, drawn with nothing but text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

# Okabe and Ito's colours, told apart by the colour-blind; a dash pattern each besides.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
_DASHES = ("", "6 3", "2 2", "8 3 2 3", "4 4", "1 3", "10 4")
_INK, _RULE = "#24292f", "#d0d7de"
_STYLE = (
    "svg:root{background:#fff}@media (prefers-color-scheme:dark){svg:root{background:#14171b}"
    f"[fill='{_INK}']{{fill:#e6e8eb}}[stroke='{_RULE}']{{stroke:#3a4149}}"
    "[stroke='#000000']{stroke:#e6e8eb}[fill='#000000']{fill:#e6e8eb}}"
)
_WIDTH, _HEIGHT, _LEFT, _TOP, _GAP = 260, 200, 44, 64, 40


@dataclass
class Series:
    """Points x, y with a bar of `error` to both sides."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    error: Sequence[float]


@dataclass
class Panel:
    title: str
    series: list[Series] = field(default_factory=list)


def chart(title: str, subtitle: str, panels: list[Panel], x_label: str) -> str:
    """Panels side by side: x by its logarithm, y from 0 to 1. Series of one name look alike."""
    names = list(dict.fromkeys(s.name for panel in panels for s in panel.series))
    ticks = sorted({x for panel in panels for s in panel.series for x in s.x})
    width = _LEFT + len(panels) * (_WIDTH + _GAP)
    height = _TOP + _HEIGHT + 48 + 18 * math.ceil(len(names) / 4)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="system-ui, sans-serif" font-size="11">',
        f"<title>{escape(title)}</title><desc>{escape(subtitle)}</desc><style>{_STYLE}</style>",
        _text(_LEFT, 18, title, size=14, weight="bold"),
        _text(_LEFT, 34, subtitle),
    ]
    for i, panel in enumerate(panels):
        left = _LEFT + i * (_WIDTH + _GAP)
        parts += _axes(left, ticks, panel.title, x_label)
        for series in panel.series:
            parts += _line(left, ticks, series, names.index(series.name))
    for i, name in enumerate(names):
        x, y = _LEFT + (i % 4) * (width - _LEFT) / 4, _TOP + _HEIGHT + 52 + 18 * (i // 4)
        parts.append(_stroke(f"M{x:.1f},{y - 4:.1f} h22", i))
        parts.append(_text(x + 28, y, name))
    return "\n".join([*parts, "</svg>\n"])


def _across(x: float, ticks: Sequence[float]) -> float:
    low, high = math.log(ticks[0]), math.log(ticks[-1])
    share = (math.log(x) - low) / (high - low) if high > low else 0.5
    return _WIDTH * (0.06 + 0.88 * share)


def _up(y: float) -> float:
    return _TOP + _HEIGHT * (1 - y)


def _axes(left: float, ticks: Sequence[float], title: str, x: str) -> list[str]:
    parts = [_text(left, _TOP - 10, title, weight="bold")]
    for i in range(6):
        at = _up(i / 5)
        parts.append(f'<path d="M{left},{at:.1f} h{_WIDTH}" stroke="{_RULE}" fill="none"/>')
        if left == _LEFT:
            parts.append(_text(left - 6, at + 4, f"{i / 5:.1f}", anchor="end"))
    for tick in ticks:
        at = left + _across(tick, ticks)
        parts.append(_text(at, _TOP + _HEIGHT + 16, f"{tick:g}", anchor="middle"))
    parts.append(_text(left + _WIDTH / 2, _TOP + _HEIGHT + 31, x, anchor="middle"))
    return parts


def _line(left: float, ticks: Sequence[float], series: Series, place: int) -> list[str]:
    points = [
        (left + _across(x, ticks), y, e)
        for x, y, e in zip(series.x, series.y, series.error)
        if math.isfinite(y)
    ]
    colour = _COLOURS[place % len(_COLOURS)]
    parts = [_stroke("M" + " L".join(f"{x:.1f},{_up(y):.1f}" for x, y, _ in points), place)]
    for x, y, e in points:
        if math.isfinite(e) and e > 0:
            ends = _up(min(1.0, y + e)), _up(max(0.0, y - e))
            parts.append(f'<path d="M{x:.1f},{ends[0]:.1f} V{ends[1]:.1f}" stroke="{colour}"/>')
        parts.append(f'<circle cx="{x:.1f}" cy="{_up(y):.1f}" r="2.5" fill="{colour}"/>')
    return parts if points else []


def _stroke(path: str, place: int) -> str:
    colour, dash = _COLOURS[place % len(_COLOURS)], _DASHES[place % len(_DASHES)]
    return (
        f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.6"'
        + (f' stroke-dasharray="{dash}"' if dash else "")
        + "/>"
    )


def _text(
    x: float, y: float, text: str, anchor: str = "start", size: int = 11, weight: str = "normal"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
        f'font-weight="{weight}" fill="{_INK}">{escape(text)}</text>'
    )
