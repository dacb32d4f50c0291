"""Keys along which a memory erases."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .._around import l2
from ._gate import Gate, Linear, Need, of_heads


class ScaledKey(Gate):
    """erase_key = sigmoid(b) k, one b a head."""

    formula = "sigmoid(b) k"
    reads_keys = True

    def __init__(self, need: Need, *, start: float = 1.0) -> None:
        super().__init__(need)
        self.b = nn.Parameter(torch.full((need.heads, 1), start))

    def forward(self, x: Tensor, k: Tensor | None) -> Any:
        assert k is not None
        return of_heads(k, len(self.b)) * self.b.sigmoid()


class UnitKey(Gate):
    """erase_key = k (.) xi / |k (.) xi|, xi [H, Dk] (0.85 at the start)."""

    formula = "l2(k (.) xi)"
    reads_keys = True

    def __init__(self, need: Need) -> None:
        super().__init__(need)
        self.xi = nn.Parameter(torch.full(need.shape, 0.85))

    def forward(self, x: Tensor, k: Tensor | None) -> Any:
        assert k is not None
        return l2(of_heads(k, len(self.xi)) * self.xi)


class InContextRate(Linear):
    """erase_gate = a = sigmoid(W x + b); keys are written as k (.) (1 + (a - 1) (.) alpha)."""

    formula = "a = sigmoid(W x + b); k (.) (1 + (a - 1) (.) alpha)"

    def __init__(self, need: Need, **options: Any) -> None:
        super().__init__(need, **options)
        self.alpha = nn.Parameter(torch.ones(need.shape))

    def forward(self, x: Tensor, k: Tensor | None) -> Any:
        a = self.project(x).sigmoid()
        return {self.name: a, "key_scale": 1 + (a - 1) * self.alpha}
