"""Norms of rows, with scale, shift and gate: `norm`."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from . import _library  # noqa: F401 (loads the operators)
from ._differentiable import call, operator


def _fake(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    gate: Tensor | None,
    kind: str,
    eps: float,
    gate_kind: str,
    gate_first: bool,
) -> Tensor:
    return x.new_empty(x.shape)


_op = operator("norm", 4, _fake)


def norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    gate: Tensor | None = None,
    *,
    kind: Literal["l2", "rms", "layer"] = "rms",
    eps: float = 1e-6,
    gate_kind: Literal["silu", "sigmoid"] = "silu",
    gate_first: bool = False,
) -> Tensor:
    """The norm of every row, with a learned scale and shift and a gate:

        n = x / sqrt(|x|^2 + eps)                  kind="l2"
        n = x / sqrt(|x|^2 / D + eps)              kind="rms"
        n = (x - mean) / sqrt(variance + eps)      kind="layer"
        y = (n (.) weight + bias) (.) g(gate)

    weight, bias and gate each where given; g(z) is z / (1 + exp(-z)) ("silu") or 1 / (1 + exp(-z))
    ("sigmoid"). With `gate_first`, x (.) g(gate) takes the place of x and y = n (.) weight + bias
    (Mamba-2).

    x and gate are [B, T, H, D] or [B, T, D]; weight and bias [D] or [H, D]; each float32, float64,
    bfloat16 or float16. Any strides; a last axis that is not contiguous is copied. eps is finite and >= 0.

    Returns y, shaped as x and in its dtype. Differentiable once in every tensor.

    Errors: ValueError that names the argument, before any work; tensors on a device without the
    operator (another than the CPU) are PyTorch's NotImplementedError.
    """
    if x.dim() != 3:
        return call(_op, x, weight, bias, gate, kind, eps, gate_kind, gate_first)
    x, gate = x.unsqueeze(2), None if gate is None else gate.unsqueeze(2)
    return call(_op, x, weight, bias, gate, kind, eps, gate_kind, gate_first).squeeze(2)
