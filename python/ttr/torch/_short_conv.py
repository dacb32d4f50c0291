"""Short causal convolution over time: `short_conv`, and in place `short_conv_`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import _autograd, _library
from ._derivatives import refuse_gradients, refuse_tangents
from ._differentiable import call, is_half, operator
from ._regress import run_in_place


def _fake(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    state: Tensor | None,
    cu_seqlens: Tensor | None,
    silu: bool,
) -> tuple[Tensor, Tensor]:
    if state is not None:
        final = state.new_empty(state.shape)
    else:
        count = x.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
        final = x.new_empty((count, weight.shape[2] - 1, *x.shape[2:]))
    return x.new_empty(x.shape), final


_op = operator("short_conv", 5, _fake)
_op_ = _library.operator("short_conv_")


@torch.library.register_fake("ttr::short_conv_")
def _fake_(state: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, silu: bool) -> Tensor:
    return x.new_empty(x.shape)


_autograd.in_place("short_conv_", "short_conv", around_memories=True)


def short_conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    state: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    silu: bool = False,
    return_state: bool = False,
) -> Any:
    """Short causal convolution over time, each channel by itself:

        z_t = bias + sum_{j < W} weight_j x_{t - (W-1) + j};  y_t = z_t, or silu(z_t)

    ==========  ========================================  ====================================
    x           [B, T, H, D], or [B, T, C]                float32, float64, bfloat16 or
                                                          float16, as all
    weight      [H, D, W], or [C, W]                      W in 1 .. 8; the last one is the
                                                          current token's
    bias        [H, D], or [C]
    state       [B or N, R, H, D], or [B or N, R, C]      the R >= W - 1 inputs before the first
                                                          token, oldest first; absent: zeros
    cu_seqlens  [N + 1], int32 or int64                   packed sequences, B = 1
    ==========  ========================================  ====================================

    Any strides; x is copied where its last axis is not contiguous. `state` is not changed.

    Returns y, shaped as x and in its dtype; with `return_state` the pair (y, final state), the
    final state as `state`, or W - 1 rows in the dtype of x. Differentiable once in x, weight, bias and
    state, through both.

    Errors: ValueError that names the argument, before any work; tensors on a device without the
    operator (another than the CPU) are PyTorch's NotImplementedError.
    """
    if x.dim() == 3:
        x, weight, bias, state = _with_head(x, weight, bias, state)
        y, final = call(_op, x, weight, bias, state, cu_seqlens, silu)
        y, final = y.squeeze(2), final.squeeze(2)
    else:
        y, final = call(_op, x, weight, bias, state, cu_seqlens, silu)
    return (y, final) if return_state else y


def short_conv_(
    state: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    silu: bool = False,
) -> Tensor:
    """`short_conv` of one token or more, with a state [B, R, H, D] (or [B, R, C]) of any strides
    that is updated in place: a cache [B, C, R] is `cache.transpose(1, 2)`.

    Returns y, shaped as x. No gradients: what requires them raises a RuntimeError. Other errors: as
    `short_conv`.
    """
    refuse_tangents("short_conv_", (state, x, weight, bias), "PyTorch's own operators, ")
    refuse_gradients("short_conv_", (state, x, weight, bias), "short_conv")
    with torch.no_grad():
        channels = x.dim() == 3
        if channels:
            x, weight, bias, state = _with_head(x, weight, bias, state)
        rows = state.float() if is_half(state) else state
        others = (t.float() if t is not None and is_half(t) else t for t in (x, weight, bias))
        y = run_in_place(_op_, [state], rows, *others, silu).to(x.dtype)
        if rows is not state:
            state.copy_(rows)
        return y.squeeze(2) if channels else y


def _with_head(x: Tensor, weight: Tensor, bias: Tensor | None, state: Tensor | None) -> Any:
    return (
        x.unsqueeze(2),
        weight.unsqueeze(0),
        None if bias is None else bias.unsqueeze(0),
        None if state is None else state.unsqueeze(2),
    )
