"""Results that are there are not made again: one JSON file a run, whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

Row = dict[str, Any]


class Rows:
    """Rows in `folder`, each under the settings that made it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _path(self, settings: Row) -> Path:
        text = json.dumps(settings, sort_keys=True)
        return self.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"

    def find(self, settings: Row) -> Row | None:
        """The row that exactly these settings have made; None where there is none."""
        try:
            row = json.loads(self._path(settings).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return row if isinstance(row, dict) and row.get("settings") == settings else None

    def put(self, settings: Row, results: Row) -> Row:
        """Writes a row beside its settings, and gives it back."""
        row = {"settings": settings, **results}
        write_whole(self._path(settings), json.dumps(row, indent=1, sort_keys=True) + "\n")
        return row


def write_whole(path: Path, text: str) -> None:
    """Writes a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
