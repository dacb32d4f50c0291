"""Random inputs of a layer for PyTorch's operators, and the judge of them: the definition."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
import ttr
import ttr.torch
from torch import Tensor

NAMES = list(ttr.zoo())
WITH_GRADIENTS = [name for name in NAMES if ttr.Layer(name).has_gradients]
WITHOUT_GRADIENTS = [name for name in NAMES if name not in WITH_GRADIENTS]

#: By keyword. Any, so that a call takes them as **inputs beside options of other types.
Inputs = dict[str, Any]

_SIZES = {"B": 2, "T": 9, "Hq": 2, "Hk": 2, "Hv": 2, "H": 2, "Dk": 4, "Dv": 4, "F": 3, "1": 1}


def sizes_of(recipe: str, **changes: int) -> dict[str, int]:
    """The length of every axis that an input has."""
    r = ttr.Recipe(recipe)
    sizes = _SIZES | changes
    sizes["T n"] = sizes["T"] * (int(r.option("steps")) if r.option("optimizer") == "sgd" else 1)
    sizes["b"] = sizes["mini_batch"] = int(r.option("mini_batch"))
    sizes["n"] = int(r.option("steps"))
    sizes["S"] = sizes["T"]
    return sizes


def draw(
    recipe: str,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    optional: bool = False,
    grad: bool = False,
    **changes: int,
) -> Inputs:
    """The inputs that a recipe requires (or takes, where `optional`), by name."""
    generator = torch.Generator().manual_seed(seed)
    sizes = sizes_of(recipe, **changes)
    inputs: Inputs = {}
    for spec in ttr.input_specs(recipe):
        if spec["name"] == "cu_seqlens" or not (spec["required"] or optional):
            continue
        shape = [sizes[axis] for axis in spec["shapes"][0]]
        numbers = _numbers(spec, shape, generator).to(dtype)
        inputs[spec["keyword"]] = numbers.requires_grad_(grad)
    return inputs


def _numbers(spec: Mapping[str, Any], shape: list[int], generator: torch.Generator) -> Tensor:
    normal = torch.randn(shape, generator=generator, dtype=torch.float64)
    uniform = torch.rand(shape, generator=generator, dtype=torch.float64)
    if spec["range"] == ">= 0" or spec["typical"] in ("unit", "half"):
        return 0.1 + 0.8 * uniform
    if spec["range"] == "<= 0":
        return -0.05 - 0.5 * uniform
    if spec["name"] in ("q", "k", "erase_key"):
        return normal / math.sqrt(shape[-1])
    return normal


def reached(recipe: str, seed: int = 7, **options: Any) -> dict[str, Tensor]:
    """A state that the recipe reaches by some other tokens."""
    inputs = draw(recipe, seed, **options)
    with torch.no_grad():
        _, state = ttr.torch.regress(recipe, **inputs, return_state=True)
    return dict(state)


def definition(
    recipe: str, inputs: Mapping[str, Tensor], state: Mapping[str, Tensor] | None = None
) -> tuple[Tensor, dict[str, Tensor]]:
    """y and the final state of the definition, in float64."""
    layer = ttr.Layer(recipe, engine="definition")
    arrays: dict[str, Any] = {n: _widened(t).numpy() for n, t in inputs.items()}
    start: Any = {n: _widened(t).numpy() for n, t in state.items()} if state else None
    y, final = layer.forward(**arrays, state=start)
    return torch.from_numpy(y), {n: torch.from_numpy(a) for n, a in final.items()}


def _widened(tensor: Tensor) -> Tensor:
    tensor = tensor.detach()
    return tensor.double() if tensor.is_floating_point() else tensor.long()


def worst(y: Tensor, expected: Tensor) -> float:
    """The largest error of a token and head, relative to the largest number that any has."""
    if y.numel() == 0:
        return 0.0
    error = (y.detach().double() - expected).abs().amax(-1)
    return float((error / expected.abs().amax().clamp(min=1e-3)).max())
