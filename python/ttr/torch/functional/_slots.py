"""Memories of two passes, whose decays are of value channels: gsa, gated_oja_rule."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._delta import _step
from ._recurrent import given_state, named, refuse, regress, scale_option, unit, wide

#: A decay of every entry, which a = -1 makes one of every value channel.
_BY_VALUE_CHANNEL = "mamba"


def _decayed_values(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    scale: float | None,
    state: Tensor | None,
    cu_seqlens: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """M = diag(exp(g)) M' + v k^T, y = scale M q, and the last M transposed."""
    heads, values, keys = v.shape[2], v.shape[3], k.shape[3]
    y, final = regress(
        named(_BY_VALUE_CHANNEL, scale=scale_option(scale)),
        q,
        k,
        v,
        dt=-wide(g),
        a=-torch.ones(heads, values, keys, dtype=wide(v).dtype, device=v.device),
        state=given_state(state),
        return_state=True,
        cu_seqlens=cu_seqlens,
    )
    return y, final["state"]


def chunk_gsa(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    s: Tensor,
    g: Tensor | None = None,
    scale: float | None = None,
    initial_state: tuple[Tensor, Tensor] | None = None,
    output_final_state: bool = False,
    checkpoint_level: int = 2,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    *,
    head_first: bool = False,
) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
    """Gated slot attention (arXiv 2409.07146): m slots of keys and values,

        K = diag(exp(g)) K' + s k^T,   V = diag(exp(g)) V' + s v^T,   y = V^T softmax(scale K q)

    a memory with a decay a value channel, and `gla` read with what it answers.

    Args:
        q: [B, T, HQ, K], H divides HQ; k: [B, T, H, K]; v: [B, T, H, V]; s: [B, T, H, m].
        g: [B, T, H, m], <= 0. None: attention with bounded-memory control, z = log cumsum exp(s), g = z' - z,
            s = exp(s - z); not of packed sequences.
        initial_state: K^T [N, H, K, m] and V [N, H, m, V].
        checkpoint_level, cu_seqlens_cpu: of no effect.
        head_first: must be False.

    Returns:
        (o [B, T, HQ, V] in q's dtype, (K^T, V) or None).
    """
    refuse("chunk_gsa", head_first=head_first)
    if g is None:
        refuse("chunk_gsa] of no g: [cu_seqlens", cu_seqlens=cu_seqlens)
        z = wide(s).logcumsumexp(1)
        g = torch.cat((z[:, :1], z[:, :-1]), 1) - z
        s = (wide(s) - z).exp()
    keys, values = initial_state if initial_state is not None else (None, None)
    read, final_keys = _decayed_values(q, k, s, g, scale, keys, cu_seqlens)
    o, final = regress(
        "gla",
        wide(read).softmax(-1),
        s,
        v,
        log_decay=g,
        state=given_state(values),
        return_state=True,
        cu_seqlens=cu_seqlens,
    )
    return o.to(q.dtype), (final_keys, final["state"]) if output_final_state else None


def fused_recurrent_gsa(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    s: Tensor,
    g: Tensor | None = None,
    scale: float | None = None,
    initial_state: tuple[Tensor, Tensor] | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
    """chunk_gsa."""
    return chunk_gsa(
        q, k, v, s, g, scale, initial_state, output_final_state, cu_seqlens=cu_seqlens
    )


def chunk_gated_oja_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gv: Tensor,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_q_l2norm: bool = False,
    use_k_l2norm: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    *,
    head_first: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Oja's rule with a decay a value channel: values are the keys of the error,

        M~ = diag(exp(gv)) M';   M = M~ + beta v (k - M~^T v)^T,   y = scale M q

    `kda` from v to k gives the errors, a memory with a decay a value channel the answers.

    Args:
        q, k: [B, T, H, K]; v: [B, T, H, V]; gv: [B, T, H, V], <= 0; beta: [B, T, H], >= 0.
        initial_state: [N, H, K, V].
        use_q_l2norm, use_k_l2norm: q, k are x / sqrt(|x|^2 + 1e-6).
        cu_seqlens_cpu: not read. head_first: must be False.

    Returns:
        (o [B, T, H, V] in q's dtype, the final state [N, H, K, V] or None).
    """
    refuse("chunk_gated_oja_rule", head_first=head_first)
    dtype, step = q.dtype, _step("chunk_gated_oja_rule", beta, v)
    q, k = unit(q) if use_q_l2norm else q, unit(k) if use_k_l2norm else k
    turned = None if initial_state is None else wide(initial_state).transpose(-1, -2).contiguous()
    # What the decayed memory answers to v is what the one before answers to exp(gv) (.) v.
    answers = regress(
        "kda{read: before}",
        wide(v) * wide(gv).exp(),
        v,
        k,
        log_decay=gv,
        step=step,
        state=given_state(turned),
        cu_seqlens=cu_seqlens,
    )
    errors = wide(step).unsqueeze(-1) * (wide(k) - wide(answers))
    o, final = _decayed_values(q, errors, v, gv, scale, initial_state, cu_seqlens)
    return o.to(dtype), final if output_final_state else None


def fused_recurrent_gated_oja_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gv: Tensor | None = None,
    beta: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_q_l2norm: bool = False,
    use_k_l2norm: bool = False,
    cu_seqlens: Tensor | None = None,
    **unsupported: Any,
) -> tuple[Tensor, Tensor | None]:
    """chunk_gated_oja_rule; a ``gv`` of None decays nothing, a ``beta`` of None is 1. Decays of keys or of
    the memory must be left out."""
    refuse("fused_recurrent_gated_oja_rule", **unsupported)
    gv = torch.zeros_like(v) if gv is None else gv
    beta = torch.ones_like(v[..., 0]) if beta is None else beta
    return chunk_gated_oja_rule(
        q,
        k,
        v,
        gv,
        beta,
        scale,
        initial_state,
        output_final_state,
        use_q_l2norm,
        use_k_l2norm,
        cu_seqlens,
    )
