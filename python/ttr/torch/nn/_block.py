"""A layer in a network: `Block`, and the MLP behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from ._cache import Cache
from ._layer import TestTimeRegression
from ._padding import bounds_of, padding_of
from ._sizes import check_number, refuse


class Block(nn.Module):
    """x + layer(norm(x)), then a `GatedMLP` of width `mlp_ratio` hidden_size, without it where that
    is 0."""

    def __init__(self, layer: TestTimeRegression, *, mlp_ratio: float = 8 / 3) -> None:
        super().__init__()
        check_number("mlp_ratio", mlp_ratio, "Block")
        size = layer.hidden_size
        if 0 < mlp_ratio * size < 1:
            refuse("mlp_ratio", f"0, or 1 / hidden_size = {1 / size:.3g} at least,", mlp_ratio, "Block")
        self.norm = nn.RMSNorm(size)
        self.layer = layer
        self.mlp = GatedMLP(size, int(mlp_ratio * size)) if mlp_ratio else None

    def forward(
        self,
        x: Tensor,
        *,
        cache: Cache | None = None,
        cu_seqlens: Tensor | Sequence[int] | None = None,
        attention_mask: Tensor | Sequence[Any] | None = None,
        lengths: Tensor | Sequence[Any] | None = None,
    ) -> Tensor:
        """[B, T, hidden_size], as `TestTimeRegression`; zeros at padding."""
        cu_seqlens = bounds_of("Block", cu_seqlens, x)
        padding = padding_of("Block", x, cu_seqlens, attention_mask, lengths)
        if padding is not None:
            return padding.unpack(self._run(padding.pack(x), cache, padding.cu_seqlens))
        return self._run(x, cache, cu_seqlens)

    def _run(self, x: Tensor, cache: Cache | None, cu_seqlens: Tensor | None) -> Tensor:
        x = x + self.layer(self.norm(x), cache=cache, cu_seqlens=cu_seqlens)
        return x if self.mlp is None else self.mlp(x)

    def new_cache(self, draft: int = 0) -> Cache:
        """A cache of its layer."""
        return self.layer.new_cache(draft)


class GatedMLP(nn.Module):
    """x + W_3 (silu(W_1 n) (.) W_2 n), n the RMS norm of x."""

    def __init__(self, hidden_size: int, width: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(hidden_size)
        self.up = nn.Linear(hidden_size, 2 * width, bias=False)
        self.down = nn.Linear(width, hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, value = self.up(self.norm(x)).chunk(2, -1)
        y: Tensor = x + self.down(F.silu(gate) * value)
        return y
