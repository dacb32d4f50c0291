"""An input that is given by a name which the recipe does not have: which of its own is likely meant."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

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
