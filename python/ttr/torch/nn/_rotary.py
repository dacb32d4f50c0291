"""Rotary positions of queries and keys (Su et al. 2021, arXiv 2104.09864)."""

from __future__ import annotations

import torch
from torch import Tensor

from ._cache import Cache


def positions_of(x: Tensor, cache: Cache | None, cu_seqlens: Tensor | None) -> Tensor:
    """How many tokens of its sequence stand before each token of x [B, T, ...]: [B or 1, T]."""
    places = torch.arange(x.shape[1], device=x.device)
    held = None if cache is None else cache.positions
    if cu_seqlens is None:
        return places[None] if held is None else places + held[:, None]
    cuts = cu_seqlens.to(places)
    sequence = torch.searchsorted(cuts, places, right=True) - 1
    places = places - cuts[sequence]
    return (places if held is None else places + held[sequence])[None]


def rotate(rows: Tensor, positions: Tensor, base: float) -> Tensor:
    """Rows [B, T, H, D], where channels i and i + D/2 are turned by position * base^(-2 i / D), so that
    q_t . k_s is of t - s. The halves are those of transformers' `rotate_half`."""
    wide = torch.promote_types(rows.dtype, torch.float32)
    half = rows.shape[-1] // 2
    turns = base ** (-torch.arange(half, device=rows.device, dtype=wide) / half)
    angles = (positions.to(wide)[..., None] * turns)[:, :, None]
    cos, sin = angles.cos(), angles.sin()
    a, b = rows.to(wide).chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(rows.dtype)
