"""How a network makes the inputs of a recipe that are no queries, keys or values.

A gate is a module that is built from a `Need`, what one input of one layer asks for, and called with
the tokens x [B, T, hidden] and the keys k [B, T n, Hk, Dk] (None where a recipe reads none). It gives
the input, [B, T, *need.shape], or a dictionary of several: of inputs, and of the factors `value_scale`
and `key_scale`, by which the layer multiplies v and k. Constants of a layer give a parameter.

Any callable that takes a `Need` and gives such a module may take the place of one of these:

    Design(gates={"step": functools.partial(gates.Sigmoid, scale=2.0)})
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ._around import decay_gate, l2, step_gate


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

    def __init__(self, need: Need) -> None:
        super().__init__()
        self.shape = need.shape
        self.name = need.name

    def extra_repr(self) -> str:
        return f"{self.formula}, {list(self.shape)}"


class Linear(Gate):
    """W x + bias, where `rank` is not 0 W = U D of that rank; tanh between them where `tanh`."""

    formula = "W x + b"

    def __init__(
        self, need: Need, *, rank: int = 0, bias: bool = True, start: float = 0.0, tanh: bool = False
    ) -> None:
        super().__init__(need)
        width = rank or need.hidden_size
        self.down = nn.Linear(need.hidden_size, rank, bias=False) if rank else None
        self.up = nn.Linear(width, need.size, bias=bias)
        self.tanh = tanh
        if bias:
            nn.init.constant_(self.up.bias, start)

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

    def __init__(self, need: Need, *, start: float = 0.0) -> None:
        super().__init__(need)
        self.u = nn.Parameter(torch.zeros(need.heads, need.key_dim))
        self.b = nn.Parameter(torch.full((need.heads,), start))

    def forward(self, x: Tensor, k: Tensor | None) -> Any:
        assert k is not None
        return ((of_heads(k, len(self.u)) * self.u).sum(-1) + self.b).sigmoid()


# ---- Decays --------------------------------------------------------------------------------------


def _time_steps(shape: tuple[int, ...], low: float, high: float) -> Tensor:
    """The softplus of what this gives is log-uniform in low .. high."""
    steps = torch.empty(shape).uniform_(math.log(low), math.log(high)).exp()
    return steps + (-(-steps).expm1()).log()


class Decay(Linear):
    """log_decay = -exp(A_log) softplus(W x + dt_bias), A uniform in `a`, softplus(dt_bias)
    log-uniform in 1e-3 .. 0.1. With `discretise` the values are multiplied by softplus(..), too."""

    def __init__(
        self,
        need: Need,
        *,
        a: tuple[float, float] = (1.0, 16.0),
        rank: int = 0,
        discretise: bool = False,
    ) -> None:
        super().__init__(need, rank=rank, bias=False)
        self.discretise = discretise
        self.A_log = nn.Parameter(torch.empty(need.heads).uniform_(*a).clamp(min=1e-4).log())
        self.dt_bias = nn.Parameter(_time_steps(need.shape, 1e-3, 0.1))
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
        self.formula = "log sigmoid(W x + b)" if low == 0 else f"log({low:g} + {1 - low:g} sigmoid(..))"

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
    """dt = softplus(W x + dt_bias), log-uniform in 1e-3 .. 0.1 at the start; it multiplies v, too."""

    formula = "softplus(W x + dt_bias); v dt"

    def __init__(self, need: Need, *, rank: int = 0) -> None:
        super().__init__(need, rank=rank or math.ceil(need.hidden_size / 16), bias=False)
        self.dt_bias = nn.Parameter(_time_steps(need.shape, 1e-3, 0.1))

    def forward(self, x: Tensor, k: Tensor | None) -> Any:
        dt = step_gate(self.project(x), self.dt_bias)
        return {"dt": dt, "value_scale": dt}


# ---- Keys along which a memory erases ------------------------------------------------------------


def of_heads(k: Tensor, heads: int) -> Tensor:
    """Keys [B, T, Hk, Dk] as every memory reads them, [B, T, H, Dk]."""
    return k if k.shape[2] == heads else k.repeat_interleave(heads // k.shape[2], 2)


class ScaledKey(Gate):
    """erase_key = sigmoid(b) k, one b a head."""

    formula = "sigmoid(b) k"

    def __init__(self, need: Need, *, start: float = 1.0) -> None:
        super().__init__(need)
        self.b = nn.Parameter(torch.full((need.heads, 1), start))

    def forward(self, x: Tensor, k: Tensor | None) -> Any:
        assert k is not None
        return of_heads(k, len(self.b)) * self.b.sigmoid()


class UnitKey(Gate):
    """erase_key = k (.) xi / |k (.) xi|, xi [H, Dk] (0.85 at the start)."""

    formula = "l2(k (.) xi)"

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


# ---- What does not depend on the token -----------------------------------------------------------


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


class Positive(Gate):
    """low + softplus(raw), `start` at the beginning: a ridge, a bandwidth."""

    def __init__(self, need: Need, *, start: float | None = None, low: float = 0.0) -> None:
        super().__init__(need)
        start = need.option(need.name) if start is None else start
        above = max(start - low, 1e-6)  # softplus(x) = above
        raw = above + math.log(-math.expm1(-above))
        self.low = low
        self.raw = nn.Parameter(torch.full(need.shape, raw))
        self.formula = f"{f'{low:g} + ' if low else ''}softplus(raw)"

    def forward(self, x: Tensor, k: Tensor | None) -> Any:
        return self.low + F.softplus(self.raw)


class Rates(Gate):
    """a = -exp(A_log), at the start -1 .. -Dk in every channel (S4D-Real)."""

    formula = "-exp(A_log)"

    def __init__(self, need: Need) -> None:
        super().__init__(need)
        rates = torch.arange(1, need.shape[-1] + 1, dtype=torch.get_default_dtype())
        self.A_log = nn.Parameter(rates.log().expand(need.shape).clone())

    def forward(self, x: Tensor, k: Tensor | None) -> Any:
        return -self.A_log.exp()
