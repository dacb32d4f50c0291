"""What a comparison is, and one run of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .._chart import Panel
from .._figures import Claim
from .._train import CHOICE, TEST, fit
from ..mqar.model import write_gate
from ..tasks.task import Sizes, Task
from .results import Results

Row = dict[str, Any]


@dataclass(frozen=True)
class Study:
    """Methods by what people call them, each a recipe; tasks; and what is claimed of them."""

    name: str
    title: str
    summary: str
    methods: Mapping[str, str]
    chosen: Sequence[str]  #: methods that run where no others are asked for
    tasks: Sequence[Task]
    claims: Callable[[Results], list[Claim]]
    panels: Callable[[Results], list[Panel]]
    x_label: str = ""

    def task(self, name: str) -> Task:
        return next(task for task in self.tasks if task.name == name)


@dataclass(frozen=True)
class Settings:
    """All that a run's numbers depend on."""

    task: str
    method: str
    recipe: str
    rate: float
    seed: int
    sizes: Sizes

    def row(self) -> Row:
        sizes = {name: value for name, value in self.sizes.items() if name != "rates"}
        return {
            "task": self.task, "method": self.method, "recipe": self.recipe, "rate": self.rate,
            "seed": self.seed, "sizes": sizes,
        }  # fmt: skip


def run(
    task: Task, settings: Settings, step_done: Callable[[int], None] = lambda step: None
) -> Row:
    """Trains a network, and scores it on data of its own for the choice of a rate and the test."""
    s = settings
    torch.manual_seed(s.seed)
    network = task.network(s.recipe, s.sizes)
    trained = fit(
        network,
        lambda step: task.loss(network, s.sizes, s.seed, step),
        s.sizes["steps"],
        s.rate,
        write_gate(network),
        step_done,
    )
    return {
        "validation": task.scores(network, s.sizes, CHOICE + s.seed),
        "scores": task.scores(network, s.sizes, TEST + s.seed),
        "parameters": sum(p.numel() for p in network.parameters()),
        **trained,
    }
