"""Short convolution, norms and gates by their formulas, in PyTorch's operators in float64; a case of each."""

from __future__ import annotations

from typing import Any, Callable

import torch
import torch.nn.functional as F
import ttr.torch as tt
from torch import Tensor

OPS = torch.ops.ttr
B, T, H, D = 2, 7, 3, 5
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-6, torch.bfloat16: 1e-2}


def rand(*shape: int, dtype: torch.dtype = torch.float64, grad: bool = False) -> Tensor:
    return torch.randn(*shape, dtype=dtype).requires_grad_(grad)


def close(actual: Tensor, expected: Tensor) -> None:
    """To the rounding of actual's dtype."""
    assert actual.shape == expected.shape
    bound = TOLERANCE[actual.dtype]
    torch.testing.assert_close(
        actual.detach().double(), expected.detach().double(), rtol=bound, atol=bound
    )


def conv_formula(
    x: Tensor, w: Tensor, b: Tensor | None, s: Tensor | None, silu: bool
) -> tuple[Tensor, Tensor]:
    width = w.shape[-1]
    s = x.new_zeros(x.shape[0], width - 1, *x.shape[2:]) if s is None else s
    seen = torch.cat([s, x], 1)
    first = s.shape[1] - (width - 1)
    z = sum(w[..., j] * seen[:, first + j : first + j + x.shape[1]] for j in range(width))
    z = z if b is None else z + b
    return (F.silu(z) if silu else z), seen[:, x.shape[1] :]


def norm_formula(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    gate: Tensor | None = None,
    kind: str = "rms",
    eps: float = 1e-6,
    gate_kind: str = "silu",
    gate_first: bool = False,
) -> Tensor:
    g = None if gate is None else gate.sigmoid() * (gate if gate_kind == "silu" else 1)
    x = x * g if g is not None and gate_first else x
    if kind == "layer":
        x = x - x.mean(-1, keepdim=True)
    square = x.square().sum(-1, keepdim=True) / (1 if kind == "l2" else x.shape[-1])
    y = x / (square + eps).sqrt()
    y = y if weight is None else y * weight
    y = y if bias is None else y + bias
    return y if g is None or gate_first else y * g


def per_token(parameter: Tensor, x: Tensor) -> Tensor:
    return parameter.unsqueeze(-1) if parameter.dim() == 1 and x.dim() == 4 else parameter


def decay_formula(x: Tensor, a: Tensor, b: Tensor | None = None) -> Tensor:
    u = x if b is None else x + per_token(b, x)
    return -per_token(a, x).exp() * (u.exp() + 1).log()


def step_formula(x: Tensor, b: Tensor | None = None, low: float = 0.0, high: float = 1e9) -> Tensor:
    u = x if b is None else x + per_token(b, x)
    return (u.exp() + 1).log().clamp(low, high)


def skip_formula(
    y: Tensor, x: Tensor | None = None, d: Tensor | None = None, z: Tensor | None = None
) -> Tensor:
    y = y if d is None or x is None else y + per_token(d, y) * x
    return y if z is None else y * z * z.sigmoid()


def conv_case() -> tuple[Callable[..., Any], Callable[..., Any], list[Tensor]]:
    return (
        lambda x, w, b, s: tt.short_conv(x, w, b, state=s, silu=True, return_state=True),
        lambda x, w, b, s: conv_formula(x, w, b, s, True),
        [rand(B, 4, H, D), rand(H, D, 3), rand(H, D), rand(B, 4, H, D)],
    )


def case(actual: Any, formula: Any, *shapes: tuple[int, ...], **options: Any) -> Any:
    return (
        lambda *t: actual(*t, **options),
        lambda *t: formula(*t, **options),
        [rand(*shape) for shape in shapes],
    )


ROWS = (B, 4, H, D)
CASES: dict[str, Callable[[], Any]] = {
    "short_conv": conv_case,
    "norm l2": lambda: case(tt.norm, norm_formula, ROWS, kind="l2"),
    "norm rms": lambda: case(tt.norm, norm_formula, ROWS, (D,), (D,), ROWS),
    "norm layer": lambda: case(tt.norm, norm_formula, ROWS, (H, D), (D,), ROWS, kind="layer", gate_first=True),
    "norm sigmoid": lambda: case(tt.norm, norm_formula, ROWS, (H, D), (H, D), ROWS, gate_kind="sigmoid"),
    "decay": lambda: case(tt.decay_gate, decay_formula, ROWS, (H,), (H, D)),
    "decay of heads": lambda: case(tt.decay_gate, decay_formula, (B, 4, H), (H,), (H,)),
    "step": lambda: case(tt.step_gate, step_formula, ROWS, (H, D), low=0.2, high=1.5),
    "skip": lambda: case(tt.skip_gate, skip_formula, ROWS, ROWS, (H,), ROWS),
    "skip of channels": lambda: case(tt.skip_gate, skip_formula, ROWS, ROWS, (H, D), ROWS),
}  # fmt: skip


def grads_of(function: Callable[..., Any], tensors: list[Tensor]) -> list[Tensor | None]:
    """Gradients of a sum of all outputs with weights of no pattern."""
    outputs = function(*tensors)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    loss = sum((y * torch.linspace(-1, 2, y.numel()).reshape(y.shape)).sum() for y in outputs)
    wanted = [t for t in tensors if t.requires_grad]
    found = iter(torch.autograd.grad(loss, wanted))
    return [next(found) if t.requires_grad else None for t in tensors]
