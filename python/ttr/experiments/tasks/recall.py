"""Multi-query associative recall at the edge of a memory's capacity.

The examples and the network of `mqar`: Zoology's law, embeddings of unit norm, one layer, keys of
two taps that start as the token before. Batches have pairs P in turn, T = 4 P tokens; the score is
the accuracy for every P, some of them more than the memory has channels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..mqar import law
from ..mqar.model import Recall as Network
from ..mqar.train import tensors
from .task import ALL, Scores, Sizes, Task, design


@dataclass(frozen=True, kw_only=True)
class Recall(Task):
    name: str = "recall"
    measure: str = "accuracy"
    better: Literal["greater", "less"] = "greater"
    x_label: str = "pairs"
    reference: str = ""

    def check(self, sizes: Sizes) -> Sizes:
        for pairs in sizes["pairs"]:
            law.make(1, 4 * pairs, pairs, sizes["vocabulary"], 0, 0)
        return sizes

    def network(self, recipe: str, sizes: Sizes) -> nn.Module:
        around = design(recipe, key_lags=(0.0, 1.0), output_norm="rms")
        return Network(recipe, around, sizes["vocabulary"], sizes["width"])

    def loss(self, network: nn.Module, sizes: Sizes, seed: int, step: int) -> Tensor:
        pairs = sizes["pairs"][step % len(sizes["pairs"])]
        examples = law.make(sizes["batch"], 4 * pairs, pairs, sizes["vocabulary"], seed, step)
        tokens, places, answers = tensors(examples)
        places, answers = sample(places, answers, sizes["labels_drawn"], seed, step)
        return F.cross_entropy(network(tokens, places).flatten(0, 1), answers.flatten())

    @torch.no_grad()
    def scores(self, network: nn.Module, sizes: Sizes, stream: int) -> Scores:
        found: Scores = {}
        for number, pairs in enumerate(sizes["pairs"]):
            tests, vocabulary = sizes["tests"], sizes["vocabulary"]
            examples = law.make(tests, 4 * pairs, pairs, vocabulary, stream, number)
            tokens, places, answers = tensors(examples)
            right = network(tokens, places).argmax(-1) == answers
            found[str(pairs)] = right.double().mean().item()
        return {ALL: sum(found.values()) / len(found), **found}


def sample(
    places: Tensor, answers: Tensor, count: int, seed: int, step: int
) -> tuple[Tensor, Tensor]:
    """At most `count` labels of each row. Labels stand in the order of the pairs, the first of which are asked for
    soonest: without a draw the last would never be trained."""
    draws = torch.Generator().manual_seed((seed << 32) + step)
    chosen = torch.rand(places.shape, generator=draws).argsort(1)[:, :count]
    return places.gather(1, chosen), answers.gather(1, chosen)


_QUICK: dict[str, Any] = {
    "width": 16, "pairs": [8, 16, 24, 32], "vocabulary": 1024, "steps": 240, "batch": 32,
    "labels_drawn": 8, "tests": 64, "rates": [2e-2],
}  # fmt: skip
_WHOLE = {
    "width": 64, "pairs": [32, 64, 96, 128], "vocabulary": 8192, "steps": 600, "batch": 32,
    "labels_drawn": 16, "tests": 128, "rates": [5e-3, 1e-2],
}  # fmt: skip
RECALL = Recall(quick=_QUICK, whole=_WHOLE)
SMALL_RECALL = Recall(
    quick=_QUICK,
    whole={**_QUICK, "steps": 1000, "tests": 256, "rates": [5e-3, 1e-2, 2e-2]},
)
