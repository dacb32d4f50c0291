"""What a gate is, and those that any input may have."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Need:
    """What an input of a recipe asks for in a layer."""

    name: str  #: the keyword of the input: log_decay, step, ...
    shape: tuple[int, ...]  #: behind B and T of what a token has; all axes of a constant
    hidden_size: int
    heads: int  #: H
    key_dim: int  #: Dk
    recipe: Any  #: ttr.Recipe

    def option(self, name: str) -> float:
        """A number of the recipe."""
        return float(self.recipe.option(name))

    @property
    def size(self) -> int:
        return math.prod(self.shape)


Factory = Callable[[Need], nn.Module]


class Gate(nn.Module):
    """A gate of a layer; `formula` is what a person reads."""

    formula = "?"
    also: tuple[str, ...] = ()  #: other inputs that it gives
    reads_keys = False

    def __init__(self, need: Need) -> None:
        super().__init__()
        self.shape = need.shape
        self.name = need.name

    def extra_repr(self) -> str:
        return f"{self.formula}, {list(self.shape)}"


class Linear(Gate):
    """W x + bias, where `rank` is not 0 W = U D of that rank; tanh between them where `tanh`. With `flat` it begins
    as the bias alone, the same for every token."""

    formula = "W x + b"

    def __init__(
        self,
        need: Need,
        *,
        rank: int = 0,
        bias: bool = True,
        start: float = 0.0,
        tanh: bool = False,
        flat: bool = False,
    ) -> None:
        super().__init__(need)
        width = rank or need.hidden_size
        self.down = nn.Linear(need.hidden_size, rank, bias=False) if rank else None
        self.up = nn.Linear(width, need.size, bias=bias)
        self.tanh = tanh
        if bias:
            nn.init.constant_(self.up.bias, start)
        if flat:
            nn.init.zeros_(self.up.weight)

    def project(self, x: Tensor) -> Tensor:
        if self.down is not None:
            x = self.down(x)
            x = x.tanh() if self.tanh else x
        z: Tensor = self.up(x)
        return z.reshape(*x.shape[:-1], *self.shape)

    def forward(self, x: Tensor, k: Tensor | None) -> Any:
        return self.project(x)


class Sigmoid(Linear):
    """scale * sigmoid(W x + b): a step size in 0 .. scale, where 2 allows negative eigenvalues."""

    def __init__(self, need: Need, *, scale: float = 1.0, **options: Any) -> None:
        super().__init__(need, **options)
        self.scale = scale
        self.formula = f"{'' if scale == 1 else f'{scale:g} '}sigmoid(W x + b)"

    def forward(self, x: Tensor, k: Tensor | None) -> Any:
        return self.scale * self.project(x).sigmoid()


class KeySigmoid(Gate):
    """sigmoid(u . k + b) of the key as it is memorized, a write gate [B, T, H]: whether this
    association is worth its room."""

    formula = "sigmoid(u . k + b)"
    reads_keys = True

    def __init__(self, need: Need, *, start: float = 0.0) -> None:
        super().__init__(need)
        self.u = nn.Parameter(torch.zeros(need.heads, need.key_dim))
        self.b = nn.Parameter(torch.full((need.heads,), start))

    def forward(self, x: Tensor, k: Tensor | None) -> Any:
        assert k is not None
        return ((of_heads(k, len(self.u)) * self.u).sum(-1) + self.b).sigmoid()


def of_heads(k: Tensor, heads: int) -> Tensor:
    """Keys [B, T, Hk, Dk] as every memory reads them, [B, T, H, Dk]."""
    return k if k.shape[2] == heads else k.repeat_interleave(heads // k.shape[2], 2)
