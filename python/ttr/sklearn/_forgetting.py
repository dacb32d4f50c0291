"""Which rows count, and how much: windows of rows or of time, decays by rows or by time."""

from __future__ import annotations

import dataclasses
import math
import numbers
from typing import Any

import ttr

from ._columns import duration
from ._constants import Constants, decay_of


@dataclasses.dataclass(frozen=True)
class Forgetting:
    """g a row, the time in which a weight halves, the last rows that count (0: all), and the time that
    they may be old."""

    decay: float = 1.0
    half_life: float = math.inf
    window: int = 0
    span: float = math.inf

    @property
    def has_window(self) -> bool:
        return self.window > 0 or self.span < math.inf

    @property
    def has_times(self) -> bool:
        return self.half_life < math.inf or self.span < math.inf

    @classmethod
    def of(
        cls, recipe: ttr.Recipe, constants: Constants, window: Any, half_life: Any, timed: bool
    ) -> Forgetting:
        """ValueError: no window, no half-life, both a decay and a half-life, or no time that one is of."""
        rows, span = _window(window, timed)
        decay, by_time = decay_of(recipe, constants), math.inf
        if half_life is not None:
            if recipe.option("decay") != "none":
                raise ValueError(
                    f"[sklearn] recipe must not forget where there is a half_life but is {recipe}"
                )
            length = _length("half_life", half_life, timed)
            decay, by_time = (1.0, length) if timed else (2 ** (-1 / length), math.inf)
        forgetting = cls(decay, by_time, rows, span)
        if timed and not forgetting.has_times:
            raise ValueError(
                "[sklearn] time must be None but is given: a half_life, or a window such as '6h', is of it"
            )
        return forgetting


def _window(window: Any, timed: bool) -> tuple[int, float]:
    if window is None:
        return 0, math.inf
    if duration("window", window) is not None:
        return 0, _length("window", window, timed)
    whole = isinstance(window, numbers.Integral) and not isinstance(window, bool)
    if not whole or window < 1:
        raise ValueError(
            "[sklearn] window must be 1 or more, a whole number of rows, or a time such as '6h', but is "
            f"{window!r}"
        )
    return int(window), math.inf


def _length(name: str, given: Any, timed: bool) -> float:
    """In the unit of the times; dates are in seconds."""
    seconds = duration(name, given)
    if seconds is not None and not timed:
        raise ValueError(f"[sklearn] time must name a column for {name}={given!r} but is None")
    plain = isinstance(given, numbers.Real) and not isinstance(given, bool)
    if seconds is None and not plain:
        raise ValueError(f"[sklearn] {name} must be a number or such as '7d' but is {given!r}")
    length = float(given) if seconds is None else seconds
    if not 0 < length < math.inf:
        raise ValueError(f"[sklearn] {name} must be above 0 and finite but is {given!r}")
    return length
