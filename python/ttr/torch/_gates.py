"""Gates from what a projection gives: `decay_gate`, `step_gate`, `skip_gate`."""

from __future__ import annotations

import torch
from torch import Tensor

from . import _library  # noqa: F401 (loads the operators)
from ._differentiable import call, operator


def _wide_as(x: Tensor) -> Tensor:
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    return x.new_empty(x.shape, dtype=dtype)


def _fake_decay(x: Tensor, a: Tensor, bias: Tensor | None) -> Tensor:
    return _wide_as(x)


def _fake_step(x: Tensor, bias: Tensor | None, low: float, high: float) -> Tensor:
    return _wide_as(x)


def _fake_skip(y: Tensor, x: Tensor | None, d: Tensor | None, z: Tensor | None) -> Tensor:
    return y.new_empty(y.shape)


_decay = operator("decay_gate", 3, _fake_decay)
_step = operator("step_gate", 2, _fake_step)
_skip = operator("skip_gate", 4, _fake_skip)


def decay_gate(x: Tensor, a: Tensor, bias: Tensor | None = None) -> Tensor:
    """log_decay = -exp(a) softplus(x + bias): how much a token forgets (Mamba-2, Gated DeltaNet,
    KDA).

    x, the projection, is [B, T, H] or [B, T, H, D]; a (A_log) and bias (dt_bias) are [H], or [H, D]
    beside [B, T, H, D]; each float32, float64, bfloat16 or float16, of any
    strides.

    Returns log_decay, shaped as x, float32 or as x float64; never above 0. Differentiable once in
    every tensor.

    Errors: ValueError that names the argument, before any work; tensors on a device without the
    operator (another than the CPU) are PyTorch's NotImplementedError.
    """
    return call(_decay, x, a, bias)


def step_gate(
    x: Tensor, bias: Tensor | None = None, *, low: float = 0.0, high: float = float("inf")
) -> Tensor:
    """step = clamp(softplus(x + bias), low, high): how far a token steps (dt of Mamba).

    x is [B, T, H] or [B, T, H, D]; bias (dt_bias) is [H], or [H, D] beside [B, T, H, D]; each
    float32, float64, bfloat16 or float16, of any strides. low <= high.

    Returns step, shaped as x, float32 or as x float64. Differentiable once in x and bias; a step
    outside of its limits has no slope.

    Errors: as `decay_gate`.
    """
    return call(_step, x, bias, float(low), float(high))


def skip_gate(
    y: Tensor, x: Tensor | None = None, d: Tensor | None = None, z: Tensor | None = None
) -> Tensor:
    """out = (y + d x) silu(z): what leaves a layer behind Mamba's memory.

    y, what the memory retrieved, x and z are [B, T, H, D]; d is [H] or [H, D]; each float32,
    float64, bfloat16 or float16, of any strides. x and d go together; they, or z, may be absent.

    Returns out, shaped as y and in its dtype. Differentiable once in every tensor.

    Errors: as `decay_gate`.
    """
    return call(_skip, y, x, d, z)
