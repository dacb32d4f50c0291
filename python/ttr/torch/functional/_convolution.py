"""The causal-conv1d package's functions: a short convolution over a sequence, or a token."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ._recurrent import refuse


def _activated(function: str, y: Tensor, activation: str | None) -> Tensor:
    if activation is None:
        return y
    if activation not in ("silu", "swish"):
        raise ValueError(
            f"[{function}] activation must be None, 'silu' or 'swish' but is {activation!r}"
        )
    return F.silu(y)


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
    if seq_idx is not None:
        refuse(
            "causal_conv1d_fn",
            initial_states=initial_states,
            return_final_states=return_final_states,
        )
        y = _within_sequences(x.to(weight.dtype), weight, bias, seq_idx)
        return _activated("causal_conv1d_fn", y, activation).to(x.dtype)
    width = weight.shape[1]
    before = (
        x.new_zeros(*x.shape[:2], width - 1)
        if initial_states is None
        else initial_states.to(x.dtype)
    )
    seen = torch.cat([before, x], -1)
    y = F.conv1d(seen.to(weight.dtype), weight.unsqueeze(1), bias, groups=weight.shape[0])
    out = _activated("causal_conv1d_fn", y, activation).to(x.dtype)
    if not return_final_states:
        return out
    final = seen[..., seen.shape[-1] - (width - 1) :]
    return out, final if final_states_out is None else final_states_out.copy_(final)


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
) -> Tensor:
    """One token, or a few, of causal_conv1d_fn; ``conv_state`` is updated in place.

    Args:
        x: [batch, dim] or [batch, dim, T].
        conv_state: [batch, dim, L], L >= W - 1, the latest inputs, the newest last, of any
            strides; with ``conv_state_indices`` [batch] more rows, of which those are used.
        weight: [dim, W]. bias: [dim]. activation: None, "silu" or "swish".
        cache_seqlens: [batch]; conv_state is then a ring, and token number n is at n mod L.

    Returns:
        out, x's shape and dtype. No gradients.
    """
    with torch.no_grad():
        tokens = x.unsqueeze(-1) if x.dim() == 2 else x
        state = conv_state if conv_state_indices is None else conv_state[conv_state_indices]
        shift = _shift if cache_seqlens is None else _write_ring
        seen, new = shift(state, tokens.to(state.dtype), weight.shape[1], cache_seqlens)
        if conv_state_indices is None:
            conv_state.copy_(new)
        else:
            conv_state[conv_state_indices] = new
        y = F.conv1d(seen.to(weight.dtype), weight.unsqueeze(1), bias, groups=weight.shape[0])
        out = _activated("causal_conv1d_update", y, activation).to(x.dtype)
    return out.squeeze(-1) if x.dim() == 2 else out


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
