"""How networks make a decay, and what goes with it."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .._around import decay_gate, step_gate
from ._gate import Gate, Linear, Need


def _time_steps(shape: tuple[int, ...], low: float, high: float) -> Tensor:
    """The softplus of what this gives is log-uniform in low .. high."""
    steps = torch.empty(shape).uniform_(math.log(low), math.log(high)).exp()
    return steps + (-(-steps).expm1()).log()


class Decay(Linear):
    """log_decay = -exp(A_log) softplus(W x + dt_bias), A uniform in `a`, softplus(dt_bias)
    log-uniform in `dt`. With `discretise` the values are multiplied by softplus(..), too."""

    def __init__(
        self,
        need: Need,
        *,
        a: tuple[float, float] = (1.0, 16.0),
        dt: tuple[float, float] = (1e-3, 0.1),
        rank: int = 0,
        discretise: bool = False,
    ) -> None:
        super().__init__(need, rank=rank, bias=False)
        self.discretise = discretise
        self.A_log = nn.Parameter(torch.empty(need.heads).uniform_(*a).clamp(min=1e-4).log())
        self.dt_bias = nn.Parameter(_time_steps(need.shape, *dt))
        self.formula = "-exp(A_log) softplus(W x + dt_bias)"

    def forward(self, x: Tensor, k: Tensor | None) -> Any:
        z = self.project(x)
        a = self.A_log if z.dim() == 3 else self.A_log[:, None].expand(self.shape)
        log_decay = decay_gate(z, a, self.dt_bias)
        if not self.discretise:
            return log_decay
        steps = step_gate(z, self.dt_bias)
        return {self.name: log_decay, "value_scale": steps.unsqueeze(-1)}


class LogSigmoid(Linear):
    """log_decay = logsigmoid(W x + b) / divisor."""

    def __init__(self, need: Need, *, divisor: float = 1.0, **options: Any) -> None:
        super().__init__(need, **options)
        self.divisor = divisor
        self.formula = f"logsigmoid(W x + b){'' if divisor == 1 else f' / {divisor:g}'}"

    def forward(self, x: Tensor, k: Tensor | None) -> Any:
        return F.logsigmoid(self.project(x)) / self.divisor


class BoundedDecay(Linear):
    """log_decay = -bound * sigmoid(W x + b): never below -bound."""

    def __init__(self, need: Need, *, bound: float = math.exp(-0.5), **options: Any) -> None:
        super().__init__(need, **options)
        self.bound = bound
        self.formula = f"-{bound:.4g} sigmoid(W x + b)"
        _spread(self.up.bias, -6.0, -1.0)

    def forward(self, x: Tensor, k: Tensor | None) -> Any:
        return -self.bound * self.project(x).sigmoid()


class ExponentialDecay(Linear):
    """log_decay = -exp(W x + b), b from -6 to -1 over the channels: slow ones and fast ones."""

    formula = "-exp(W x + b)"

    def __init__(self, need: Need, **options: Any) -> None:
        super().__init__(need, **options)
        _spread(self.up.bias, -6.0, -1.0)
        nn.init.uniform_(self.up.weight, -1e-2, 1e-2)

    def forward(self, x: Tensor, k: Tensor | None) -> Any:
        return -self.project(x).exp()


def _spread(bias: Tensor, low: float, high: float) -> None:
    with torch.no_grad():
        bias.copy_(torch.linspace(low, high, len(bias)))


class ForgetGate(Linear):
    """log_decay = log(low + (1 - low) sigmoid(W x + b)): a forget gate of at least `low`."""

    def __init__(self, need: Need, *, low: float = 0.0, **options: Any) -> None:
        super().__init__(need, **options)
        self.low = low
        self.formula = (
            "log sigmoid(W x + b)" if low == 0 else f"log({low:g} + {1 - low:g} sigmoid(..))"
        )

    def forward(self, x: Tensor, k: Tensor | None) -> Any:
        z = self.project(x)
        if self.low == 0:
            return F.logsigmoid(z)
        return torch.log(self.low + (1 - self.low) * z.sigmoid())


class RecurrenceGate(Linear):
    """log_decay = -8 sigmoid(W x + b) softplus(Lambda): decays uniform in 0.9 .. 0.999 where the
    sigmoid is 1."""

    formula = "-8 sigmoid(W x + b) softplus(Lambda)"

    def __init__(self, need: Need, **options: Any) -> None:
        super().__init__(need, **options)
        decay = torch.empty(need.shape).uniform_(0.9, 0.999)
        self.Lambda = nn.Parameter((-decay.log() / 8).expm1().log())

    def forward(self, x: Tensor, k: Tensor | None) -> Any:
        return -8 * self.project(x).sigmoid() * F.softplus(self.Lambda)


class Ring(Gate):
    """log_decay = -exp(nu) and phase = exp(theta), the same for every token: |lambda|^2 uniform in
    low^2 .. high^2, angles in 0 .. `angle`."""

    formula = "-exp(nu); phase = exp(theta)"
    also = ("phase",)

    def __init__(
        self, need: Need, *, low: float = 0.9, high: float = 0.999, angle: float = math.pi / 10
    ) -> None:
        super().__init__(need)
        squared = torch.empty(need.shape).uniform_(low**2, high**2)
        self.nu = nn.Parameter((-0.5 * squared.log()).log())
        self.theta = nn.Parameter(torch.empty(need.shape).uniform_(1e-3 * angle, angle).log())

    def forward(self, x: Tensor, k: Tensor | None) -> Any:
        shape = (*x.shape[:2], *self.shape)
        log_decay, phase = -self.nu.exp(), self.theta.exp()
        return {"log_decay": log_decay.expand(shape), "phase": phase.expand(shape)}


class TimeStep(Linear):
    """dt = softplus(W x + dt_bias), log-uniform in `dt` at the start; it multiplies v, too."""

    formula = "softplus(W x + dt_bias); v dt"

    def __init__(
        self, need: Need, *, rank: int = 0, dt: tuple[float, float] = (1e-3, 0.1)
    ) -> None:
        super().__init__(need, rank=rank or math.ceil(need.hidden_size / 16), bias=False)
        self.dt_bias = nn.Parameter(_time_steps(need.shape, *dt))

    def forward(self, x: Tensor, k: Tensor | None) -> Any:
        dt = step_gate(self.project(x), self.dt_bias)
        return {"dt": dt, "value_scale": dt}
