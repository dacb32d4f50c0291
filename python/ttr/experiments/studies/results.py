"""Runs as figures: of every task and method those of its best rate, which the first seed chooses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .._figures import Claim, figure, greater, mean
from ..tasks.task import ALL, Task

Row = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """A task and a method: its runs at the best rate, one a seed."""

    task: str
    method: str
    rate: float
    runs: tuple[Row, ...]

    @property
    def places(self) -> list[str]:
        """All x, as they are written."""
        return sorted((x for x in self.runs[0]["scores"] if x != ALL), key=float)

    def at(self, x: str = ALL) -> dict[int, float]:
        """The score at x by seed."""
        return {run["settings"]["seed"]: run["scores"][x] for run in self.runs}

    def line(self) -> tuple[list[float], list[float], list[float]]:
        """x, means and standard errors."""
        figures = [mean(list(self.at(x).values())) for x in self.places]
        return [float(x) for x in self.places], [m for m, _ in figures], [e for _, e in figures]


class Results:
    """Cells of all tasks, in the order of their rows."""

    def __init__(self, rows: Sequence[Row], tasks: Sequence[Task]) -> None:
        self.tasks = {task.name: task for task in tasks}
        by_rate: dict[tuple[str, str], dict[float, list[Row]]] = {}
        for row in rows:
            s = row["settings"]
            by_rate.setdefault((s["task"], s["method"]), {}).setdefault(s["rate"], []).append(row)
        self.cells = {
            key: Cell(*key, rate, tuple(rates[rate]))
            for key, rates in by_rate.items()
            for rate in [self._best(key[0], rates)]
        }

    def _best(self, task: str, rates: dict[float, list[Row]]) -> float:
        """The rate of the first seed's best score of validation; what is no number is worst."""
        sign = 1 if self.tasks[task].better == "greater" else -1

        def goodness(rate: float) -> float:
            first = min(rates[rate], key=lambda row: int(row["settings"]["seed"]))
            score = sign * float(first["validation"][ALL])
            return score if math.isfinite(score) else -math.inf

        return max(rates, key=goodness)

    def of(self, task: str) -> list[Cell]:
        return [cell for key, cell in self.cells.items() if key[0] == task]

    def better(
        self, task: str, one: str, other: str, words: str = "", x: str = ALL
    ) -> list[Claim]:
        """The claim that one method's score is better than another's at x; none where one of them
        has not run."""
        first, second = self.cells.get((task, one)), self.cells.get((task, other))
        if first is None or second is None:
            return []
        known = self.tasks[task]
        where = f", {known.x_label} {x}" if x != ALL else ""
        words = words or f"{one} is better than {other}"
        a, b = first.at(x), second.at(x)
        one_mean, other_mean = (figure(list(c.values()), known.digits) for c in (a, b))
        means = f"{known.measure} {one_mean} and {other_mean}"
        more, less = (a, b) if known.better == "greater" else (b, a)
        claim = greater(words, more, less, known.digits)
        figures = f"{means}; {claim.figures}"
        return [Claim(f"{task}{where}: {words}", claim.holds, figures)]
