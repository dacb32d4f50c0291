"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A row shorter than the head has empty cells at its end."""
    lines = [head, ["---"] * len(head)]
    lines += [[*row, *[""] * (len(head) - len(row))] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
