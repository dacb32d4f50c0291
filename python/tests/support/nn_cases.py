"""Small layers of `ttr.torch.nn` for the tests: every row of the zoo."""

from __future__ import annotations

from typing import Any

import torch
import ttr
from torch import Tensor
from ttr.torch.nn import Design, TestTimeRegression

HIDDEN, HEADS = 8, 2

#: Rows whose gradients an engine has, and those that run on the definition.
WITH_GRADIENTS = [name for name in ttr.zoo() if ttr.Layer(name).has_gradients]
OTHERS = [name for name in ttr.zoo() if name not in WITH_GRADIENTS]
CAUSAL = [name for name in ttr.zoo() if ttr.state_specs(name)]


def layer(
    recipe: str, seed: int = 0, design: Design | None = None, **sizes: Any
) -> TestTimeRegression:
    """A layer in float64, of heads that have 4 channels."""
    torch.manual_seed(seed)
    sizes = {"hidden_size": HIDDEN, "num_heads": HEADS, **sizes}
    return TestTimeRegression(recipe, design=design, **sizes).double()


def tokens(batch: int = 2, count: int = 7, seed: int = 1, hidden: int = HIDDEN) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, count, hidden, generator=generator, dtype=torch.float64)


def tolerance(recipe: str) -> float:
    """Between two ways to the same numbers in float64: eps times the condition of what is solved."""
    solves = any(spec["name"] == "state.a" for spec in ttr.state_specs(recipe))
    local = ttr.Recipe(recipe).option("function") in ("polynomial", "kernel")
    return 1e-8 if solves or local else 1e-11
