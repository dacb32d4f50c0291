"""Sequence layers as regressions that are solved while reading, on NumPy arrays.

A `Recipe` states a layer; a `Layer` runs it on whole sequences, a `Decoder` token by token, a
`StatePool` the tokens of many streams, a `Memory` on pairs. `zoo()` has every named layer. PyTorch's operators are in `ttr.torch`, which is imported by
itself.
"""

from ttr._core import (
    Decoder,
    Layer,
    Memory,
    Plan,
    Recipe,
    StatePool,
    ZooEntry,
    __version__,
    engines,
    feature_maps,
    input_specs,
    plan,
    state_specs,
    target,
    zoo,
)

__all__ = [
    "Decoder",
    "Layer",
    "Memory",
    "Plan",
    "Recipe",
    "StatePool",
    "ZooEntry",
    "__version__",
    "engines",
    "feature_maps",
    "input_specs",
    "plan",
    "state_specs",
    "target",
    "zoo",
]
