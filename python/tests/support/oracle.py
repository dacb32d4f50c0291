"""The judge: the definition in float64, per token, to rounding times the condition."""

from __future__ import annotations

from typing import Any

import numpy as np
import ttr
from drawn import Arrays, part, sizes_of
from numpy.typing import NDArray


def widened(inputs: Arrays) -> Arrays:
    """The same numbers in float64 (whole numbers as they are)."""
    return {n: a if a.dtype == np.int64 else a.astype(np.float64) for n, a in inputs.items()}


def definition(recipe: str, inputs: Arrays, state: Any = None) -> tuple[NDArray[Any], Arrays]:
    """Outputs and the last state of the definition."""
    y, last = ttr.Layer(recipe, engine="definition").forward(**widened(inputs), state=state)
    return y, last


def condition(recipe: str, inputs: Arrays) -> float:
    """The worst condition of the systems that are solved: 1 where none is.

    A system that has no full rank is solved on what its keys span: eigenvalues that are rounding
    of the largest do not count.
    """
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
