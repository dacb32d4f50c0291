"""The causal-conv1d package's functions: a short convolution over a sequence, or a token.

On a CPU they are `ttr.torch.short_conv` where that is the faster way: of a sequence whose channels
lie side by side, as projections give it, and of tokens in place. PyTorch's own convolution takes
sequences whose times lie side by side, which would have to be transposed, and other devices.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.compiler import is_compiling

from .._derivatives import refuse_gradients
from ._mamba import ends_of
from ._recurrent import refuse
from ._rows import by_rows

_DTYPES = (torch.float32, torch.bfloat16, torch.float64)
_MOST_WIDTH = 8


def _is_silu(function: str, activation: str | None) -> bool:
    if activation not in (None, "silu", "swish"):
        raise ValueError(
            f"[{function}] activation must be None, 'silu' or 'swish' but is {activation!r}"
        )
    return activation is not None


def _has_operator(weight: Tensor, *others: Tensor | None) -> bool:
    """Does `ttr.torch.short_conv` take these?"""
    tensors = [weight, *(t for t in others if t is not None)]
    if not all(t.is_cpu and t.dtype in _DTYPES for t in tensors):
        return False
    return weight.dim() == 2 and 1 <= weight.shape[1] <= _MOST_WIDTH


def _short_conv(x: Tensor, weight: Tensor, bias: Tensor | None, **options: Any) -> Any:
    """ttr.torch.short_conv, looked up when it is called: this package is imported by that one."""
    import ttr.torch

    return ttr.torch.short_conv(x, weight, bias, **options)


def causal_conv1d_fn(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    seq_idx: Tensor | None = None,
    initial_states: Tensor | None = None,
    return_final_states: bool = False,
    final_states_out: Tensor | None = None,
    activation: str | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """y[d, t] = bias_d + sum_s weight[d, W - 1 - s] x[d, t - s], then the activation.

    Args:
        x: [batch, dim, T]. weight: [dim, W]. bias: [dim].
        seq_idx: [batch, T]; no sum reaches over where it changes. Without initial or final states.
        initial_states: [batch, dim, W - 1], the inputs before the first; zeros where it is None.
        return_final_states: also return the last W - 1 inputs, in ``final_states_out`` where that
            is given.
        activation: None, "silu" or "swish".

    Returns:
        out [batch, dim, T] in x's dtype; with ``return_final_states`` also [batch, dim, W - 1].
    """
    silu = _is_silu("causal_conv1d_fn", activation)
    if seq_idx is not None:
        refuse(
            "causal_conv1d_fn",
            initial_states=initial_states,
            return_final_states=return_final_states,
        )
        by_rows = x.numel() > 0 and x.stride(1) == 1 and not is_compiling()
        if by_rows and _has_operator(weight, x, bias):
            return _packed(x, weight, bias, seq_idx, silu)
        y = _within_sequences(x.to(weight.dtype), weight, bias, seq_idx)
        return (F.silu(y) if silu else y).to(x.dtype)
    if x.dim() == 3 and x.stride(1) == 1 and _has_operator(weight, x, bias, initial_states):
        state = None if initial_states is None else initial_states.to(x.dtype).transpose(1, 2)
        out, last = _short_conv(
            x.transpose(1, 2), weight, bias, state=state, silu=silu, return_state=True
        )
        out, final = out.transpose(1, 2), last.transpose(1, 2)
    else:
        out, final = _of_pytorch(x, weight, bias, initial_states, silu)
    if not return_final_states:
        return out
    return out, final if final_states_out is None else final_states_out.copy_(final)


def _of_pytorch(
    x: Tensor, weight: Tensor, bias: Tensor | None, initial_states: Tensor | None, silu: bool
) -> tuple[Tensor, Tensor]:
    """Any device and dtype: the outputs and the last W - 1 inputs."""
    width = weight.shape[1]
    before = (
        x.new_zeros(*x.shape[:2], width - 1)
        if initial_states is None
        else initial_states.to(x.dtype)
    )
    seen = torch.cat([before, x], -1)
    y = F.conv1d(seen.to(weight.dtype), weight.unsqueeze(1), bias, groups=weight.shape[0])
    out = (F.silu(y) if silu else y).to(x.dtype)
    return out, seen[..., seen.shape[-1] - (width - 1) :]


def _packed(x: Tensor, weight: Tensor, bias: Tensor | None, seq_idx: Tensor, silu: bool) -> Tensor:
    """The rows one after another are packed sequences. (How many there are is read from the numbers
    of seq_idx: nothing for a compiler.)"""
    rows = x.transpose(1, 2)
    flat = rows.flatten(0, 1).unsqueeze(0)
    y = _short_conv(flat, weight, bias, cu_seqlens=ends_of(seq_idx), silu=silu)
    return y.squeeze(0).unflatten(0, rows.shape[:2]).transpose(1, 2)


def _within_sequences(x: Tensor, weight: Tensor, bias: Tensor | None, seq_idx: Tensor) -> Tensor:
    width = weight.shape[1]
    y = weight[:, -1:] * x
    for s in range(1, min(width, x.shape[-1])):
        same = (seq_idx[:, s:] == seq_idx[:, :-s]).unsqueeze(1)
        y = y + F.pad(weight[:, width - 1 - s, None] * torch.where(same, x[..., :-s], 0), (s, 0))
    return y if bias is None else y + bias.unsqueeze(-1)


def causal_conv1d_update(
    x: Tensor,
    conv_state: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
    cache_seqlens: Tensor | None = None,
    conv_state_indices: Tensor | None = None,
    pad_slot_id: int = -1,
) -> Tensor:
    """One token, or a few, of causal_conv1d_fn; ``conv_state`` is updated in place.

    Args:
        x: [batch, dim] or [batch, dim, T].
        conv_state: [batch, dim, L], L >= W - 1, the latest inputs, the newest last, of any
            strides; with ``conv_state_indices`` [batch], int32 or int64, any number of rows, of which
            those are used. ``pad_slot_id``: none, and the answer is 0.
        weight: [dim, W]. bias: [dim]. activation: None, "silu" or "swish".
        cache_seqlens: [batch]; conv_state is then a ring, and token number n is at n mod L.

    Returns:
        out, x's shape and dtype. No gradients: what requires them raises a RuntimeError. ValueError, and
        nothing written: rows out of range, or equal.
    """
    silu = _is_silu("causal_conv1d_update", activation)
    refuse_gradients("causal_conv1d_update", (x, conv_state, weight, bias), "causal_conv1d_fn")
    if conv_state_indices is not None:

        def update(rows: Tensor, x: Tensor, lengths: Tensor | None) -> Tensor:
            return causal_conv1d_update(x, rows, weight, bias, activation, lengths)

        argument, inputs = "causal_conv1d_update conv_state_indices", (x, cache_seqlens)
        return by_rows(argument, conv_state_indices, pad_slot_id, conv_state, x, inputs, update)
    with torch.no_grad():
        tokens = x.unsqueeze(-1) if x.dim() == 2 else x
        if cache_seqlens is None and _has_operator(weight, tokens, bias, conv_state):
            out = _update(tokens, conv_state, weight, bias, silu)
            return out.squeeze(-1) if x.dim() == 2 else out
        shift = _shift if cache_seqlens is None else _write_ring
        seen, new = shift(conv_state, tokens.to(conv_state.dtype), weight.shape[1], cache_seqlens)
        conv_state.copy_(new)
        y = F.conv1d(seen.to(weight.dtype), weight.unsqueeze(1), bias, groups=weight.shape[0])
        out = (F.silu(y) if silu else y).to(x.dtype)
    return out.squeeze(-1) if x.dim() == 2 else out


def _update(
    tokens: Tensor, state: Tensor, weight: Tensor, bias: Tensor | None, silu: bool
) -> Tensor:
    import ttr.torch

    out: Tensor = ttr.torch.short_conv_(
        state.transpose(1, 2), tokens.transpose(1, 2), weight, bias, silu=silu
    )
    return out.transpose(1, 2)


def _shift(state: Tensor, tokens: Tensor, width: int, _: Tensor | None) -> tuple[Tensor, Tensor]:
    """The W - 1 inputs before the tokens with the tokens, and the state after them."""
    both = torch.cat([state, tokens], -1)
    return both[..., both.shape[-1] - tokens.shape[-1] - width + 1 :], both[..., tokens.shape[-1] :]


def _write_ring(
    state: Tensor, tokens: Tensor, width: int, lengths: Tensor | None
) -> tuple[Tensor, Tensor]:
    assert lengths is not None
    size, dim = state.shape[-1], state.shape[1]

    def places(begin: int, end: int) -> Tensor:
        number = torch.arange(begin, end, device=state.device) + lengths.long().unsqueeze(1)
        return number.remainder(size).unsqueeze(1).expand(-1, dim, -1)

    before = state.gather(2, places(1 - width, 0))
    return torch.cat([before, tokens], -1), state.scatter(2, places(0, tokens.shape[-1]), tokens)
