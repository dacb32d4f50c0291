"""hgrn and mesa_net."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ._recurrent import given_state, named, regress, wide

_HGRN = "decay(channel) | constant | gradient"
_ENOUGH = 30


def fused_recurrent_hgrn(
    x: Tensor,
    g: Tensor,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """h = exp(g) (.) h' + x, o = h.

    Args:
        x, g: [B, T, D], g <= 0. The 1 - f of HGRN's paper is part of x.
        initial_state: [N, D].
        output_final_state: also return the final state, in x's dtype.
        cu_seqlens: [N + 1], int32 or int64; packed sequences, B = 1.

    Returns:
        (o [B, T, D] in x's dtype, the final state or None).
    """
    state = given_state(None if initial_state is None else initial_state.unsqueeze(1))
    inputs = {"log_decay": g.unsqueeze(2), "cu_seqlens": cu_seqlens}
    o, final = regress(_HGRN, v=x.unsqueeze(2), state=state, return_state=True, **inputs)
    return o.squeeze(2), final["state"].squeeze(1).to(x.dtype) if output_final_state else None


def chunk_hgrn(
    x: Tensor,
    g: Tensor,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """fused_recurrent_hgrn."""
    return fused_recurrent_hgrn(x, g, initial_state, output_final_state, cu_seqlens)


def chunk_mesa_net(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    lamb: Tensor,
    h_kk_init: Tensor | None = None,
    h_kv_init: Tensor | None = None,
    output_final_state: bool = False,
    max_CG_iteration: int = 30,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """H = exp(g) H' + beta k k^T, B = exp(g) B' + beta v k^T, y = B (H + diag(lamb))^-1 q.

    Args:
        q, k, v: [B, T, H, K], [B, T, H, K], [B, T, H, V].
        g, beta: [B, T, H], g <= 0, beta >= 0; lamb: [H, K], >= 0.
        h_kk_init, h_kv_init: [N, H, K, K] (symmetric) and [N, H, K, V].
        max_CG_iteration: from 30 on, or K, the system is solved exactly, which is less work; below
            that by so many steps of conjugate gradients.
        use_qk_l2norm_in_kernel: q and k are x / sqrt(|x|^2 + 1e-6).
        cu_seqlens: [N + 1], int32 or int64; packed sequences, B = 1. ``cu_seqlens_cpu`` is not
            read.

    Returns:
        (o [B, T, H, V] in q's dtype, final H or None, final B^T or None).
    """
    options: dict[str, Any] = {"normalise_qk": True if use_qk_l2norm_in_kernel else None}
    if max_CG_iteration < min(_ENOUGH, q.shape[-1]):
        options |= {"optimizer": "conjugate_gradient", "steps": max_CG_iteration}
    state = {**given_state(h_kk_init, "state.a"), **given_state(h_kv_init)}
    inputs = {"log_decay": g, "importance": beta, "ridge": wide(lamb), "cu_seqlens": cu_seqlens}
    o, final = regress(named("mesa", **options), q, k, v, state=state, return_state=True, **inputs)
    if not output_final_state:
        return o.to(q.dtype), None, None
    return o.to(q.dtype), final["state.a"], final["state"]
