"""What is called normalising: of keys and queries, of the sum of weights, of the output."""

from __future__ import annotations

import torch
from torch import Tensor

from .recipe import Choices


def unit(x: Tensor) -> Tensor:
    """x / sqrt(|x|^2 + 1e-6)."""
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


def divided(y: Tensor, z: Tensor) -> Tensor:
    """y / z, and 0 where z is 0; without a NaN in the gradient there."""
    nothing = z == 0
    return torch.where(nothing, 0, y / torch.where(nothing, 1, z))


def read_out(choices: Choices, y: Tensor, maximum: Tensor | None) -> Tensor:
    """What a query reads becomes the output: denominators, then the norm.

    ``y`` is [..., Dv], or [..., Dv + 1] with z . q last where the recipe divides by a sum.
    ``maximum`` [..., 1] is the logarithm of the scale of ``y``, of memories that keep a running
    one.
    """
    if choices.normalise_sum == "none":
        if maximum is not None:
            y = y * maximum.exp()
    else:
        y, z = y[..., :-1], y[..., -1:]
        if choices.normalise_sum == "sum":
            y = divided(y, z)
        else:
            assert maximum is not None
            y = y / torch.maximum(z.abs(), (-maximum).exp())
    return _output_norm(choices, y)


def _output_norm(choices: Choices, y: Tensor) -> Tensor:
    if choices.output_norm == "none":
        return y
    square = y.square().sum(-1, keepdim=True)
    if choices.output_norm == "rms":
        square = square / y.shape[-1]
    nothing = square == 0
    return y * torch.where(nothing, 1, square).rsqrt()
