"""What runs say together: the table, the picture, and the claims, checked on the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .._chart import Panel, Series, describe
from .._figures import Claim, columns, csv_text, figure, greater, mean, mean_cells

Row = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """A method, an architecture, a number of pairs and a width: the runs of its best rate."""

    method: str
    architecture: str
    pairs: int
    width: int
    rate: float
    runs: tuple[Row, ...]  #: one a seed

    @property
    def lengths(self) -> list[int]:
        return sorted(int(t) for t in self.runs[0]["accuracy"])

    def at(self, tokens: int) -> dict[int, float]:
        """Accuracy by seed."""
        return {r["settings"]["seed"]: r["accuracy"][str(tokens)] for r in self.runs}

    def all(self) -> dict[int, float]:
        """Mean accuracy over the lengths, by seed."""
        by_length = [self.at(t) for t in self.lengths]
        return {seed: sum(a[seed] for a in by_length) / len(by_length) for seed in by_length[0]}


def cells(rows: Sequence[Row]) -> list[Cell]:
    """Every combination with its runs at one rate: that of the first seed's greatest validation
    accuracy, which is measured on other examples than those of the tests."""
    groups: dict[tuple[Any, ...], dict[float, list[Row]]] = {}
    for row in rows:
        s = row["settings"]
        key = (s["method"], s["architecture"], s["pairs"], s["width"])
        groups.setdefault(key, {}).setdefault(s["rate"], []).append(row)
    made = []
    for key, by_rate in groups.items():
        first = {rate: min(runs, key=_seed) for rate, runs in by_rate.items()}
        seed = min(map(_seed, first.values()))
        swept = [rate for rate, row in first.items() if _seed(row) == seed]
        rate = max(sorted(swept), key=lambda r: first[r]["validation"])
        made.append(Cell(*key, rate, tuple(by_rate[rate])))
    return made


def _seed(row: Row) -> int:
    seed: int = row["settings"]["seed"]
    return seed


def table(made: Sequence[Cell]) -> str:
    """CSV: a line for each combination and length."""
    names = "method,architecture,pairs,width,rate,tokens,accuracy,standard_error,seeds,seconds"
    rows = []
    for cell in made:
        seconds = sum(run["seconds"] for run in cell.runs) / len(cell.runs)
        for tokens in cell.lengths:
            sizes = [cell.method, cell.architecture, cell.pairs, cell.width, cell.rate, tokens]
            figures = mean_cells(list(cell.at(tokens).values()), ".4f", ".4f")
            rows.append([*sizes, *figures, len(cell.runs), f"{seconds:.1f}"])
    return csv_text(names, rows)


def text(made: Sequence[Cell]) -> str:
    """The table for people."""
    lengths = sorted({t for cell in made for t in cell.lengths})
    head = ["method", "architecture", "P", "d", "rate", *(f"T = {t}" for t in lengths)]
    lines = [head]
    for c in made:
        accuracies = [figure(list(c.at(t).values())) if t in c.lengths else "" for t in lengths]
        lines.append(
            [c.method, c.architecture, str(c.pairs), str(c.width), f"{c.rate:g}", *accuracies]
        )
    return columns(lines)


def chart(made: Sequence[Cell]) -> dict[str, Any]:
    """What `ttr chart` and `ttr demo` read: a panel for each architecture, number of pairs and width."""
    panels: dict[tuple[str, int, int], Panel] = {}
    for c in made:
        title = f"{c.architecture}, P = {c.pairs}, d = {c.width}"
        panel = panels.setdefault((c.architecture, c.pairs, c.width), Panel(title))
        figures = [mean(list(c.at(t).values())) for t in c.lengths]
        panel.series.append(
            Series(c.method, c.lengths, [m for m, _ in figures], [e for _, e in figures])
        )
    seeds = max(len(c.runs) for c in made)
    words = "accuracy of one seed"
    if seeds > 1:
        words = f"accuracy, mean of {seeds} seeds and its standard error"
    return describe("Recall of trained layers", words, list(panels.values()), "tokens T")


def claims(made: Sequence[Cell], width: int = 64) -> list[Claim]:
    """The paper's claims about its figure 3, each for both architectures where there are runs.

    A comparison holds when the difference, taken seed by seed, is more than two of its standard
    errors (of one seed: more than 0)."""
    of = {(c.method, c.architecture, c.pairs): c for c in made if c.width == width}
    found = []
    for architecture in dict.fromkeys(c.architecture for c in made):
        few, many = (of.get(("linear attention", architecture, p)) for p in (width, 2 * width))
        exact = of.get(("RLS", architecture, 2 * width))
        where = f"{architecture}, d = {width}"
        if few:
            found.append(_solves(f"linear attention recalls P = d = {width} pairs, {where}", few))
            found.append(_flat(f"linear attention is as good at every length, {where}", few))
        if many and few:
            found.append(
                _greater(f"linear attention recalls less of P = {2 * width}, {where}", few, many)
            )
        if exact and many:
            words = f"RLS recalls more of P = {2 * width} than linear attention, {where}"
            found.append(_greater(words, exact, many))
        if exact:
            found.append(_solves(f"RLS recalls P = {2 * width} pairs, {where}", exact))
            found.append(_flat(f"RLS is as good at every length, {where}", exact))
        for name in ("Gated DeltaNet", "Mamba-2"):
            forgets = of.get((name, architecture, 2 * width))
            if exact and forgets:
                words = f"RLS, which forgets nothing, recalls more than {name}, {where}"
                found.append(_greater(words, exact, forgets))
    for name, pairs in (("linear attention", 2 * width), ("RLS", 2 * width)):
        strict, gate = (of.get((name, a, pairs)) for a in ("strict", "gate"))
        if strict and gate:
            words = f"a write gate helps {name} at P = {pairs}, d = {width}"
            found.append(_greater(words, gate, strict))
    return found


def _solves(words: str, cell: Cell) -> Claim:
    worst = min(mean(list(cell.at(t).values()))[0] for t in cell.lengths)
    return Claim(words, worst >= 0.98, f"accuracy {worst:.3f} at the worst length, at least .98")


def _flat(words: str, cell: Cell) -> Claim:
    means = [mean(list(cell.at(t).values()))[0] for t in cell.lengths]
    spread = max(means) - min(means)
    return Claim(words, spread <= 0.03, f"{min(means):.3f} to {max(means):.3f}, at most .03 apart")


def _greater(words: str, one: Cell, other: Cell) -> Claim:
    return greater(words, one.all(), other.all())
