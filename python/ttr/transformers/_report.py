"""How often a function was ours, how often the original, and why."""

from __future__ import annotations

from typing import NamedTuple

#: A program that meets ever new reasons stays bounded.
_MOST = 1024

# (function, the reason for the original or None) -> calls.
_counts: dict[tuple[str, str | None], int] = {}


class Row(NamedTuple):
    """Calls of one function: `reason` is None where they were ours, else why the original ran."""

    function: str
    calls: int
    reason: str | None


class Report(tuple[Row, ...]):
    """Rows in the order of their functions; as text, a table."""

    __slots__ = ()

    def __str__(self) -> str:
        if not self:
            return "no calls yet"
        width = max(len(row.function) for row in self)
        digits = max(len(str(row.calls)) for row in self)
        return "\n".join(
            f"{row.function:<{width}}  {row.calls:>{digits}}  "
            + ("ttr" if row.reason is None else f"original: {row.reason}")
            for row in self
        )


def count(function: str, reason: str | None = None) -> None:
    key = (function, reason)
    found = _counts.get(key)
    if found is None and len(_counts) >= _MOST:
        key, found = (function, "other reasons"), _counts.get((function, "other reasons"))
    _counts[key] = (found or 0) + 1


def report(*, clear: bool = False) -> Report:
    """Calls since the beginning, or since the last `report(clear=True)`.

    Nothing is counted while a graph is compiled or run.
    """
    rows = [Row(name, calls, reason) for (name, reason), calls in _counts.items()]
    if clear:
        _counts.clear()
    return Report(sorted(rows, key=lambda row: (row.function, row.reason or "")))
