"""The judge: the definition in float64, per token, to rounding times the condition."""

from __future__ import annotations

from typing import Any

import numpy as np
import ttr
from drawn import Arrays, part, sizes_of, worst_token
from numpy.typing import NDArray


def widened(inputs: Arrays) -> Arrays:
    """The inputs in float64 (whole numbers as they are)."""
    return {n: a if a.dtype == np.int64 else a.astype(np.float64) for n, a in inputs.items()}


def definition(recipe: str, inputs: Arrays, state: Any = None) -> tuple[NDArray[Any], Arrays]:
    """Outputs and the last state of the definition."""
    y, last = ttr.Layer(recipe, engine="definition").forward(**widened(inputs), state=state)
    return y, last


SENSITIVE = {"kernel_regression", "kernel_dictionary", "local_polynomial", "network"}


def sensitivity(recipe: str, inputs: Arrays) -> float:
    """How many times as much as its inputs the definition's outputs move.

    Moves in drawn directions add up like their squares, and roundings are many more: times 16. Fits
    are solved by their normal equations, which round more than the definition's orthogonal factors:
    times 64.
    """
    move, worst = 1e-9, 1.0
    room = 64 if ttr.Layer(recipe).engine == "local_polynomial" else 16
    y, _ = definition(recipe, inputs)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        moved = {
            n: a * (1 + move * rng.uniform(-1, 1, a.shape)) if n in {"q", "k", "v"} else a
            for n, a in widened(inputs).items()
        }
        worst = max(worst, room * worst_token(definition(recipe, moved)[0], y) / move)
    return worst


def dual_condition(recipe: str, inputs: Arrays) -> float:
    """A bound of the condition of K K^T + ridge I, of the keys of any window: of more keys than
    channels its least eigenvalue is the ridge."""
    assert ttr.Recipe(recipe).option("kernel") == "linear"
    ridge = float(ttr.Recipe(recipe).option("ridge"))
    k = widened(inputs)["k"].transpose(0, 2, 1, 3)
    largest = float(np.linalg.eigvalsh(k.swapaxes(-1, -2) @ k).max())
    return (largest + ridge) / ridge


def curvature_condition(recipe: str, inputs: Arrays) -> float:
    """A bound of the condition of ridge I + C, C the curvature of a token: the largest eigenvalue of what
    keys up to there add up to under its decay, of which a low rank is a part."""
    r, sizes = ttr.Recipe(recipe), sizes_of(recipe)
    ridge, decay = float(r.option("ridge")), float(r.option("curvature_decay"))
    k = widened(inputs)["k"].transpose(0, 2, 1, 3)
    rows = sizes["T n"] // sizes["T"]
    c, worst = np.zeros(()), 1.0
    for begin in range(0, k.shape[2], rows):
        own = k[:, :, begin : begin + rows]
        c = decay * c + own.swapaxes(-1, -2) @ own
        worst = max(worst, float(np.linalg.eigvalsh(c).max() + ridge) / ridge)
    return worst


def condition(recipe: str, inputs: Arrays) -> float:
    """The worst condition of the systems that are solved: 1 where none is.

    Of systems that no state holds, and of training, the sensitivity.

    A system that has no full rank is solved on what its keys span: eigenvalues that are rounding
    of the largest do not count.
    """
    if ttr.Layer(recipe).engine == "window_regression":
        return dual_condition(recipe, inputs)
    if ttr.Layer(recipe).engine == "curvature":
        return curvature_condition(recipe, inputs)
    if ttr.Layer(recipe).engine in SENSITIVE:
        return sensitivity(recipe, inputs)
    if not any(spec["name"] == "state.a" for spec in ttr.state_specs(recipe)):
        return 1.0
    r = ttr.Recipe(recipe)
    ridge = 0.0 if r.option("ridge_kind") == "fading" else float(r.option("ridge"))
    layer = ttr.Layer(recipe, engine="definition")
    worst = 1.0
    sizes = sizes_of(recipe)
    for end in range(1, inputs["v"].shape[1] * sizes["T"] // sizes["T n"] + 1):
        given = part(widened(inputs), recipe, 0, end)
        given.pop("q", None)
        a = layer.memorize(**given)["state.a"]
        if r.option("ridge_kind") == "relative":
            ridge = float(r.option("ridge")) * float(np.linalg.norm(a, axis=(-2, -1)).min())
        values = np.linalg.eigvalsh(a) + ridge
        for row in values.reshape(-1, values.shape[-1]):
            there = row[row > row[-1] * 1e-12]
            worst = max(worst, float(there[-1] / there[0]))
    return worst
