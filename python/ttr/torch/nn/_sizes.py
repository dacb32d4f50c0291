"""The sizes of a layer, checked."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from numbers import Real
from typing import Any, NoReturn


def refuse(argument: str, required: str, given: object, op: str = "TestTimeRegression") -> NoReturn:
    """ValueError: one line that names the argument."""
    raise ValueError(f"[{op}] {argument} must be {required} but is {given}")


def whole(argument: str, given: Any, least: int = 1, op: str = "TestTimeRegression") -> int:
    """A whole number of any kind as an int. ValueError: what is none, or below `least`."""
    try:
        number = None if isinstance(given, bool) else operator.index(given)
    except TypeError:
        number = None
    if number is None:
        refuse(argument, f"a whole number, at least {least},", repr(given), op)
    if number < least:
        refuse(argument, f"at least {least}", number, op)
    return number


def check_number(argument: str, given: Any, op: str) -> None:
    """ValueError: what is no finite number of at least 0."""
    number = isinstance(given, Real) and not isinstance(given, bool)
    if not (number and 0 <= given < math.inf):
        refuse(argument, "finite and >= 0", repr(given), op)


@dataclass(frozen=True)
class Sizes:
    """Heads and their lengths; `steps` pairs a token."""

    hidden: int
    heads: int  #: H
    key_heads: int  #: Hq = Hk
    key_dim: int  #: Dk
    value_dim: int  #: Dv
    steps: int

    @property
    def rows(self) -> dict[str, tuple[int, int]]:
        """Heads and length of q, k and v."""
        keys = (self.key_heads, self.key_dim)
        return {"q": keys, "k": keys, "v": (self.heads, self.value_dim)}

    def rows_of_token(self, name: str) -> int:
        """A query, and as many pairs as the recipe takes."""
        return 1 if name == "q" else self.steps

    def __str__(self) -> str:
        text = f"{self.heads} heads of {self.key_dim} x {self.value_dim}"
        return text if self.key_heads == self.heads else f"{text}, {self.key_heads} of keys"


def sizes_of(
    recipe: Any,
    specs: dict[str, Any],
    hidden: int,
    heads: int,
    head_dim: int | None,
    value_dim: int | None,
    key_heads: int | None,
) -> Sizes:
    """What a caller left out filled in. ValueError that names the argument."""
    hidden, heads = whole("hidden_size", hidden), whole("num_heads", heads)
    if head_dim is None and hidden % heads:
        refuse("num_heads", f"a divisor of hidden_size = {hidden}", heads)
    key_dim = hidden // heads if head_dim is None else whole("head_dim", head_dim)
    value_dim = key_dim if value_dim is None else whole("value_dim", value_dim)
    if key_heads is None:
        key_heads = 1 if recipe.option("decay") == "matrix" else heads
    if heads % (key_heads := whole("num_key_heads", key_heads)):
        refuse("num_key_heads", f"a divisor of num_heads = {heads}", key_heads)
    if value_dim != key_dim and ("q" not in specs or recipe.option("residual") == "true"):
        why = "there are no keys" if "q" not in specs else "the network adds its input"
        refuse("value_dim", f"head_dim = {key_dim}, as {why},", value_dim)
    several = any("T n" in axes for spec in specs.values() for axes in spec["shapes"])
    steps = int(recipe.option("steps")) if several else 1
    return Sizes(hidden, heads, key_heads, key_dim, value_dim, steps)
