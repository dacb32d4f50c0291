"""What a network would give for every token (decay, step size, ...) is a constant here."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ttr

Array = NDArray[np.float64]

#: How an association fades from one row to the next under `decay: retention`, first memory.
_RETENTION = 1 - 2.0**-5


@dataclasses.dataclass(frozen=True)
class Constants:
    """The values that gates have where a recipe takes them."""

    step: float = 0.5
    decay: float = 0.99
    momentum: float = 0.5
    weight_decay: float = 0.01

    def __post_init__(self) -> None:
        # Written so that NaN fails.
        for name, holds, required in (
            ("step", 0 <= self.step < math.inf, "0 or more"),
            ("decay", 0 < self.decay <= 1, "above 0 and at most 1"),
            ("momentum", 0 <= self.momentum < 1, "0 or more and below 1"),
            ("weight_decay", 0 <= self.weight_decay <= 1, "from 0 to 1"),
        ):
            if not holds:
                raise ValueError(
                    f"[sklearn] {name} must be {required} but is {getattr(self, name)}"
                )

    def of(self, spec: dict[str, Any]) -> float | None:
        """The value of a gate, of others that which leaves the layer as if it had no such input; None
        where it has none."""
        log_decay = math.log(self.decay)
        chosen: dict[str, float] = {
            "step": self.step,
            "log_decay": log_decay,
            "a": log_decay,
            "momentum": self.momentum,
            "weight_decay": self.weight_decay,
        }
        neutral: float | None = spec["neutral"]
        return chosen.get(spec["name"], neutral)


@dataclasses.dataclass(frozen=True)
class Gate:
    """One input that a recipe requires beside q, k and v."""

    keyword: str
    axes: tuple[str, ...]
    value: float | None  # None: the key itself
    of_query: bool  # a call that only reads takes it, too

    @property
    def per_token(self) -> bool:
        return len(self.axes) > 1 and self.axes[1] == "T"

    def array(self, keys: Array, value_dim: int) -> Array:
        """The constant for rows whose keys are [1, T, 1, Dk]."""
        if self.value is None:
            return keys
        sizes = {"B": 1, "T": keys.shape[1], "H": 1, "Dk": keys.shape[3], "Dv": value_dim}
        return np.full([sizes[axis] for axis in self.axes], self.value)


def streamable(recipe: Any) -> ttr.Recipe:
    """The recipe, read after every write. ValueError: one that cannot learn row by row."""
    found = ttr.Recipe(recipe)
    if found.option("causal") == "false":
        raise ValueError(
            f"[sklearn] recipe must be causal but is {found}, which reads the whole sequence"
        )
    if found.option("optimizer") == "sgd" and found.option("steps") != "1":
        raise ValueError(
            f"[sklearn] recipe must take one pair a row but is {found}, which takes "
            f"{found.option('steps')}"
        )
    if found.option("eta_kind") == "input":
        raise ValueError(
            f"[sklearn] recipe must have an eta_kind of constant or relative but is {found}, whose "
            "steps each take a size"
        )
    # Nothing of the row that is being asked about goes into its answer but the row as a query.
    return found.with_options(bonus=False, read="after", correction=0)


def gates_of(recipe: ttr.Recipe, constants: Constants) -> tuple[Gate, ...]:
    """The gates that a recipe requires. ValueError: one has no constant value, or there are no
    keys and queries to learn by."""
    specs = {spec["name"]: spec for spec in ttr.input_specs(recipe)}
    if "q" not in specs or "k" not in specs:
        raise ValueError(f"[sklearn] recipe must read keys and queries but is {recipe}")
    gates = []
    for name, spec in specs.items():
        if not spec["required"] or name in ("q", "k", "v"):
            continue
        value = constants.of(spec)
        if value is None and name != "erase_key":
            raise ValueError(
                f"[sklearn] recipe must have inputs of a constant value but is {recipe}, which "
                f"takes {spec['keyword']} ({spec['meaning']})"
            )
        gates.append(Gate(spec["keyword"], tuple(spec["shapes"][0]), value, spec["of_query"]))
    return tuple(gates)


def takes_importance(recipe: ttr.Recipe) -> bool:
    return any(spec["name"] == "importance" for spec in ttr.input_specs(recipe))


def decay_of(recipe: ttr.Recipe, constants: Constants) -> float:
    """g, by which an association fades from one row to the next; what a step size or a weight decay
    forgets is not in it."""
    decay = recipe.option("decay")
    if decay == "none":
        return 1.0
    if decay == "retention":
        return _RETENTION
    return constants.decay if decay in ("scalar", "channel", "matrix") else float(decay)


def ridge_of(recipe: ttr.Recipe, decay: float, rows: int) -> float:
    """The ridge that counts behind so many rows: one that is a part of A fades as they do."""
    return float(recipe.option("ridge")) * decay ** (rows if has_ridge_in_state(recipe) else 0)


def has_ridge_in_state(recipe: ttr.Recipe) -> bool:
    return recipe.option("ridge_kind") == "fading"


def interval_decay_of(given: float | None, decay: float) -> float:
    """How the errors behind intervals fade: as it is given, or as associations do."""
    fading = decay if given is None else given
    if not 0 < fading <= 1:
        raise ValueError(f"[sklearn] interval_decay must be above 0 and at most 1 but is {fading}")
    return fading
