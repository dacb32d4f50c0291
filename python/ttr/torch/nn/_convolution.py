"""How rows look back: a filter for each channel, or one for all of them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ._around import short_conv


class ShortConvolution(nn.Module):
    """y_t = sum_{j < W} w_{c,j} x_{t-(W-1)+j} of every channel c, then SiLU: depthwise, causal.

    x is [B, T, C]; the state holds the W - 1 rows before it. Weights start as those of PyTorch's
    convolutions, uniform within 1 / sqrt(W).
    """

    def __init__(self, channels: int, size: int, silu: bool) -> None:
        super().__init__()
        self.size = size
        self.weight = nn.Parameter(torch.empty(channels, size).uniform_(-(size**-0.5), size**-0.5))
        self.silu = silu

    def taps(self) -> Tensor:
        """[C, W], the current token's last."""
        return self.weight

    def forward(
        self, x: Tensor, state: Tensor | None = None, cu_seqlens: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        return short_conv(x, self.taps(), state, cu_seqlens, self.silu)

    def extra_repr(self) -> str:
        channels, size = self.weight.shape
        return f"{size} taps of {channels} channels{', SiLU' if self.silu else ''}"


class Lags(ShortConvolution):
    """y_t = sum_i w_i x_{t-i}, one filter w for all channels: how test-time regression constructs
    keys (Wang, Shi and Fox 2025, section 6). w = (0, 1) makes the token before the key of this one,
    so that a memory of pairs (k_t, v_t) associates every token with the next."""

    def __init__(self, channels: int, lags: tuple[float, ...], learn: bool, silu: bool) -> None:
        nn.Module.__init__(self)
        self.channels, self.size, self.silu = channels, len(lags), silu
        weight = torch.tensor(lags, dtype=torch.get_default_dtype())
        self.weight = nn.Parameter(weight, requires_grad=learn)

    def taps(self) -> Tensor:
        return self.weight.flip(0).expand(self.channels, -1)

    def extra_repr(self) -> str:
        rows = " + ".join(
            f"{w:.3g} x_t" + (f"-{i}" if i else "") for i, w in enumerate(self.weight.tolist())
        )
        return f"{rows}, {'learned' if self.weight.requires_grad else 'fixed'}"
