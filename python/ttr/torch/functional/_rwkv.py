"""rwkv6 and rwkv7."""

from __future__ import annotations

import torch
from torch import Tensor

from ._recurrent import linear_memory, named, refuse, scale_option


def chunk_rwkv6(
    r: Tensor,
    k: Tensor,
    v: Tensor,
    w: Tensor,
    u: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
    head_first: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """y = scale (M' + v (u (.) k)^T) r; then M = M' diag(exp(w)) + v k^T.

    Args:
        r, k, v: [B, T, H, K], [B, T, H, K], [B, T, H, V].
        w: [B, T, H, K], the logarithms of the decays, <= 0.
        u: [H, K], the extra weight of the current token.
        scale: K ** -0.5 where it is None.
        initial_state: [N, H, K, V].
        output_final_state: also return the final state, float32 (float64 of float64 inputs).
        cu_seqlens: [N + 1], int32 or int64; packed sequences, B = 1.
        head_first: must be False.

    Returns:
        (o [B, T, H, V] in r's dtype, the final state or None).
    """
    refuse("chunk_rwkv6", head_first=head_first)
    recipe = named("rwkv6", scale=scale_option(scale))
    return linear_memory(
        recipe, r, k, v, initial_state, output_final_state, cu_seqlens, log_decay=w, bonus=u
    )


def fused_recurrent_rwkv6(
    r: Tensor,
    k: Tensor,
    v: Tensor,
    w: Tensor,
    u: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    cu_seqlens: Tensor | None = None,
    head_first: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """chunk_rwkv6; ``reverse`` must be False."""
    refuse("fused_recurrent_rwkv6", reverse=reverse)
    return chunk_rwkv6(
        r, k, v, w, u, scale, initial_state, output_final_state, cu_seqlens, head_first
    )


def chunk_rwkv7(
    r: Tensor,
    w: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor,
    b: Tensor,
    scale: float | None = 1.0,
    initial_state: Tensor | None = None,
    output_final_state: bool = True,
    cu_seqlens: Tensor | None = None,
    head_first: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """M = M' (diag(exp(w)) + a b^T) + v k^T, y = scale M r.

    Args:
        r, w, k, v: [B, T, H, K], the logarithms of the decays <= 0, [B, T, H, K], [B, T, H, V].
        a, b: [B, T, H, K]; in RWKV-7 a = -kappa, b = kappa (.) gate. b is 0 wherever a is.
        scale: K ** -0.5 where it is None.
        Others as in chunk_rwkv6.

    Raises:
        ValueError: where b is not 0 and a is: the recipe's b is a multiple of a, channel by
            channel.
    """
    refuse("chunk_rwkv7", head_first=head_first)
    return _rwkv7(r, w, k, v, -a, _gate(a, b), scale, initial_state, output_final_state, cu_seqlens)


def _gate(a: Tensor, b: Tensor) -> Tensor:
    """-b / a, and 0 where both are 0."""
    nothing = a == 0
    if not torch.compiler.is_compiling() and bool((nothing & (b != 0)).any()):
        raise ValueError(
            "[rwkv7] b must be 0 wherever a is, as kappa (.) gate is where -kappa is, but is not"
        )
    return torch.where(nothing, 0, -b / torch.where(nothing, 1, a))


def fused_recurrent_rwkv7(
    r: Tensor,
    w: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor,
    b: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = True,
    cu_seqlens: Tensor | None = None,
    head_first: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """chunk_rwkv7, its scale K ** -0.5 by default."""
    return chunk_rwkv7(
        r, w, k, v, a, b, scale, initial_state, output_final_state, cu_seqlens, head_first
    )


def fused_mul_recurrent_rwkv7(
    r: Tensor,
    w: Tensor,
    k: Tensor,
    v: Tensor,
    kk: Tensor,
    a: Tensor,
    scale: float | None = 1.0,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    cu_seqlens: Tensor | None = None,
    head_first: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """M = M' (diag(exp(w)) - kk (kk (.) a)^T) + v k^T, y = scale M r: chunk_rwkv7 of -kk and kk
    (.) a.

    ``reverse`` must be False.
    """
    refuse("fused_mul_recurrent_rwkv7", reverse=reverse, head_first=head_first)
    return _rwkv7(r, w, k, v, kk, a, scale, initial_state, output_final_state, cu_seqlens)


def _rwkv7(
    r: Tensor,
    w: Tensor,
    k: Tensor,
    v: Tensor,
    kappa: Tensor,
    gate: Tensor,
    scale: float | None,
    initial_state: Tensor | None,
    output_final_state: bool,
    cu_seqlens: Tensor | None,
) -> tuple[Tensor, Tensor | None]:
    recipe = named("rwkv7", scale=scale_option(scale))
    return linear_memory(
        recipe,
        r,
        k,
        v,
        initial_state,
        output_final_state,
        cu_seqlens,
        log_decay=w,
        erase_key=kappa,
        erase_gate=gate,
    )
