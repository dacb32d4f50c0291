"""Linear regression in context, with an answer that stays or one that changes.

    y_t = w_t . x_t + noise e_t,   x_t on the sphere of radius sqrt(d),  e_t normal
    w_t ~ N(0, I / d), drawn anew with probability 1 / period at every token (period 0: never)

so that unit keys cost no layer anything. x_t is uniform on the sphere, or with `spread` s the
direction of a normal vector whose channel j has variance j^-s. In tests w changes every `period`
tokens, and the score is (y_t - y_t')^2 by the number of pairs that have been seen since, without
the first stretch. The reference knows when w changes and with which prior: the posterior mean,
ridge regression on the pairs of this w alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from .._train import CHOICE
from .in_context import InContext
from .task import Scores, Sizes, Task, by_bins, design, random

Array = NDArray[Any]
_NOISE = 0.1


@dataclass(frozen=True, kw_only=True)
class Linear(Task):
    measure: str = "squared error"
    better: Literal["greater", "less"] = "less"
    reference: str = "knows the law"

    def check(self, sizes: Sizes) -> Sizes:
        if sizes["tokens"] < 2 * sizes["period"]:
            raise ValueError(
                f"tokens must be at least two periods = {2 * sizes['period']} but is "
                f"{sizes['tokens']}"
            )
        return sizes

    def network(self, recipe: str, sizes: Sizes) -> nn.Module:
        around = design(recipe, key_lags=(0.0, 1.0))
        return InContext(recipe, around, sizes["inputs"], sizes["width"], sizes["width"])

    def loss(self, network: nn.Module, sizes: Sizes, seed: int, step: int) -> Tensor:
        x, y = examples(sizes, sizes["batch"], seed, step)
        return (network(x, y) - y).square().mean()

    @torch.no_grad()
    def scores(self, network: nn.Module, sizes: Sizes, stream: int) -> Scores:
        x, y = examples(sizes, sizes["tests"], stream, 0)
        return by_age((network(x, y) - y).square().double().numpy(), sizes["period"])

    def best(self, sizes: Sizes, stream: int) -> Scores:
        x, y = (t.double().numpy() for t in examples(sizes, sizes["tests"], stream, 0))
        errors = np.empty_like(y)
        for t in range(sizes["tokens"]):
            first = t - t % sizes["period"] if sizes["period"] else 0
            errors[:, t] = y[:, t] - _posterior_mean(x[:, first:t], y[:, first:t], x[:, t])
        return by_age(errors**2, sizes["period"])


def _posterior_mean(x: Array, y: Array, asked: Array) -> Array:
    """The posterior mean of w . asked after pairs x [B, n, d], y [B, n]."""
    gram = np.einsum("bni,bnj->bij", x, x) + _NOISE**2 * x.shape[-1] * np.eye(x.shape[-1])
    w = np.linalg.solve(gram, np.einsum("bni,bn->bi", x, y)[..., None])[..., 0]
    mean: Array = (w * asked).sum(-1)
    return mean


def examples(sizes: Sizes, batch: int, seed: int, number: int) -> tuple[Tensor, Tensor]:
    """x [B, T, d], y [B, T]; changes at random for training, in turn for tests."""
    tokens, inputs, period = sizes["tokens"], sizes["inputs"], sizes["period"]
    source = random(seed, number)
    x = source.standard_normal((batch, tokens, inputs))
    x *= np.arange(1, inputs + 1) ** (-sizes["spread"] / 2)
    x *= np.sqrt(inputs) / np.linalg.norm(x, axis=-1, keepdims=True)
    changes = source.random((batch, tokens)) < (1 / period if period else 0)
    if period and seed >= CHOICE:
        changes[:] = np.arange(tokens) % period == 0
    drawn = source.standard_normal((batch, tokens, inputs)) / np.sqrt(inputs)
    latest = np.maximum.accumulate(np.where(changes, np.arange(tokens), 0), axis=1)
    w = np.take_along_axis(drawn, latest[..., None], axis=1)
    y = (w * x).sum(-1) + _NOISE * source.standard_normal((batch, tokens))
    return torch.from_numpy(x.astype(np.float32)), torch.from_numpy(y.astype(np.float32))


def by_age(errors: Array, period: int) -> Scores:
    """Means over bins of 1, 2, 3..4, 5..8, ... pairs since the change, the first stretch left
    out."""
    late = errors[:, period:]
    ages = np.broadcast_to(np.arange(late.shape[1]) % (period or late.shape[1]), late.shape)
    edges = [float(2**i) for i in range(int(np.ceil(np.log2(period or late.shape[1]))) + 1)]
    return by_bins(late[ages > 0], ages[ages > 0], edges)


CHANGING = Linear(
    name="changing regression",
    x_label="pairs since the change, at most",
    quick={
        "inputs": 8, "spread": 0.0, "width": 16, "tokens": 96, "period": 32, "steps": 200,
        "batch": 16, "tests": 256, "rates": [2e-2, 5e-2],
    },
    whole={
        "inputs": 16, "spread": 0.0, "width": 32, "tokens": 256, "period": 64, "steps": 1000,
        "batch": 32, "tests": 512, "rates": [2e-2, 5e-2],
    },
)  # fmt: skip
LASTING = Linear(
    name="regression",
    x_label="pairs seen, at most",
    quick={
        "inputs": 8, "spread": 1.0, "width": 16, "tokens": 64, "period": 0, "steps": 200,
        "batch": 16, "tests": 256, "rates": [2e-2, 5e-2],
    },
    whole={
        "inputs": 8, "spread": 1.0, "width": 16, "tokens": 128, "period": 0, "steps": 1000,
        "batch": 32, "tests": 512, "rates": [1e-2, 2e-2, 5e-2],
    },
)  # fmt: skip
