"""Means over seeds, and claims that they decide."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


def mean(values: Sequence[float]) -> tuple[float, float]:
    """Mean and its standard error (NaN of one)."""
    count = len(values)
    middle = sum(values) / count
    if count < 2:
        return middle, math.nan
    variance = sum((v - middle) ** 2 for v in values) / (count - 1)
    return middle, math.sqrt(variance / count)


def figure(values: Sequence[float], digits: int = 3) -> str:
    """Mean and standard error for people."""
    middle, error = mean(values)
    one = f"{middle:.{digits}f}"
    return one if math.isnan(error) else f"{one} ± {error:.{digits}f}"


def csv_text(names: str, rows: Iterable[Sequence[Any]]) -> str:
    """CSV: the names of its columns, with commas between them, then the rows."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([names.split(","), *rows])
    return out.getvalue()


def mean_cells(values: Sequence[float], middle: str, error: str) -> list[str]:
    """Mean and its standard error for a table, each by its format; empty where there is none."""
    found = mean(values)
    return [format(found[0], middle), "" if math.isnan(found[1]) else format(found[1], error)]


def columns(lines: Sequence[Sequence[str]]) -> str:
    """Lines of cells, every column as wide as its widest."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join("  ".join(w.ljust(n) for w, n in zip(line, widths)).rstrip() for line in lines)


@dataclass(frozen=True)
class Claim:
    """A sentence, whether the data bear it out, and the figures that decide."""

    words: str
    holds: bool
    figures: str

    def __str__(self) -> str:
        return f"{'holds' if self.holds else 'does not hold'}: {self.words} ({self.figures})"


def greater(
    words: str, one: Mapping[int, float], other: Mapping[int, float], digits: int = 3
) -> Claim:
    """Whether `one` is greater than `other`, numbers by seed: the difference, taken seed by seed,
    is more than two of its standard errors (of one seed: more than 0)."""
    differences = [one[seed] - other[seed] for seed in sorted(one.keys() & other.keys())]
    if not differences:
        return Claim(words, False, "no common seed")
    middle, error = mean(differences)
    holds = middle > (0 if math.isnan(error) else 2 * error)
    count = len(differences)
    seeds = f"{count} {'seed' if count == 1 else 'seeds'}"
    return Claim(words, holds, f"difference {figure(differences, digits)}, {seeds}")
