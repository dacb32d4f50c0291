"""Feature maps, applied to keys and queries [B, H, G, T, d] before a linear memory sees them.

Formulas and sources: docs/layers.md; the meaning of each is src/definition/features.cc.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from .inputs import Call, fail
from .recipe import known

_DRAWN = ("rfa", "favor", "dijiang")


class FeatureMap:
    """phi with a recipe's parameters, and the 1 of an affine memory behind it.

    Random maps take their directions as ``features_w``: this road draws none.
    """

    def __init__(self, call: Call) -> None:
        self._choices = call.choices
        w, b = call.get("features.w"), call.get("features.b")
        self._w = None if w is None else w[:, None]  # [H, 1, F, d]
        self._b = None if b is None else b[:, None, None]  # [H, 1, 1, F]
        if call.choices.features in _DRAWN and w is None:
            raise fail(
                "features_w",
                f"given for features: {call.choices.features} on this device",
                "missing",
            )

    def __call__(self, x: Tensor, position: Tensor | None = None) -> Tensor:
        """phi(x); ``position`` [B, H, 1, T, 1] counts the tokens before each (cosformer)."""
        name = self._choices.features
        if name == "cosformer":
            assert position is not None
            x = self._cosformer(x, position)
        elif name != "none":
            x = _MAPS[name](self, x)
        if self._choices.function == "affine":
            x = torch.cat([x, torch.ones_like(x[..., :1])], -1)
        return x

    def _linear(self, x: Tensor) -> Tensor:
        assert self._w is not None
        return x @ self._w.transpose(-1, -2)

    def _shifted(self, x: Tensor) -> Tensor:
        u = self._linear(x)
        return u if self._b is None else u + self._b

    def _cosformer(self, x: Tensor, position: Tensor) -> Tensor:
        angle = position * (math.pi / (2 * self._choices.max_length))
        x = x.relu()
        return torch.cat([angle.cos() * x, angle.sin() * x], -1)

    def _elu1(self, x: Tensor) -> Tensor:
        return torch.where(x > 0, x + 1, x.clamp(max=0).exp())

    def _dpfp(self, x: Tensor) -> Tensor:
        r = torch.cat([x.relu(), (-x).relu()], -1)
        return torch.cat([r * r.roll(j, -1) for j in range(1, self._choices.nu + 1)], -1)

    def _t2r(self, x: Tensor) -> Tensor:
        return self._shifted(x).relu()

    def _hedgehog_exp(self, x: Tensor) -> Tensor:
        u = self._linear(x)
        return torch.cat([u.exp(), (-u).exp()], -1)

    def _hedgehog_softmax(self, x: Tensor) -> Tensor:
        u = self._linear(x)
        return torch.cat([u.softmax(-1), (-u).softmax(-1)], -1)

    def _taylor2(self, x: Tensor) -> Tensor:
        d = x.shape[-1]
        ones = torch.ones_like(x[..., :1])
        return torch.cat([ones, x / d**0.25, _power2(x) / math.sqrt(2 * d)], -1)

    def _rebased(self, x: Tensor) -> Tensor:
        u = torch.nn.functional.layer_norm(x, x.shape[-1:], eps=1e-5)
        if self._w is not None:
            u = u * self._w
        if self._b is not None:
            u = u + self._b
        return _power2(u)

    def _rfa(self, x: Tensor) -> Tensor:
        u = self._linear(x)
        return torch.cat([u.sin(), u.cos()], -1) / math.sqrt(u.shape[-1])

    def _favor(self, x: Tensor) -> Tensor:
        u = self._linear(x)
        return (u - x.square().sum(-1, keepdim=True) / 2).exp() / math.sqrt(u.shape[-1])

    def _dijiang(self, x: Tensor) -> Tensor:
        return self._shifted(x).exp()


def _power2(x: Tensor) -> Tensor:
    """All x_i x_j with i <= j, row by row, the mixed ones times sqrt(2)."""
    d = x.shape[-1]
    i, j = torch.triu_indices(d, d, device=x.device)
    weight = torch.full(i.shape, math.sqrt(2), dtype=x.dtype, device=x.device).masked_fill(
        i == j, 1
    )
    return x[..., i] * x[..., j] * weight


_MAPS: dict[str, Callable[[FeatureMap, Tensor], Tensor]] = {
    "elu1": FeatureMap._elu1,
    "relu": lambda _, x: x.relu(),
    "dpfp": FeatureMap._dpfp,
    "t2r": FeatureMap._t2r,
    "hedgehog_exp": FeatureMap._hedgehog_exp,
    "hedgehog_softmax": FeatureMap._hedgehog_softmax,
    "taylor2": FeatureMap._taylor2,
    "rebased": FeatureMap._rebased,
    "rfa": FeatureMap._rfa,
    "favor": FeatureMap._favor,
    "dijiang": FeatureMap._dijiang,
    "power2": lambda _, x: _power2(x),
}
known("features", ("none", "cosformer", *_MAPS))
