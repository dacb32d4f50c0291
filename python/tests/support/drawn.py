"""Inputs that a recipe takes, drawn at random in the ranges that it allows."""

from __future__ import annotations

from typing import Any

import numpy as np
import ttr
from numpy.typing import NDArray

#: By keyword. Any, so that a call takes them as **arrays beside options of other types.
Arrays = dict[str, Any]

#: Small sizes of all axes; every two that may differ do.
SIZES = {"B": 2, "T": 12, "Hq": 2, "Hk": 2, "Hv": 2, "H": 2, "Dk": 4, "Dv": 4, "F": 5, "1": 1}


def several_mini_batches(name: str) -> str:
    """What is read where a mini-batch began is nothing but zeros until one has ended."""
    return name + "{mini_batch: 2}" if int(ttr.Recipe(name).option("mini_batch")) > 16 else name


#: Recipes of the zoo whose networks add their input, so that Dk = Dv: all sizes above are such.
NAMES = [several_mini_batches(name) for name in ttr.zoo()]


def sizes_of(recipe: str, **changes: int) -> dict[str, int]:
    """The size of every axis that the inputs of a recipe have."""
    r = ttr.Recipe(recipe)
    sizes = SIZES | changes
    steps = int(r.option("steps")) if r.option("optimizer") == "sgd" else 1
    sizes["T n"] = sizes["T"] * steps
    sizes["b"] = int(r.option("mini_batch"))
    sizes["n"] = int(r.option("steps"))
    return sizes


def draw(
    recipe: str, seed: int = 0, dtype: Any = np.float64, optional: bool = False, **changes: int
) -> Arrays:
    """Every input that `recipe` requires (or takes, where `optional`), by keyword."""
    rng = np.random.default_rng(seed)
    sizes = sizes_of(recipe, **changes)
    inputs: Arrays = {}
    for spec in ttr.input_specs(recipe):
        if spec["name"] == "cu_seqlens" or not (spec["required"] or optional):
            continue
        shape = tuple(sizes[axis] for axis in spec["shapes"][0])
        numbers = rng.standard_normal(shape)
        if spec["range"] == ">= 0":
            numbers = rng.uniform(0.1, 0.9, shape)
        elif spec["range"] == "<= 0":
            numbers = rng.uniform(-0.5, 0, shape)
        elif spec["name"] in ("k", "erase_key"):
            numbers /= np.linalg.norm(numbers, axis=-1, keepdims=True)
        elif spec["typical"] == "unit":
            numbers = rng.uniform(0.1, 0.9, shape)
        inputs[spec["keyword"]] = numbers.astype(dtype)
    return inputs


def part(inputs: Arrays, recipe: str, begin: int, end: int) -> Arrays:
    """The tokens begin .. end of all inputs that have tokens."""
    sizes = sizes_of(recipe)
    result = dict(inputs)
    for spec in ttr.input_specs(recipe):
        array = inputs.get(spec["keyword"])
        shape = spec["shapes"][0]
        if array is None or len(shape) < 2 or shape[1] not in ("T", "T n"):
            continue
        steps = sizes["T n"] // sizes["T"] if shape[1] == "T n" else 1
        result[spec["keyword"]] = array[:, begin * steps : end * steps]
    return result


def held(state: Any) -> dict[str, Any]:
    """A state, of kept pairs without the room behind them. Arrays or tensors."""
    if "state.length" not in state:
        return dict(state)
    rows = int(state["state.length"].max())
    return {n: x if n == "state.length" else x[:, :rows] for n, x in state.items()}


def worst_token(y: NDArray[Any], expected: NDArray[Any]) -> float:
    """The largest error of a token and head, over the largest number that it or its kin have."""
    error = np.abs(y.astype(np.float64) - expected).max(axis=-1)
    scale = np.maximum(np.abs(expected).max(axis=-1), np.sqrt(np.mean(expected**2)))
    return float((error / scale).max())
