"""Delta rules whose keys of erasing and of writing differ: gdn2, comba, and gated_delta_product."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._delta import _gate, _ones, _step, _with_norm
from ._recurrent import linear_memory, named, of_memories, refuse, scale_option, unit, wide

#: exp(-g) of a smaller g is more than float32 holds beside a memory.
_LEAST_DECAY = -80.0


def chunk_gdn2(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    b: Tensor,
    w: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    safe_gate: bool = False,
    lower_bound: float | None = None,
    *,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    chunk_indices: Tensor | None = None,
    cp_context: Any = None,
    disable_recompute: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """M~ = M' diag(exp(g));  M = M~ + (w (.) v - M~ (b (.) k)) k^T, y = scale M q.

    Args:
        q, k: [B, T, H, K]; v: [B, T, HV, V], H divides HV.
        g, b: [B, T, HV, K], g <= 0, b of any sign; w: [B, T, HV, V].
        Others as in chunk_kda.

    Returns:
        (o [B, T, HV, V] in q's dtype, the final state [N, HV, K, V] or None).
    """
    refuse("chunk_gdn2", cp_context=cp_context)
    if use_gate_in_kernel:
        g = _gate("chunk_gdn2", g, A_log, dt_bias, lower_bound)
    return linear_memory(
        _with_norm("gated_deltanet2", scale, use_qk_l2norm_in_kernel),
        q,
        k,
        v * w,
        initial_state,
        output_final_state,
        cu_seqlens,
        state_v_first,
        log_decay=g,
        erase_gate=b,
    )


def chunk_comba(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    p: Tensor | None,
    g: Tensor,
    beta: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """M = exp(g) M' + beta (v - M' p) k^T, y = scale M q: the error is that of M before it decays.

    The zoo's `comba` erases what the decayed memory answers; this is that of the key exp(-g) p, and
    corrects no query: the module around it does.

    Args:
        q, k, p: [B, T, H, K]; v: [B, T, HV, V], H divides HV. A ``p`` of None is k.
        g, beta: [B, T, HV], -80 <= g <= 0, beta >= 0; a ``beta`` of None is 1.
        use_qk_l2norm_in_kernel: q, k and p are x / sqrt(|x|^2 + 1e-6).
        Others as in chunk_gated_delta_rule.

    Returns:
        (o [B, T, HV, V] in q's dtype, the final state [N, HV, K, V] or None). ValueError: a g below
        -80, whose inverse float32 does not hold.
    """
    if not torch.compiler.is_compiling() and bool((g.detach() < _LEAST_DECAY).any()):
        least = float(g.detach().min())
        raise ValueError(f"[chunk_comba] g must be at least {_LEAST_DECAY:g} but is {least:g}")
    p = k if p is None else p
    dtype = q.dtype
    if use_qk_l2norm_in_kernel:
        q, k, p = unit(q), unit(k), unit(p)
    erased = of_memories(wide(p), v.shape[2]) * wide(-g).exp().unsqueeze(-1)
    o, final = linear_memory(
        named("comba", correction=0, scale=scale_option(scale)),
        q,
        k,
        v,
        initial_state,
        output_final_state,
        cu_seqlens,
        log_decay=g,
        step=_step("chunk_comba", _ones(v) if beta is None else beta, v),
        erase_key=erased,
    )
    return o.to(dtype), final


def fused_recurrent_comba(
    q: Tensor,
    k: Tensor,
    p: Tensor | None,
    v: Tensor,
    g: Tensor,
    beta: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """chunk_comba, its arguments in the order of the recurrent form."""
    norm = use_qk_l2norm_in_kernel
    return chunk_comba(
        q, k, v, p, g, beta, scale, initial_state, output_final_state, norm, cu_seqlens
    )


def chunk_gated_delta_product(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None,
    beta: Tensor,
    num_householder: int = 1,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """M_0 = exp(g) M';  M_j = M_{j-1} + beta_j (v_j - M_{j-1} k_j) k_j^T, j = 1 .. n;  y = scale M_n q.

    Args:
        q: [B, T, H, K]; k: [B, T n, H, K]; v: [B, T n, HV, V], row t n + j the pair j of token t, n =
            ``num_householder``. H divides HV.
        g: [B, T, HV], <= 0; None decays nothing. beta: [B, T n, HV], >= 0.
        cu_seqlens: counts tokens, not pairs.
        Others as in chunk_gated_delta_rule.

    Returns:
        (o [B, T, HV, V] in q's dtype, the final state [N, HV, K, V] or None).
    """
    recipe = named(
        "delta_product",
        steps=int(num_householder),
        decay="none" if g is None else None,
        scale=scale_option(scale),
        normalise_qk=True if use_qk_l2norm_in_kernel else None,
    )
    step = _step("chunk_gated_delta_product", beta, v)
    return linear_memory(
        recipe, q, k, v, initial_state, output_final_state, cu_seqlens, log_decay=g, step=step
    )
