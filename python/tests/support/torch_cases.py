"""Random inputs and states for any recipe, from what it says that it takes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import torch
import ttr
from torch import Tensor


#: Pairs of a state, which a bias has columns for.
_STATE_TOKENS = 7


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The sizes of a call."""

    batch: int = 2
    tokens: int = 9
    query_heads: int = 2
    key_heads: int = 2
    value_heads: int = 2
    heads: int = 2
    key_dim: int = 5
    value_dim: int = 4
    features: int = 3
    sequences: int = 0


def inputs(
    recipe: str, sizes: Sizes, seed: int = 0, dtype: torch.dtype = torch.float64
) -> dict[str, Tensor]:
    """Every input that the recipe takes, by its name in Python."""
    generator = torch.Generator().manual_seed(seed)
    steps = _steps(recipe)
    axes = {
        "B": 1 if sizes.sequences else sizes.batch,
        "T": sizes.tokens,
        "T n": sizes.tokens * steps,
        "Hq": sizes.query_heads,
        "Hk": sizes.key_heads,
        "Hv": sizes.value_heads,
        "H": sizes.heads,
        "Dk": sizes.key_dim,
        "Dv": sizes.key_dim if _adds_input(recipe) else sizes.value_dim,
        "F": sizes.features,
        "mini_batch": int(ttr.Recipe(recipe).option("mini_batch")),
        "n": int(ttr.Recipe(recipe).option("steps")),
        "S": sizes.tokens + _STATE_TOKENS,
        "1": 1,
    }
    made = {}
    for spec in ttr.input_specs(recipe):
        name = spec["name"]
        if name == "cu_seqlens":
            if sizes.sequences:
                made[name] = _packed(sizes, generator)
            continue
        shape = [axes[axis] for axis in spec["shapes"][-1]]
        numbers = _numbers(spec, shape, sizes, generator)
        if name in ("step", "weight_decay") and _is_network(recipe):
            numbers = numbers / 10  # more leads nowhere, or forgets all
        made[name.replace(".", "_")] = numbers.to(dtype)
    return made


def state(
    recipe: str, sizes: Sizes, seed: int = 1, dtype: torch.dtype = torch.float64
) -> dict[str, Tensor]:
    """A state that the recipe could have reached: the one after some other tokens."""
    import ttr.torch.portable as portable

    before = dataclasses.replace(sizes, batch=sizes.sequences or sizes.batch, tokens=_STATE_TOKENS, sequences=0)
    _, reached = portable.regress(recipe, **inputs(recipe, before, seed, dtype), return_state=True)
    return {name: tensor.detach().contiguous() for name, tensor in reached.items()}


def without_padding(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Kept pairs with 0 in the rows behind them, whose numbers mean nothing."""
    if "state.length" not in state:
        return state
    length = state["state.length"].unsqueeze(1)
    made = dict(state)
    for name in ("state.k", "state.v", "state.log_weight"):
        if name in state:
            x = state[name]
            there = torch.arange(x.shape[1])[None, :, None].to(length.device) < length
            made[name] = torch.where(there.view(*there.shape, *[1] * (x.dim() - 3)), x, 0)
    return made


def _steps(recipe: str) -> int:
    optimizer = ttr.Recipe(recipe).to_dict().get("optimizer", {})
    return optimizer.get("steps", 1) if optimizer.get("optimizer") == "sgd" else 1


def _is_network(recipe: str) -> bool:
    return ttr.Recipe(recipe).option("function") == "network"


def _adds_input(recipe: str) -> bool:
    return bool(ttr.Recipe(recipe).to_dict().get("function", {}).get("residual", False))


def _packed(sizes: Sizes, generator: torch.Generator) -> Tensor:
    cuts = (
        torch.randint(0, sizes.tokens + 1, (sizes.sequences - 1,), generator=generator)
        .sort()
        .values
    )
    return torch.cat([torch.tensor([0]), cuts, torch.tensor([sizes.tokens])])


def _numbers(
    spec: Mapping[str, Any], shape: list[int], sizes: Sizes, generator: torch.Generator
) -> Tensor:
    name = spec["name"]
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    uniform = torch.rand(shape, generator=generator, dtype=torch.float64)
    if name in ("q", "k", "erase_key"):
        return x / math.sqrt(sizes.key_dim)
    if name == "log_decay":
        return -uniform * 0.7
    if name == "a":
        return -uniform - 0.1
    if name == "weight_decay":
        return uniform * 0.2
    if name == "bandwidth":
        return uniform + 0.5
    if name == "row_bias":
        return x * 0.2
    if name == "ridge":
        return uniform + 0.05
    return uniform * 0.9 if spec["typical"] in ("unit", "half") else x
