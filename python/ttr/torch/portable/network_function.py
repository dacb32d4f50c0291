"""The small network that is a memory, for all tokens of a part at once.

    x_0 = k,   z_l = W_l^T x_{l-1} + b_l,   x_l = act(z_l)  or, gated,  act(a) (.) g,  z_l = [a; g]
    f(k) = z_depth,  or  LN(z_depth),  or  k + either

Rows are [M, R, D], M the memories. Parameters are W_1, b_1, W_2, ... (without biases the W alone),
[M, in, out] and [M, 1, out]. The gradient of 1/2 |f(k) - v|^2 or -v . f(k) for W_l is a sum of
outer products x_{l-1} dz_l^T: rows of both are all that is kept of it. Slopes are written out, so
that autograd goes through them as through anything else.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from .recipe import Choices

Parameters = list[Tensor]
_NORM_EPS = 1e-6
_GELU = math.sqrt(2 / math.pi)
_CUBIC = 0.044715


class Outer(NamedTuple):
    """The gradients of a part's tokens for one parameter: x_j dz_j^T, or dz_j of a bias."""

    x: Tensor | None
    dz: Tensor

    def summed(self, scale: Tensor) -> Tensor:
        """sum_j scale_j x_j dz_j^T; scale is [M, C, 1]."""
        weighted = scale * self.dz
        if self.x is None:
            return weighted.sum(1, keepdim=True)
        return self.x.transpose(1, 2) @ weighted

    def found(self, u: Tensor, scores: Tensor) -> Tensor:
        """sum_j scores_ij (u_i . x_j) dz_j for rows u [M, R, in]; scores are [M, R, C]."""
        if self.x is not None:
            scores = scores * (u @ self.x.transpose(1, 2))
        return scores @ self.dz


class Between(NamedTuple):
    """Weights of a row of its own for every row i: a_i A + b_i B - sum_j c_ij x_j dz_j^T.

    a, b are [M, R, 1], c [M, R, C]; a None is 1, B None is 0.
    """

    a: Tensor | None
    b: Tensor | None
    c: Tensor
    start: Parameters
    last: Parameters | None
    gradients: list[Outer]


class Network:
    """f of a recipe, by any weights."""

    def __init__(
        self, choices: Choices, ln_weight: Tensor | None = None, ln_bias: Tensor | None = None
    ) -> None:
        self._choices = choices
        self._depth = int(choices.depth)
        self._stride = 2 if choices.bias else 1
        self._value, self._slope = _ACTIVATIONS[choices.activation]
        self._ln_weight, self._ln_bias = ln_weight, ln_bias

    def apply(self, weights: Parameters, x: Tensor) -> Tensor:
        """f(x), all rows by the same weights."""
        return self._pass(lambda layer, rows: self._affine(weights, layer, rows), x)

    def apply_between(self, between: Between, x: Tensor) -> Tensor:
        """f(x), every row by weights of its own, none of which is formed.

        Cost a row and layer: 2 in out (in out without B) + C (in + out) multiply-adds.
        """

        def linear(layer: int, rows: Tensor) -> Tensor:
            z = self._affine(between.start, layer, rows)
            if between.a is not None:
                z = between.a * z
            if between.last is not None and between.b is not None:
                z = z + between.b * self._affine(between.last, layer, rows)
            for outer in between.gradients[layer * self._stride : (layer + 1) * self._stride]:
                z = z - outer.found(rows, between.c)
            return z

        return self._pass(linear, x)

    def gradients(self, weights: Parameters, k: Tensor, v: Tensor) -> list[Outer]:
        """Those of each token's loss for every parameter, at the same weights."""
        inputs, sums = {0: k}, {}

        def linear(layer: int, rows: Tensor) -> Tensor:
            inputs[layer], sums[layer] = rows, self._affine(weights, layer, rows)
            return sums[layer]

        squared = self._choices.loss == "squared"
        error = self._pass(linear, k) - v if squared else -v
        if not squared and (self._depth > 1 or self._choices.norm):
            self._pass(linear, k)
        dz = self._down_norm(sums[self._depth - 1], error) if self._choices.norm else error
        found: list[Outer] = []
        for layer in reversed(range(self._depth)):
            if self._choices.bias:
                found.append(Outer(None, dz))
            found.append(Outer(inputs[layer], dz))
            if layer > 0:
                weight = weights[layer * self._stride]
                dz = self._down_activation(sums[layer - 1], dz @ weight.transpose(1, 2))
        return found[::-1]

    def _affine(self, weights: Parameters, layer: int, rows: Tensor) -> Tensor:
        place = layer * self._stride
        if self._stride == 1:
            return rows @ weights[place]
        return torch.baddbmm(weights[place + 1], rows, weights[place])

    def _pass(self, linear: Callable[[int, Tensor], Tensor], x: Tensor) -> Tensor:
        rows = x
        for layer in range(self._depth - 1):
            rows = self._activated(linear(layer, rows))
        z = linear(self._depth - 1, rows)
        if self._choices.norm:
            z, _ = _standardised(z)
            z = z if self._ln_weight is None else self._ln_weight * z
            z = z if self._ln_bias is None else z + self._ln_bias
        return z + x if self._choices.residual else z

    def _activated(self, z: Tensor) -> Tensor:
        if not self._choices.gated:
            return self._value(z)
        a, gate = z.chunk(2, -1)
        return self._value(a) * gate

    def _down_activation(self, z: Tensor, dx: Tensor) -> Tensor:
        """The gradient for z_l from that for x_l."""
        if not self._choices.gated:
            return dx * self._slope(z)
        a, gate = z.chunk(2, -1)
        return torch.cat([dx * gate * self._slope(a), dx * self._value(a)], -1)

    def _down_norm(self, z: Tensor, error: Tensor) -> Tensor:
        """(h - mean h - z^ mean(h (.) z^)) / s,   h = weight (.) error."""
        h = error if self._ln_weight is None else self._ln_weight * error
        unit, deviation = _standardised(z)
        spread = unit * (h * unit).mean(-1, keepdim=True)
        return (h - h.mean(-1, keepdim=True) - spread) / deviation


def _standardised(z: Tensor) -> tuple[Tensor, Tensor]:
    """z^ = (z - mean z) / s and s = sqrt(var z + 1e-6)."""
    centred = z - z.mean(-1, keepdim=True)
    deviation = (centred.square().mean(-1, keepdim=True) + _NORM_EPS).sqrt()
    return centred / deviation, deviation


def _silu_slope(z: Tensor) -> Tensor:
    s = torch.sigmoid(z)
    return s * (1 + z * (1 - s))


def _gelu(z: Tensor) -> Tensor:
    return functional.gelu(z, approximate="tanh")


def _gelu_slope(z: Tensor) -> Tensor:
    square = z.square()
    t = torch.tanh(_GELU * z * (1 + _CUBIC * square))
    return (1 + t) / 2 + z / 2 * (1 - t.square()) * (_GELU * (1 + 3 * _CUBIC * square))


def _relu_slope(z: Tensor) -> Tensor:
    return (z > 0).to(z.dtype)


def _tanh_slope(z: Tensor) -> Tensor:
    return 1 - torch.tanh(z).square()


_ACTIVATIONS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "silu": (functional.silu, _silu_slope),
    "gelu": (_gelu, _gelu_slope),
    "relu": (torch.relu, _relu_slope),
    "tanh": (torch.tanh, _tanh_slope),
}
