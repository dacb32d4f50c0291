"""Linear attention and its decays: linear_attn, retention, simple_gla, gla."""

from __future__ import annotations

import torch
from torch import Tensor

from ._recurrent import given_state, linear_memory, named, refuse, regress, scale_option, wide

_Pair = tuple[Tensor, Tensor]


def chunk_linear_attn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    initial_state: Tensor | _Pair | None = None,
    output_final_state: bool = False,
    normalize: bool = True,
    head_first: bool = False,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor | _Pair | None]:
    """M = M' + v k^T, y = scale M q; with ``normalize`` divided by scale z . q, z the sum of the
    keys.

    Args:
        q, k, v: [B, T, H, K], [B, T, H, K], [B, T, H, V].
        scale: K ** -0.5 where it is None.
        initial_state: [N, H, K, V]; with ``normalize`` that or a pair (M, z), z [N, 1, H, K].
        output_final_state: also return the final state, with ``normalize`` as such a pair.
        head_first: must be False.
        cu_seqlens: [N + 1], int32 or int64; packed sequences, B = 1.

    Returns:
        (o [B, T, H, V] in q's dtype, the final state or None). Where z . q = 0 the output is 0;
        the GPU library adds 1e-10 to z . q.
    """
    refuse("chunk_linear_attn", head_first=head_first)
    return _linear_attn(q, k, v, scale, initial_state, output_final_state, normalize, cu_seqlens)


def fused_recurrent_linear_attn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    initial_state: Tensor | _Pair | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    normalize: bool = False,
    cu_seqlens: Tensor | None = None,
    head_first: bool = False,
) -> tuple[Tensor, Tensor | _Pair | None]:
    """chunk_linear_attn with ``normalize`` False by default; ``reverse`` must be False."""
    refuse("fused_recurrent_linear_attn", reverse=reverse, head_first=head_first)
    return _linear_attn(q, k, v, scale, initial_state, output_final_state, normalize, cu_seqlens)


def _linear_attn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None,
    initial_state: Tensor | _Pair | None,
    output_final_state: bool,
    normalize: bool,
    cu_seqlens: Tensor | None,
) -> tuple[Tensor, Tensor | _Pair | None]:
    recipe = named(
        "linear_attention", scale=scale_option(scale), normalise_sum="sum" if normalize else None
    )
    if not normalize:
        if isinstance(initial_state, tuple):
            raise ValueError(
                "[linear_attn] initial_state must be a tensor without normalize but is a pair"
            )
        return linear_memory(recipe, q, k, v, initial_state, output_final_state, cu_seqlens)
    memory, keys = initial_state if isinstance(initial_state, tuple) else (initial_state, None)
    state = given_state(memory)
    if keys is not None:
        state["state.n"] = wide(keys).squeeze(1)
    o, final = regress(recipe, q, k, v, state=state, return_state=True, cu_seqlens=cu_seqlens)
    pair = (final["state"], final["state.n"].unsqueeze(1)) if output_final_state else None
    return o.to(q.dtype), pair


def chunk_retention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
    head_first: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """M = (1 - 2^(-5-h)) M' + v k^T for memory h, y = scale M q. Arguments: chunk_simple_gla."""
    refuse("chunk_retention", head_first=head_first)
    recipe = named("retnet", scale=scale_option(scale))
    return linear_memory(recipe, q, k, v, initial_state, output_final_state, cu_seqlens)


def fused_recurrent_retention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    cu_seqlens: Tensor | None = None,
    head_first: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """chunk_retention; ``reverse`` must be False."""
    refuse("fused_recurrent_retention", reverse=reverse)
    return chunk_retention(
        q, k, v, scale, initial_state, output_final_state, cu_seqlens, head_first
    )


def chunk_simple_gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None = None,
    g_gamma: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    *,
    head_first: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """M = exp(g + g_gamma) M' + v k^T, y = scale M q: one decay a token and memory.

    Args:
        q, k, v: [B, T, H, K], [B, T, H, K], [B, T, H, V].
        g: [B, T, H], the decay's logarithm, <= 0; None: 0.
        g_gamma: [H], a logarithm for all tokens; None: 0.
        scale: K ** -0.5 where it is None.
        initial_state: [N, H, K, V], or [N, H, V, K] with ``state_v_first``.
        output_final_state: also return the final state, float32 (float64 of float64 inputs).
        cu_seqlens: [N + 1], int32 or int64; packed sequences, B = 1. ``cu_seqlens_cpu``, a copy of
            it, is not read.

    Returns:
        (o [B, T, H, V] in q's dtype, the final state or None).
    """
    refuse("chunk_simple_gla", head_first=head_first)
    g = _with_constant(g, g_gamma, k)
    recipe = named("linear_attention" if g is None else "mamba2", scale=scale_option(scale))
    inputs = {} if g is None else {"log_decay": g}
    return linear_memory(
        recipe, q, k, v, initial_state, output_final_state, cu_seqlens, state_v_first, **inputs
    )


def _with_constant(g: Tensor | None, g_gamma: Tensor | None, k: Tensor) -> Tensor | None:
    if g_gamma is None:
        return g
    return g_gamma.expand(*k.shape[:2], -1) if g is None else g + g_gamma


def fused_recurrent_simple_gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None = None,
    g_gamma: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    cu_seqlens: Tensor | None = None,
    head_first: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """chunk_simple_gla; ``reverse`` must be False."""
    refuse("fused_recurrent_simple_gla", reverse=reverse)
    return chunk_simple_gla(
        q,
        k,
        v,
        g,
        g_gamma,
        scale,
        initial_state,
        output_final_state,
        cu_seqlens=cu_seqlens,
        head_first=head_first,
    )


def chunk_gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
    head_first: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """M = M' diag(exp(g)) + v k^T, y = scale M q: a decay for each key channel, g [B, T, H, K] <=
    0.

    Other arguments: chunk_simple_gla.
    """
    refuse("chunk_gla", head_first=head_first)
    recipe = named("gla", scale=scale_option(scale))
    return linear_memory(
        recipe, q, k, v, initial_state, output_final_state, cu_seqlens, log_decay=g
    )


def fused_recurrent_gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gk: Tensor | None = None,
    gv: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    cu_seqlens: Tensor | None = None,
    head_first: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """chunk_gla with its decay as ``gk``, None: 0; ``gv`` and ``reverse`` must be left out."""
    refuse("fused_recurrent_gla", gv=gv, reverse=reverse)
    if gk is None:
        gk = torch.zeros_like(k)
    return chunk_gla(q, k, v, gk, scale, initial_state, output_final_state, cu_seqlens, head_first)
