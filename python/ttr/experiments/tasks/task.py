"""What a task is, and the surroundings that all layers of a comparison share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from torch import Tensor, nn

import ttr
from ttr.torch.nn import Design, gates

Sizes = Mapping[str, Any]
Scores = dict[str, float]
#: The key of the score over everything.
ALL = "all"


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """A law of data, the network that learns it, and how good that is."""

    name: str
    measure: str  #: what a score is
    better: Literal["greater", "less"]
    x_label: str  #: what scores are ordered by
    quick: Sizes  #: `rates`, `steps`, `batch`, `tests`, and the task's own numbers
    whole: Sizes
    reference: str = ""  #: who knows the law; nobody where that is empty

    @property
    def is_error(self) -> bool:
        """Whether scores span powers of ten."""
        return self.measure == "squared error"

    @property
    def digits(self) -> int:
        """Digits of a score behind the point."""
        return 4 if self.is_error else 3

    def check(self, sizes: Sizes) -> Sizes:
        """All that the numbers of a run depend on, to be called before any. ValueError: sizes that
        no example has."""
        return sizes

    @abstractmethod
    def network(self, recipe: str, sizes: Sizes) -> nn.Module:
        """A network around the recipe's layer, drawn from PyTorch's random numbers."""

    @abstractmethod
    def loss(self, network: nn.Module, sizes: Sizes, seed: int, step: int) -> Tensor:
        """The loss of batch `step` of the data set `seed`."""

    @abstractmethod
    def scores(self, network: nn.Module, sizes: Sizes, stream: int) -> Scores:
        """By x, and over `ALL`, on the data set `stream`."""

    def best(self, sizes: Sizes, stream: int) -> Scores:
        """What `reference` reaches on the same data."""
        return {}


def random(seed: int, number: int) -> np.random.Generator:
    """Batch `number` of the endless data set `seed`: the same on every machine."""
    return np.random.Generator(np.random.Philox(key=[seed, number]))


def design(recipe: str, **around: Any) -> Design:
    """Unit keys, but for steps that know the length of a key; a write gate sigmoid(u . k + b), u = 0 and
    b = 0 at the start, that is the weight of an association or the step size of a delta rule; a decay
    sigmoid(w . x + 4). What a recipe does not ask for is left out, so that layers which ask for as much
    have as many parameters."""
    made: dict[str, gates.Factory] = {
        "log_decay": partial(gates.LogSigmoid, start=4.0),
        "step": gates.KeySigmoid,
        "importance": gates.KeySigmoid,
    }
    inputs = {spec["keyword"] for spec in ttr.input_specs(ttr.Recipe(recipe))}
    asked = {name: gate for name, gate in made.items() if name in inputs}
    known = ttr.Recipe(recipe).option("step") in ("nlms", "longhorn")
    return Design(gates=asked, qk_norm=None if known else "l2", **around)


def by_bins(
    values: np.ndarray[Any, Any], places: np.ndarray[Any, Any], edges: list[float]
) -> Scores:
    """Means of values whose place is at most an edge and above the one before, no empty ones; and
    that of all."""
    found = {ALL: float(values.mean())}
    low = -np.inf
    for edge in edges:
        here = values[(places > low) & (places <= edge)]
        if here.size:
            found[f"{edge:g}"] = float(here.mean())
        low = edge
    return found
