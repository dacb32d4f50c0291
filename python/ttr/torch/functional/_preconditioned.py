"""Delta rules whose writes a diagonal curvature divides: precond_gated_delta_rule, precond_kda."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from ._delta import _gate, _step
from ._recurrent import linear_memory, named, of_memories, refuse, regress, scale_option, unit, wide

_CENTRE = -0.2


def chunk_precond_kda(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    g_atk: Tensor,
    beta_atk: Tensor,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    initial_A_state: Tensor | None = None,
    output_final_state: bool = False,
    use_gate_in_kernel: bool = False,
    safe_gate: bool = False,
    lower_bound: float | None = None,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    chunk_indices: Tensor | None = None,
    cp_context: Any = None,
    transpose_state_layout: bool = False,
    x: float = 1.5,
    eps: float = 1e-6,
    log_atk_scale: Tensor | float | None = None,
    solve_tril_precision: str | None = None,
    disable_recompute: bool = False,
    *,
    use_qk_l2norm_in_kernel: bool = False,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """D = exp(g_atk) D' + beta_atk k (.) k,  l = log(D + eps) - log_atk_scale;
    M~ = M' diag(exp(g)),  M = M~ + beta (v - M~ k) (k (.) x^(-l / (1 + |l|)))^T,  y = scale M q.

    Args:
        q, k: [B, T, H, K]; v: [B, T, H, V]; g: [B, T, H, K], <= 0.
        g_atk, beta_atk, beta: [B, T, H], g_atk <= 0, the betas >= 0.
        initial_state: [N, H, K, V], with ``transpose_state_layout`` [N, H, V, K]; initial_A_state, D:
            [N, H, K].
        log_atk_scale: [H] or a number; -0.2 where it is None.
        cp_context: must be left out.
        chunk_indices, solve_tril_precision, disable_recompute, safe_gate: of no effect.
        Others as in chunk_kda.

    Returns:
        (o [B, T, H, V] in q's dtype, the final state or None, the final D or None).
    """
    refuse("chunk_precond_kda", cp_context=cp_context)
    if use_gate_in_kernel:
        g = _gate("chunk_precond_kda", g, A_log, dt_bias, lower_bound)
    dtype = q.dtype
    if use_qk_l2norm_in_kernel:
        q, k = unit(q), unit(k)
    curvature = _Curvature(g_atk, beta_atk, initial_A_state, log_atk_scale, x, eps)
    write, last = curvature.divide(k, cu_seqlens)
    o, final = linear_memory(
        named("comba", decay="channel", correction=0, scale=scale_option(scale)),
        q,
        write,
        v,
        initial_state,
        output_final_state,
        cu_seqlens,
        transpose_state_layout,
        log_decay=g,
        step=_step("chunk_precond_kda", beta, v),
        erase_key=wide(k),
    )
    return o.to(dtype), final, last if output_final_state else None


def chunk_precond_gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g_atk: Tensor,
    g: Tensor,
    beta_atk: Tensor,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    initial_A_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = True,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    cp_context: Any = None,
    transpose_state_layout: bool = False,
    x: float = 1.5,
    eps: float = 1e-6,
    log_atk_scale: Tensor | float | None = None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """chunk_precond_kda of one decay a memory, g [B, T, HV]; v: [B, T, HV, V], H divides HV. g_atk and
    beta_atk are [B, T, H], beta [B, T, HV]. q and k are normalised unless that is turned off."""
    refuse("chunk_precond_gated_delta_rule", cp_context=cp_context)
    dtype = q.dtype
    if use_qk_l2norm_in_kernel:
        q, k = unit(q), unit(k)
    curvature = _Curvature(g_atk, beta_atk, initial_A_state, log_atk_scale, x, eps)
    write, last = curvature.divide(k, cu_seqlens)
    o, final = linear_memory(
        named("comba", correction=0, scale=scale_option(scale)),
        q,
        write,
        v,
        initial_state,
        output_final_state,
        cu_seqlens,
        transpose_state_layout,
        log_decay=g,
        step=_step("chunk_precond_gated_delta_rule", beta, v),
        erase_key=of_memories(wide(k), v.shape[2]),
    )
    return o.to(dtype), final, last if output_final_state else None


class _Curvature:
    """D = exp(g) D' + b k (.) k, a gated recurrence of a vector, and what it makes of keys."""

    def __init__(
        self,
        g: Tensor,
        b: Tensor,
        start: Tensor | None,
        centre: Tensor | float | None,
        base: float,
        eps: float,
    ) -> None:
        self.g, self.b, self.start, self.eps = g, b, start, eps
        self.rate = math.log(base)
        self.centre = _CENTRE if centre is None else centre

    def divide(self, k: Tensor, cu_seqlens: Tensor | None) -> tuple[Tensor, Tensor]:
        """(k (.) m(D), the last D)."""
        k = wide(k)
        state = {} if self.start is None else {"state": wide(self.start)}
        d, final = regress(
            "decay(scalar) | constant | gradient",
            v=wide(self.b).unsqueeze(-1) * k.square(),
            log_decay=self.g,
            state=state,
            return_state=True,
            cu_seqlens=cu_seqlens,
        )
        centre = self.centre
        if isinstance(centre, Tensor):
            centre = wide(centre).view(-1, 1)
        shifted = (d + self.eps).log() - centre
        return k * (-self.rate * shifted / (1 + shifted.abs())).exp(), final["state"]
