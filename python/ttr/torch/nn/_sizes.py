"""The sizes of a layer, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn


def refuse(argument: str, required: str, given: object, op: str = "TestTimeRegression") -> NoReturn:
    """ValueError: one line that names the argument."""
    raise ValueError(f"[{op}] {argument} must be {required} but is {given}")


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
    for name, size in (("hidden_size", hidden), ("num_heads", heads)):
        if size < 1:
            refuse(name, "at least 1", size)
    if head_dim is None and hidden % heads:
        refuse("num_heads", f"a divisor of hidden_size = {hidden}", heads)
    key_dim = hidden // heads if head_dim is None else head_dim
    value_dim = key_dim if value_dim is None else value_dim
    if key_heads is None:
        key_heads = 1 if recipe.option("decay") == "matrix" else heads
    for name, size in (("head_dim", key_dim), ("value_dim", value_dim)):
        if size < 1:
            refuse(name, "at least 1", size)
    if key_heads < 1 or heads % key_heads:
        refuse("num_key_heads", f"a divisor of num_heads = {heads}", key_heads)
    if value_dim != key_dim and ("q" not in specs or recipe.option("residual") == "true"):
        why = "there are no keys" if "q" not in specs else "the network adds its input"
        refuse("value_dim", f"head_dim = {key_dim}, as {why},", value_dim)
    several = any("T n" in axes for spec in specs.values() for axes in spec["shapes"])
    steps = int(recipe.option("steps")) if several else 1
    return Sizes(hidden, heads, key_heads, key_dim, value_dim, steps)
