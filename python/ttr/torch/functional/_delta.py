"""The delta rule and its decays: delta_rule, gated_delta_rule, kda."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._recurrent import linear_memory, named, refuse, scale_option, wide


def chunk_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Tensor | None = None,
    head_first: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """M = M' + beta (v - M' k) k^T, y = scale M q.

    Args:
        q, k, v: [B, T, H, K], [B, T, H, K], [B, T, H, V].
        beta: [B, T, H], >= 0.
        scale: K ** -0.5 where it is None.
        initial_state: [N, H, K, V].
        output_final_state: also return the final state, float32 (float64 of float64 inputs).
        use_qk_l2norm_in_kernel: q and k are x / sqrt(|x|^2 + 1e-6).
        cu_seqlens: [N + 1], int32 or int64; packed sequences, B = 1.
        head_first: must be False.

    Returns:
        (o [B, T, H, V] in q's dtype, the final state or None).
    """
    refuse("chunk_delta_rule", head_first=head_first)
    recipe = _with_norm("deltanet", scale, use_qk_l2norm_in_kernel)
    return linear_memory(
        recipe,
        q,
        k,
        v,
        initial_state,
        output_final_state,
        cu_seqlens,
        step=_step("chunk_delta_rule", beta, v),
    )


def fused_recurrent_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Tensor | None = None,
    head_first: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """chunk_delta_rule; a ``beta`` of None is 1."""
    beta = _ones(v) if beta is None else beta
    return chunk_delta_rule(
        q,
        k,
        v,
        beta,
        scale,
        initial_state,
        output_final_state,
        use_qk_l2norm_in_kernel,
        cu_seqlens,
        head_first,
    )


def _with_norm(recipe: str, scale: float | None, norm: bool) -> str:
    return named(recipe, scale=scale_option(scale), normalise_qk=True if norm else None)


def _ones(v: Tensor) -> Tensor:
    return torch.ones_like(v[..., 0])


def _step(
    function: str, beta: Tensor, v: Tensor, sigmoid: bool = False, twice: bool = False
) -> Tensor:
    """beta [B, T, HV] as a step size."""
    if beta.dim() == v.dim():
        raise ValueError(
            f"[{function}] beta must be [B,T,HV], one for a memory, but is {list(beta.shape)}"
        )
    if twice and not sigmoid:
        raise ValueError(
            f"[{function}] allow_neg_eigval must go with use_beta_sigmoid_in_kernel but is alone"
        )
    if sigmoid:
        beta = torch.sigmoid(wide(beta)) * (2 if twice else 1)
    return beta


def chunk_gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    *,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    use_gate_in_kernel: bool = False,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    state_v_first: bool = False,
    transpose_state_layout: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    chunk_indices: Tensor | None = None,
    cp_context: Any = None,
    head_first: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """M~ = exp(g) M';  M = M~ + beta (v - M~ k) k^T, y = scale M q.

    Args:
        q, k: [B, T, H, K]; v: [B, T, HV, V], H divides HV.
        g: [B, T, HV], the decay's logarithm, <= 0; with ``use_gate_in_kernel`` it becomes
            -exp(A_log) softplus(g + dt_bias), both [HV].
        beta: [B, T, HV], >= 0; with ``use_beta_sigmoid_in_kernel`` its sigmoid is, with
            ``allow_neg_eigval`` twice that.
        state_v_first, or by its older name transpose_state_layout: states are [N, HV, V, K].
        cp_context: must be left out; ttr.torch.distributed cuts sequences over processes.
        Others as in chunk_delta_rule; ``cu_seqlens_cpu`` and ``chunk_indices``, which follow from
        ``cu_seqlens``, are not read.

    Returns:
        (o [B, T, HV, V] in q's dtype, the final state [N, HV, K, V] or None).
    """
    refuse("chunk_gated_delta_rule", head_first=head_first, cp_context=cp_context)
    if use_gate_in_kernel:
        g = _gate("chunk_gated_delta_rule", g, A_log, dt_bias)
    step = _step("chunk_gated_delta_rule", beta, v, use_beta_sigmoid_in_kernel, allow_neg_eigval)
    recipe = _with_norm("gated_deltanet", scale, use_qk_l2norm_in_kernel)
    return linear_memory(
        recipe,
        q,
        k,
        v,
        initial_state,
        output_final_state,
        cu_seqlens,
        state_v_first or transpose_state_layout,
        log_decay=g,
        step=step,
    )


def _gate(
    function: str,
    g: Tensor,
    a_log: Tensor | None,
    dt_bias: Tensor | None,
    lower_bound: float | None = None,
) -> Tensor:
    """-exp(A_log) softplus(g + dt_bias), or lower_bound sigmoid(exp(A_log) (g + dt_bias))."""
    g = wide(g)
    if dt_bias is not None:
        g = g + wide(dt_bias).view(g.shape[2:])
    if a_log is None and lower_bound is None:
        raise ValueError(f"[{function}] A_log must be given with use_gate_in_kernel but is missing")
    rate = torch.ones((), device=g.device) if a_log is None else wide(a_log).exp()
    if g.dim() == 4 and rate.dim() == 1:
        rate = rate.unsqueeze(-1)
    if lower_bound is not None:
        return lower_bound * torch.sigmoid(rate * g)
    return -rate * torch.nn.functional.softplus(g)


def fused_recurrent_gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None = None,
    gk: Tensor | None = None,
    gv: Tensor | None = None,
    beta: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Tensor | None = None,
    *,
    state_v_first: bool = False,
    head_first: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """chunk_gated_delta_rule, of a decay ``g`` [B, T, HV] for a memory, ``gk`` [B, T, HV, K] for
    its key channels, both (they add up) or none; a ``beta`` of None is 1. ``gv`` must be left
    out."""
    function = "fused_recurrent_gated_delta_rule"
    refuse(function, gv=gv, head_first=head_first)
    name, decay = "deltanet", {}
    if gk is not None:
        name, decay = "kda", {"log_decay": gk if g is None else gk + g.unsqueeze(-1)}
    elif g is not None:
        name, decay = "gated_deltanet", {"log_decay": g}
    step = _step(function, _ones(v) if beta is None else beta, v)
    recipe = _with_norm(name, scale, use_qk_l2norm_in_kernel)
    return linear_memory(
        recipe,
        q,
        k,
        v,
        initial_state,
        output_final_state,
        cu_seqlens,
        state_v_first,
        step=step,
        **decay,
    )


def chunk_kda(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    safe_gate: bool = False,
    lower_bound: float | None = None,
    *,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    state_v_first: bool = False,
    transpose_state_layout: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    chunk_indices: Tensor | None = None,
    cp_context: Any = None,
    disable_recompute: bool = False,
    head_first: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """M~ = M' diag(exp(g));  M = M~ + beta (v - M~ k) k^T, y = scale M q.

    Args:
        q, k: [B, T, H, K]; v: [B, T, HV, V], H divides HV.
        g: [B, T, HV, K], the logarithms of the decays, <= 0. With ``use_gate_in_kernel`` it becomes
            -exp(A_log) softplus(g + dt_bias), or with ``lower_bound``
            lower_bound sigmoid(exp(A_log) (g + dt_bias)); A_log [HV], dt_bias [HV K].
        safe_gate, disable_recompute: of no effect: nothing here overflows, and PyTorch keeps what
            its gradients need.
        Others as in chunk_gated_delta_rule.
    """
    refuse("chunk_kda", head_first=head_first, cp_context=cp_context)
    if use_gate_in_kernel:
        g = _gate("chunk_kda", g, A_log, dt_bias, lower_bound)
    step = _step("chunk_kda", beta, v, use_beta_sigmoid_in_kernel, allow_neg_eigval)
    recipe = _with_norm("kda", scale, use_qk_l2norm_in_kernel)
    return linear_memory(
        recipe,
        q,
        k,
        v,
        initial_state,
        output_final_state,
        cu_seqlens,
        state_v_first or transpose_state_layout,
        log_decay=g,
        step=step,
    )


def fused_recurrent_kda(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    lower_bound: float | None = None,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    *,
    head_first: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """chunk_kda, its arguments in the order of the recurrent form."""
    return chunk_kda(
        q,
        k,
        v,
        g,
        beta,
        scale,
        initial_state,
        output_final_state,
        use_qk_l2norm_in_kernel,
        use_gate_in_kernel,
        use_beta_sigmoid_in_kernel,
        allow_neg_eigval,
        lower_bound=lower_bound,
        A_log=A_log,
        dt_bias=dt_bias,
        state_v_first=state_v_first,
        cu_seqlens=cu_seqlens,
        head_first=head_first,
    )
