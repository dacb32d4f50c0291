"""The layout of the portable forms: [B, H, G, T, D], G the queries that read one memory."""

from __future__ import annotations

from torch import Tensor


def by_memory(x: Tensor, heads: int) -> Tensor:
    """[B, T, h, ...] with h dividing H becomes [B, H, 1, T, ...]: memory m reads head m // (H /
    h)."""
    x = x.transpose(1, 2)
    repeats = heads // x.shape[1]
    if repeats > 1:
        x = x.repeat_interleave(repeats, dim=1)
    return x.unsqueeze(2)


def queries_by_memory(q: Tensor, heads: int) -> Tensor:
    """[B, T, Hq, D] becomes [B, H, G, T, D], G = max(1, Hq / H)."""
    if q.shape[2] <= heads:
        return by_memory(q, heads)
    return q.unflatten(2, (heads, -1)).permute(0, 2, 3, 1, 4)


def by_token(y: Tensor) -> Tensor:
    """[B, H, G, T, D] becomes [B, T, H G, D]."""
    return y.permute(0, 3, 1, 2, 4).flatten(2, 3)
