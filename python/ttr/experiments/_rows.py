"""Results that are there are not made again: one JSON file a run, whole or not at all."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import ttr
from ttr._files import write_whole

from ._progress import Progress

Row = dict[str, Any]


class Rows:
    """Rows in `folder`, each under the settings that made it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, settings: Row) -> Path:
        """The file of the row that these settings make."""
        text = json.dumps(settings, sort_keys=True)
        return self.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"

    def find(self, settings: Row) -> Row | None:
        """The row that exactly these settings have made; None where there is none."""
        try:
            row = json.loads(self.path(settings).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return row if isinstance(row, dict) and row.get("settings") == settings else None

    def put(self, settings: Row, results: Row) -> Row:
        """Writes a row beside its settings, and gives it back."""
        row = {"settings": settings, **results}
        write_whole(self.path(settings), json.dumps(row, indent=1, sort_keys=True) + "\n")
        return row


@dataclass(frozen=True)
class Part:
    """A run to be made: its settings, its steps, what a person reads, and what makes it."""

    settings: Row
    steps: int
    words: str
    run: Callable[[Callable[[int], None]], Row]


def make(rows: Rows, parts: Sequence[Part], quiet: bool) -> list[Row]:
    """A row for every part, from the folder where it is there."""
    found = [rows.find(part.settings) for part in parts]
    missing = sum(part.steps for part, row in zip(parts, found) if row is None)
    progress, done = Progress(missing, quiet), 0
    made = []
    for part, row in zip(parts, found):
        if row is None:
            results = part.run(lambda step: progress.show(done + step, part.words))
            row = rows.put(part.settings, {**results, "versions": versions()})
            done += part.steps
        made.append(row)
    progress.close()
    return made


def versions() -> dict[str, str]:
    """Which programs made a row."""
    return {"ttr": ttr.__version__, "torch": torch.__version__}
