"""What the runs that are there say together: the table, the picture, and the claims."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..._chart import draw
from ..._figures import Claim, columns, csv_text, figure, mean
from .. import report
from .train import Settings

Row = dict[str, Any]
Key = tuple[str, str, int, int]


@dataclass(frozen=True)
class Point:
    """A method, an architecture, numbers of pairs and channels, and a length: of every seed the run
    at its best rate, by the accuracy behind the last epoch."""

    method: str
    architecture: str
    pairs: int
    width: int
    tokens: int
    best: tuple[Row, ...]  #: one a seed that has any run
    made: int  #: runs that are there
    asked: int  #: runs that are asked for

    @property
    def key(self) -> Key:
        return self.method, self.architecture, self.pairs, self.width

    @property
    def whole(self) -> bool:
        return self.made == self.asked

    @property
    def accuracies(self) -> list[float]:
        return [row["validation"] for row in self.best]


def points(runs: Sequence[Settings], rows: Sequence[Row | None]) -> list[Point]:
    """Every point that has rows: those of its `runs` that are there, None for the others."""
    groups: dict[tuple[Any, ...], list[Row | None]] = {}
    for s, row in zip(runs, rows):
        key = (s.method, s.architecture, s.pairs, s.width, s.tokens)
        groups.setdefault(key, []).append(row)
    made = []
    for key, group in groups.items():
        there = [row for row in group if row is not None]
        if there:
            made.append(Point(*key, _best(there), len(there), len(group)))
    return made


def _best(rows: Sequence[Row]) -> tuple[Row, ...]:
    """A row a seed: the greatest accuracy, and of equals the smallest rate."""
    seeds = sorted({row["settings"]["seed"] for row in rows})
    return tuple(
        max(
            (row for row in rows if row["settings"]["seed"] == seed),
            key=lambda row: (row["validation"], -row["settings"]["rate"]),
        )
        for seed in seeds
    )


HEAD = "method,architecture,pairs,width,tokens,accuracy,rates,epochs,runs,asked,seconds"


def _cells(p: Point, digits: int) -> list[str]:
    return [
        p.method,
        p.architecture,
        *map(str, (p.pairs, p.width, p.tokens)),
        figure(p.accuracies, digits),
        " ".join(f"{row['settings']['rate']:g}" for row in p.best),
        " ".join(str(len(row["accuracies"])) for row in p.best),
        str(p.made),
        str(p.asked),
        f"{mean([row['seconds'] for row in p.best])[0]:.0f}",
    ]


def table(made: Sequence[Point]) -> str:
    """CSV: a line a point; rates and epochs of the best runs, one a seed."""
    return csv_text(HEAD, (_cells(p, 4) for p in made))


def text(made: Sequence[Point]) -> str:
    """The table for people."""
    return columns([HEAD.split(","), *(_cells(p, 3) for p in made)])


def picture(made: Sequence[Point]) -> str:
    """SVG of the points whose runs are all there; empty where none is."""
    found = _merged([p for p in made if p.whole])
    return draw(report.chart(found)) if found else ""


def claims(made: Sequence[Point], lengths: Sequence[int], width: int) -> list[Claim]:
    """The paper's claims about layers whose runs are all there, at every length that holds their
    pairs."""
    found = _merged([p for p in made if p.whole])
    whole = [c for c in found if c.lengths == sorted({t for t in lengths if t >= 4 * c.pairs})]
    return report.claims(whole, width)


def _merged(made: Sequence[Point]) -> list[report.Cell]:
    """A cell for all lengths of a layer, each with the accuracies of its own best rates."""
    by_key: dict[Key, list[Point]] = {}
    for p in made:
        by_key.setdefault(p.key, []).append(p)
    return [
        report.Cell(*key, float("nan"), tuple(_runs_of(group))) for key, group in by_key.items()
    ]


def _runs_of(group: Sequence[Point]) -> list[Row]:
    """A row a seed, with the accuracies at all lengths."""
    merged: dict[int, Row] = {}
    for p in group:
        for row in p.best:
            seed = row["settings"]["seed"]
            run = merged.setdefault(seed, {"settings": {"seed": seed}, "accuracy": {}})
            run["accuracy"].update(row["accuracy"])
    return [merged[seed] for seed in sorted(merged)]
