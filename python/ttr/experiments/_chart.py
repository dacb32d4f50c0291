"""Line charts as SVG, drawn with nothing but text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

# Okabe and Ito's colours, told apart by the colour-blind; a dash pattern each besides.
_COLOURS = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999"
)  # fmt: skip
_DASHES = ("", "6 3", "2 2", "8 3 2 3", "4 4", "1 3", "10 4", "")
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


@dataclass(frozen=True)
class Axis:
    """y from `low` to `high`, by its logarithm where `log`."""

    low: float = 0.0
    high: float = 1.0
    log: bool = False

    def share(self, y: float) -> float:
        """How far up y is, within 0 .. 1."""
        low, high = self.low, self.high
        if self.log:
            low, high, y = math.log(low), math.log(high), math.log(max(y, low))
        return min(1.0, max(0.0, (y - low) / (high - low)))

    def ticks(self) -> list[float]:
        """Four to eight round numbers within."""
        decade = 10.0 ** math.floor(math.log10(self.high))
        if self.log:
            tens = [decade / 10**i for i in range(8)]
            digits = (1, 2, 5) if self.high / self.low < 100 else (1,)
            round_ones = [digit * ten for ten in tens for digit in digits]
        else:
            span = 10.0 ** math.floor(math.log10(self.high - self.low)) / 10
            step = next(s for s in _steps(span) if (self.high - self.low) / s <= 6)
            first = math.ceil(self.low / step - 1e-9)
            round_ones = [step * (first + i) for i in range(8)]
        slack = 1e-9 * self.high
        return sorted(t for t in round_ones if self.low - slack <= t <= self.high + slack)


def _steps(span: float) -> list[float]:
    return [digit * span * 10**i for i in range(3) for digit in (1, 2, 5)]


def axis_of(values: Sequence[float], log: bool = False) -> Axis:
    """An axis that has room for all of them; by the logarithm for positive ones."""
    known = [v for v in values if math.isfinite(v) and (v > 0 or not log)]
    if not known:
        return Axis()
    low, high = min(known), max(known)
    if log:
        return Axis(low / 1.1, high * 1.1, True)
    room = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    return Axis(low - room, high + room)


@dataclass
class Panel:
    """Lines over one pair of axes. What stands at x is the chart's where `x_label` is empty."""

    title: str
    series: list[Series] = field(default_factory=list)
    y: Axis = Axis()
    x_label: str = ""


def chart(title: str, subtitle: str, panels: list[Panel], x_label: str) -> str:
    """Panels side by side: x by its logarithm. Series of one name look alike, and panels with the
    same x have the same ticks."""
    names = list(dict.fromkeys(s.name for panel in panels for s in panel.series))
    ticks: dict[str, list[float]] = {}
    for panel in panels:
        label = panel.x_label or x_label
        here = {x for s in panel.series for x in s.x}
        ticks[label] = sorted({*ticks.get(label, []), *here})
    width = _LEFT + len(panels) * (_WIDTH + _GAP)
    columns = min(4, max(1, (width - _LEFT) // 190))
    height = _TOP + _HEIGHT + 48 + 18 * math.ceil(len(names) / columns)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="system-ui, sans-serif" font-size="11">',
        f"<title>{escape(title)}</title><desc>{escape(subtitle)}</desc><style>{_STYLE}</style>",
        _text(_LEFT, 18, title, size=14, weight="bold"),
        _text(_LEFT, 34, subtitle),
    ]
    for i, panel in enumerate(panels):
        left, label = _LEFT + i * (_WIDTH + _GAP), panel.x_label or x_label
        numbers = i == 0 or panels[i - 1].y != panel.y
        parts += _axes(left, ticks[label], panel, label, numbers)
        for series in panel.series:
            parts += _line(left, ticks[label], panel.y, series, names.index(series.name))
    for i, name in enumerate(names):
        x = _LEFT + (i % columns) * (width - _LEFT) / columns
        y = _TOP + _HEIGHT + 52 + 18 * (i // columns)
        parts.append(_stroke(f"M{x:.1f},{y - 4:.1f} h22", i))
        parts.append(_text(x + 28, y, name))
    return "\n".join([*parts, "</svg>\n"])


def _across(x: float, ticks: Sequence[float]) -> float:
    low, high = math.log(ticks[0]), math.log(ticks[-1])
    share = (math.log(x) - low) / (high - low) if high > low else 0.5
    return _WIDTH * (0.06 + 0.88 * share)


def _up(axis: Axis, y: float) -> float:
    return _TOP + _HEIGHT * (1 - axis.share(y))


def _axes(left: float, ticks: Sequence[float], panel: Panel, x: str, numbers: bool) -> list[str]:
    parts = [_text(left, _TOP - 10, panel.title, weight="bold")]
    for y in panel.y.ticks():
        at = _up(panel.y, y)
        parts.append(f'<path d="M{left},{at:.1f} h{_WIDTH}" stroke="{_RULE}" fill="none"/>')
        if numbers:
            parts.append(_text(left - 6, at + 4, f"{y:.3g}", anchor="end"))
    for tick in ticks:
        at = left + _across(tick, ticks)
        parts.append(_text(at, _TOP + _HEIGHT + 16, f"{tick:g}", anchor="middle"))
    parts.append(_text(left + _WIDTH / 2, _TOP + _HEIGHT + 31, x, anchor="middle"))
    return parts


def _line(
    left: float, ticks: Sequence[float], axis: Axis, series: Series, place: int
) -> list[str]:
    points = [
        (left + _across(x, ticks), y, e)
        for x, y, e in zip(series.x, series.y, series.error)
        if math.isfinite(y)
    ]
    colour = _COLOURS[place % len(_COLOURS)]
    parts = [_stroke("M" + " L".join(f"{x:.1f},{_up(axis, y):.1f}" for x, y, _ in points), place)]
    for x, y, e in points:
        if math.isfinite(e) and e > 0:
            ends = _up(axis, y + e), _up(axis, y - e)
            parts.append(f'<path d="M{x:.1f},{ends[0]:.1f} V{ends[1]:.1f}" stroke="{colour}"/>')
        parts.append(f'<circle cx="{x:.1f}" cy="{_up(axis, y):.1f}" r="2.5" fill="{colour}"/>')
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
