"""Regression of smooth functions in context.

    y_t = sum_{j<m} sqrt(2 / m) cos(w_j . x_t + b_j) + noise e_t,   x_t uniform in [-1, 1]^d
    w_j ~ N(0, I / length^2), b_j uniform in 0 .. 2 pi, a fresh function a sequence

For many terms that is a draw of the Gaussian process whose kernel is exp(-|x - x'|^2 / 2 length^2).
The score is (y_t - y_t')^2, by the number of pairs seen (`by: seen`: how few neighbours do), or in
the second half of the sequence by the distance of x_t from the boundary of the square (`by: edge`,
where neighbours lie on one side). The reference is that process's posterior mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ttr.torch.nn import Design

from .in_context import InContext
from .task import Scores, Sizes, Task, by_bins, random

Array = NDArray[Any]
_NOISE = 0.05
_EDGES = [0.05, 0.1, 0.2, 0.4, 1.0]


@dataclass(frozen=True, kw_only=True)
class Curves(Task):
    by: Literal["seen", "edge"]
    measure: str = "squared error"
    better: Literal["greater", "less"] = "less"
    reference: str = "knows the law"

    def check(self, sizes: Sizes) -> Sizes:
        if sizes["width"] < sizes["inputs"] + 2:
            raise ValueError(
                f"width must be at least inputs + 2 = {sizes['inputs'] + 2} but is {sizes['width']}"
            )
        return {**sizes, "by": self.by}

    def network(self, recipe: str, sizes: Sizes) -> nn.Module:
        around = Design(key_lags=(0.0, 1.0))  # the size of keys is the sharpness of kernels
        inputs, width, hidden = sizes["inputs"], sizes["width"], sizes["hidden"]
        return InContext(recipe, around, inputs, width, sizes["head_dim"], hidden)

    def loss(self, network: nn.Module, sizes: Sizes, seed: int, step: int) -> Tensor:
        x, y = examples(sizes, sizes["batch"], seed, step)
        return (network(x, y) - y).square().mean()

    @torch.no_grad()
    def scores(self, network: nn.Module, sizes: Sizes, stream: int) -> Scores:
        x, y = examples(sizes, sizes["tests"], stream, 0)
        errors = (network(x, y) - y).square().double().numpy()
        return self._binned(errors, x.double().numpy())

    def best(self, sizes: Sizes, stream: int) -> Scores:
        x, y = (t.double().numpy() for t in examples(sizes, sizes["tests"], stream, 0))
        apart = np.square(x[:, :, None] - x[:, None]).sum(-1)
        kernel = np.exp(-apart / (2 * sizes["length"] ** 2))
        noisy = kernel + _NOISE**2 * np.eye(x.shape[1])
        errors = np.empty_like(y)
        for t in range(x.shape[1]):
            weights = np.linalg.solve(noisy[:, :t, :t], y[:, :t, None])[..., 0]
            errors[:, t] = y[:, t] - (kernel[:, t, :t] * weights).sum(-1)
        return self._binned(errors**2, x)

    def _binned(self, errors: Array, x: Array) -> Scores:
        tokens = errors.shape[1]
        if self.by == "edge":
            distance = 1 - np.abs(x).max(-1)
            return by_bins(errors[:, tokens // 2 :], distance[:, tokens // 2 :], _EDGES)
        seen = np.broadcast_to(np.arange(tokens), errors.shape)
        edges = [float(2**i) for i in range(int(np.ceil(np.log2(tokens))) + 1)]
        return by_bins(errors[:, 1:], seen[:, 1:], edges)


def examples(sizes: Sizes, batch: int, seed: int, number: int) -> tuple[Tensor, Tensor]:
    """x [B, T, d], y [B, T]."""
    source = random(seed, number)
    inputs, terms = sizes["inputs"], sizes["terms"]
    x = source.uniform(-1, 1, (batch, sizes["tokens"], inputs))
    w = source.standard_normal((batch, terms, inputs)) / sizes["length"]
    b = source.uniform(0, 2 * np.pi, (batch, terms))
    waves = np.cos(np.einsum("btd,bjd->btj", x, w) + b[:, None])
    y = np.sqrt(2 / terms) * waves.sum(-1) + _NOISE * source.standard_normal(x.shape[:2])
    return torch.from_numpy(x.astype(np.float32)), torch.from_numpy(y.astype(np.float32))


SMOOTH = Curves(
    name="curves",
    by="seen",
    x_label="pairs seen, at most",
    quick={
        "inputs": 1, "width": 8, "head_dim": 4, "hidden": 16, "tokens": 64, "length": 0.3,
        "terms": 32, "steps": 200, "batch": 16, "tests": 256, "rates": [1e-2, 3e-2],
    },
    whole={
        "inputs": 1, "width": 16, "head_dim": 4, "hidden": 64, "tokens": 128, "length": 0.3,
        "terms": 32, "steps": 1000, "batch": 32, "tests": 512, "rates": [1e-2, 3e-2],
    },
)  # fmt: skip
EDGE = Curves(
    name="surfaces",
    by="edge",
    x_label="distance from the edge, at most",
    quick={
        "inputs": 2, "width": 8, "head_dim": 4, "hidden": 16, "tokens": 96, "length": 1.0,
        "terms": 32, "steps": 200, "batch": 16, "tests": 256, "rates": [1e-2, 3e-2],
    },
    whole={
        "inputs": 2, "width": 16, "head_dim": 4, "hidden": 64, "tokens": 192, "length": 1.0,
        "terms": 32, "steps": 1000, "batch": 32, "tests": 512, "rates": [1e-2, 3e-2],
    },
)  # fmt: skip
