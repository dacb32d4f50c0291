"""What stands around a memory, on any device: the library's operators on a CPU, PyTorch's own
elsewhere."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import _gates, _norm, _short_conv


def short_conv(
    x: Tensor, weight: Tensor, state: Tensor | None, cu_seqlens: Tensor | None, silu: bool
) -> tuple[Tensor, Tensor]:
    """`ttr.torch.short_conv` of x [B, T, C] by weight [C, W], with its state [B, W - 1, C]."""
    if x.is_cpu or x.is_meta:
        made: tuple[Tensor, Tensor] = _short_conv.short_conv(
            x, weight, state=state, cu_seqlens=cu_seqlens, silu=silu, return_state=True
        )
        return made
    return portable_conv(x, weight, state, cu_seqlens, silu)


def portable_conv(
    x: Tensor, weight: Tensor, state: Tensor | None, cu_seqlens: Tensor | None, silu: bool
) -> tuple[Tensor, Tensor]:
    """A short convolution in PyTorch's operators."""
    if cu_seqlens is not None:
        return _packed_conv(x, weight, state, cu_seqlens, silu)
    width = weight.shape[1]
    before = x.new_zeros(x.shape[0], width - 1, x.shape[2]) if state is None else state
    rows = torch.cat([before.to(x.dtype), x], 1)
    tokens, first = x.shape[1], before.shape[1] - (width - 1)
    y = torch.zeros_like(x)
    for j in range(width):
        y = y + rows[:, first + j : first + j + tokens] * weight[:, j]
    return (F.silu(y) if silu else y), rows[:, tokens:]


def _packed_conv(
    x: Tensor, weight: Tensor, state: Tensor | None, cu_seqlens: Tensor, silu: bool
) -> tuple[Tensor, Tensor]:
    """Packed sequences: the rows before each are put between them, and taken out again."""
    count, width = len(cu_seqlens) - 1, weight.shape[1]
    before = x.new_zeros(count, width - 1, x.shape[2]) if state is None else state.to(x.dtype)
    held, numbers = before.shape[1], torch.arange(count, device=x.device)
    lengths = cu_seqlens.diff()
    sequence = numbers.repeat_interleave(lengths)  # of every token
    places = torch.arange(x.shape[1], device=x.device) + held * (sequence + 1)
    ahead = (cu_seqlens[:-1] + held * numbers)[:, None] + torch.arange(held, device=x.device)
    rows = x.new_zeros(x.shape[1] + held * count, x.shape[2])
    rows = rows.index_copy(0, places, x[0]).index_copy(0, ahead.flatten(), before.flatten(0, 1))
    y, _ = portable_conv(rows[None], weight, None, None, silu)
    return y[:, places], rows[ahead + lengths[:, None]]


def norm(
    x: Tensor,
    weight: Tensor | None,
    gate: Tensor | None,
    kind: Any,
    gate_kind: Any,
    gate_first: bool,
) -> Tensor:
    """`ttr.torch.norm` of rows [B, T, H, D]."""
    if x.is_cpu or x.is_meta:
        return _norm.norm(
            x, weight, None, gate, kind=kind, gate_kind=gate_kind, gate_first=gate_first
        )
    return portable_norm(x, weight, gate, kind, gate_kind, gate_first)


def portable_norm(
    x: Tensor,
    weight: Tensor | None,
    gate: Tensor | None,
    kind: str,
    gate_kind: str,
    gate_first: bool,
) -> Tensor:
    """A norm in PyTorch's operators."""
    dtype, x = x.dtype, x if x.dtype == torch.float64 else x.float()
    factor = None if gate is None else (F.silu(gate) if gate_kind == "silu" else gate.sigmoid())
    if factor is not None and gate_first:
        x = x * factor
    if kind == "layer":
        x = x - x.mean(-1, keepdim=True)
    squares = x.square()
    size = squares.sum(-1, keepdim=True) if kind == "l2" else squares.mean(-1, keepdim=True)
    x = x * (size + 1e-6).rsqrt()
    if weight is not None:
        x = x * weight
    if factor is not None and not gate_first:
        x = x * factor
    return x.to(dtype)


def l2(x: Tensor) -> Tensor:
    """x / |x| of rows."""
    return norm(x, None, None, "l2", "silu", False)


def decay_gate(x: Tensor, a: Tensor, bias: Tensor) -> Tensor:
    """-exp(a) softplus(x + bias)."""
    if x.is_cpu or x.is_meta:
        return _gates.decay_gate(x, a, bias)
    wide = x if x.dtype == torch.float64 else x.float()
    return -a.exp() * F.softplus(wide + bias)


def step_gate(x: Tensor, bias: Tensor) -> Tensor:
    """softplus(x + bias)."""
    if x.is_cpu or x.is_meta:
        return _gates.step_gate(x, bias)
    wide = x if x.dtype == torch.float64 else x.float()
    return F.softplus(wide + bias)
