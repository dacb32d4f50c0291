"""What does not depend on the token: parameters of a layer."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ._gate import Gate, Need


class Constant(Gate):
    """A parameter: normal numbers of deviation `deviation` about `start`."""

    formula = "a parameter"

    def __init__(self, need: Need, *, start: float = 0.0, deviation: float = 0.0) -> None:
        super().__init__(need)
        self.value = nn.Parameter(start + deviation * torch.randn(need.shape))

    def forward(self, x: Tensor, k: Tensor | None) -> Any:
        return self.value


class Directions(Constant):
    """Rows of a feature map, [H, F, Dk]: normal numbers / sqrt(Dk)."""

    formula = "W of the feature map"

    def __init__(self, need: Need) -> None:
        super().__init__(need, deviation=need.key_dim**-0.5)


class LastPair(Gate):
    """A factor of v: 0 for all pairs of a token but the last, so that the others erase."""

    formula = "0, .., 0, 1 for the pairs of a token"

    def __init__(self, need: Need) -> None:
        super().__init__(need)
        self.pairs = int(need.option("steps"))

    def forward(self, x: Tensor, k: Tensor | None) -> Any:
        last = x.new_zeros(self.pairs)
        last[-1] = 1
        return last.repeat(x.shape[1])[None, :, None, None].expand(len(x), -1, -1, -1)


class Positive(Gate):
    """low + softplus(raw): a ridge, a bandwidth. It begins at `start`, or at the recipe's number; at
    `least`, if that is more."""

    def __init__(
        self, need: Need, *, start: float | None = None, low: float = 0.0, least: float = 0.0
    ) -> None:
        super().__init__(need)
        start = max(need.option(need.name) if start is None else start, least)
        self.low, self.least = low, least
        self.raw = nn.Parameter(torch.full(need.shape, self.raw_of(start)))
        self.formula = f"{f'{low:g} + ' if low else ''}softplus(raw)"

    def raw_of(self, value: float) -> float:
        """The parameter that makes a value, of at least `low`."""
        above = max(value - self.low, 1e-6)
        return above + math.log(-math.expm1(-above))

    def forward(self, x: Tensor, k: Tensor | None) -> Any:
        return self.low + F.softplus(self.raw)


class Rates(Gate):
    """a = -exp(A_log), at the start `scale` times -1 .. -Dk in every channel (S4D-Real)."""

    formula = "-exp(A_log)"

    def __init__(self, need: Need, *, scale: float = 1.0) -> None:
        super().__init__(need)
        rates = scale * torch.arange(1, need.shape[-1] + 1, dtype=torch.get_default_dtype())
        self.A_log = nn.Parameter(rates.log().expand(need.shape).clone())

    def forward(self, x: Tensor, k: Tensor | None) -> Any:
        return -self.A_log.exp()
