"""A name that is none of those there are: which of them is likely meant."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence

#: What other libraries call inputs that have another name here.
_ELSEWHERE = {
    "g": "log_decay",
    "gk": "log_decay",
    "w": "log_decay",
    "beta": "step",
    "eta": "step",
    "lr": "step",
}


def likely(name: str, taken: Sequence[str]) -> str:
    """The one of `taken` that is likely meant by `name`; empty where none is."""
    if _ELSEWHERE.get(name) in taken:
        return _ELSEWHERE[name]
    return next(iter(difflib.get_close_matches(name, taken, 1)), "")


def hint(name: str, taken: Collection[str]) -> str:
    """What an error about `name` ends with: the one of `taken` that is likely meant, or nothing."""
    meant = likely(name, list(taken))
    return f": did you mean {meant}?" if meant else ""
