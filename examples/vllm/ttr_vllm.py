"""Kimi delta attention on a CPU in vLLM, by ttr: a plugin.

vLLM loads it by the entry point `vllm.general_plugins` (pyproject.toml beside this file) in each of its
processes. Kimi Linear's layers call a few functions whose only form is a Triton kernel; on a CPU these
names are bound to ttr's functions here. States stay rows of vLLM's own cache, taken by its indices;
block 0 is its padding. A row holds [K, V] where the kernels would have [V, K]: nobody else reads it.

Written for vLLM 0.32. Not served: speculative decoding, states in bfloat16.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor
from ttr.torch import functional as ttf

_LAYER = "vllm.model_executor.layers.mamba.gdn.kimi_gdn_linear_attn"
_KERNELS = "vllm.models.kimi_k3.nvidia.ops.third_party.kda"
_PADDING = 0


def chunk_kda_with_fused_gate(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    raw_g: Tensor,
    raw_beta: Tensor,
    A_log: Tensor,
    g_bias: Tensor | None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    lower_bound: float | None = None,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Tensor | None = None,
    out: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, Tensor | None]:
    """Prompts, packed."""
    o, final = ttf.chunk_kda(
        q, k, v, raw_g, raw_beta, scale, initial_state, output_final_state, use_qk_l2norm_in_kernel,
        use_gate_in_kernel=True, use_beta_sigmoid_in_kernel=True, lower_bound=lower_bound,
        A_log=A_log, dt_bias=g_bias, cu_seqlens=cu_seqlens,
    )  # fmt: skip
    return (o if out is None else out.copy_(o)), final


def fused_recurrent_kda_packed_decode(
    mixed_qkv: Tensor,
    raw_g: Tensor,
    raw_beta: Tensor,
    A_log: Tensor,
    dt_bias: Tensor,
    lower_bound: float | None,
    initial_state: Tensor,
    state_indices: Tensor,
    scale: float | None = None,
    out: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """A token of every stream, into the rows of the cache."""
    heads, width = initial_state.shape[1:3]
    q, k, v = mixed_qkv.unflatten(-1, (3, 1, heads, width)).unbind(1)
    o = ttf.fused_sigmoid_gating_delta_rule_update(
        A_log, raw_g[0], dt_bias, 1.0, 20.0, q, k, v, raw_beta[0], initial_state, state_indices,
        scale, True, is_kda=True, lower_bound=lower_bound, pad_slot_id=_PADDING,
    ).transpose(0, 1)  # fmt: skip
    return (o if out is None else out.copy_(o)), initial_state


def causal_conv1d_update(
    x: Tensor,
    conv_state: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
    conv_state_indices: Tensor | None = None,
    out: Tensor | None = None,
    **_: Any,
) -> Tensor:
    words = {"conv_state_indices": conv_state_indices, "pad_slot_id": _PADDING}
    y = ttf.causal_conv1d_update(x, conv_state, weight.to(x.dtype), bias, activation, **words)
    return y if out is None else out.copy_(y)


def gather_initial_states(state: Tensor, indices: Tensor, has_initial_state: Tensor) -> Tensor:
    rows = state[indices.long()]
    return rows.masked_fill_(~has_initial_state.view(-1, 1, 1, 1), 0)


def register() -> None:
    """The entry point. Elsewhere than on a CPU nothing is bound."""
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return
    layer, kernels = importlib.import_module(_LAYER), importlib.import_module(_KERNELS)
    convolution = importlib.import_module("vllm.model_executor.layers.mamba.ops.cpu.causal_conv1d")
    kernels.chunk_kda_with_fused_gate = chunk_kda_with_fused_gate
    kernels.fused_recurrent_kda_packed_decode = fused_recurrent_kda_packed_decode
    layer.causal_conv1d_fn = convolution.causal_conv1d_fn_cpu
    layer.causal_conv1d_update = causal_conv1d_update
    layer.gather_initial_states = gather_initial_states
