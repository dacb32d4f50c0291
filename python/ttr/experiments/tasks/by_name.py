"""Tasks for `LanguageModel` with the defaults of a layer's name: what stands around the memory is the
layer's own design, as whoever takes the name has it.

`Pairs`: multi-query associative recall, by Zoology's law. `Copy`: tokens without replacement, said a
second time, so that what follows is where the token stood before (induction). `Regression`: linear
regression in context on tokens [x_t, y_{t-1}], beside ridge regression, which knows the law. `OwnText`:
bytes of a text, beside a table of which byte follows which.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ttr.torch.nn import LanguageModel

from ..mqar import law
from ..mqar.train import tensors
from .linear import Linear
from .recall import sample
from .task import ALL, Scores, Sizes, Task, random
from .text import Text


class AtPlaces(nn.Module):
    """A language model, asked at places [B, n] alone."""

    def __init__(self, recipe: str, vocabulary: int, sizes: Sizes) -> None:
        super().__init__()
        self.model = LanguageModel(recipe, vocabulary, **_around(sizes))

    def forward(self, tokens: Tensor, places: Tensor) -> Tensor:
        """Logits [B, n, V]."""
        features = self.model.features(tokens)
        asked = features.gather(1, places[..., None].expand(-1, -1, features.shape[-1]))
        return self.model.logits(asked)


@dataclass(frozen=True, kw_only=True)
class Pairs(Task):
    measure: str = "accuracy"
    better: Literal["greater", "less"] = "greater"
    x_label: str = "pairs"

    def check(self, sizes: Sizes) -> Sizes:
        self.examples(sizes, 0, 0, 1)
        return sizes

    def examples(
        self, sizes: Sizes, seed: int, number: int, batch: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens [B, T], places [B, n] of what is asked, and the answers there."""
        pairs = sizes["pairs"]
        return tensors(law.make(batch, 4 * pairs, pairs, sizes["vocabulary"], seed, number))

    def network(self, recipe: str, sizes: Sizes) -> nn.Module:
        return AtPlaces(recipe, sizes["vocabulary"], sizes)

    def loss(self, network: nn.Module, sizes: Sizes, seed: int, step: int) -> Tensor:
        tokens, places, answers = self.examples(sizes, seed, step, sizes["batch"])
        if "labels_drawn" in sizes:
            places, answers = sample(places, answers, sizes["labels_drawn"], seed, step)
        return F.cross_entropy(network(tokens, places).flatten(0, 1), answers.flatten())

    @torch.no_grad()
    def scores(self, network: nn.Module, sizes: Sizes, stream: int) -> Scores:
        tokens, places, answers = self.examples(sizes, stream, 0, sizes["tests"])
        right = network(tokens, places).argmax(-1) == answers
        found = right.double().mean().item()
        return {ALL: found, str(sizes["pairs"]): found}


@dataclass(frozen=True, kw_only=True)
class Copy(Pairs):
    def examples(
        self, sizes: Sizes, seed: int, number: int, batch: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        count, vocabulary = sizes["pairs"], sizes["vocabulary"]
        if count > vocabulary:
            raise ValueError(f"pairs must be at most vocabulary = {vocabulary} but is {count}")
        order = random(seed, number).random((batch, vocabulary)).argsort(1)[:, :count]
        text = torch.from_numpy(np.concatenate([order, order], 1))
        places = torch.arange(count, 2 * count - 1).expand(batch, -1)
        return text, places, text[:, count + 1 :]


class OfNumbers(nn.Module):
    """The blocks of a language model between two linear maps: y_t of inputs [B, T, n] and labels [B, T],
    that of t unseen at t."""

    def __init__(self, recipe: str, sizes: Sizes) -> None:
        super().__init__()
        width = sizes["width"]
        self.model = LanguageModel(recipe, 1, **_around(sizes))
        self.model.embedding.requires_grad_(False)  # no token is read
        self.read_in = nn.Linear(sizes["inputs"] + 1, width, bias=False)
        self.read_out = nn.Linear(width, 1, bias=False)
        # As large as the embeddings that the blocks' residuals are made for.
        nn.init.normal_(self.read_in.weight, std=(width * (sizes["inputs"] + 1)) ** -0.5)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        before = F.pad(y[:, :-1], (1, 0))[..., None]
        rows = self.read_in(torch.cat([x, before], -1))
        for block in self.model.blocks:
            rows = block(rows)
        answers: Tensor = self.read_out(self.model.norm(rows))[..., 0]
        return answers


@dataclass(frozen=True, kw_only=True)
class Regression(Linear):
    def network(self, recipe: str, sizes: Sizes) -> nn.Module:
        return OfNumbers(recipe, sizes)


class Followers(nn.Module):
    """Which byte follows which in a text, counted, each pair a tenth more often."""

    def __init__(self, text: np.ndarray[Any, Any]) -> None:
        super().__init__()
        counts = np.full((256, 256), 0.1)
        np.add.at(counts, (text[:-1], text[1:]), 1)
        self.table = torch.from_numpy(counts / counts.sum(1, keepdims=True)).log()

    def forward(self, tokens: Tensor) -> Tensor:
        return self.table[tokens]


@dataclass(frozen=True, kw_only=True)
class OwnText(Text):
    reference: str = "table of byte pairs"

    def network(self, recipe: str, sizes: Sizes) -> nn.Module:
        return LanguageModel(recipe, 256, **_around(sizes))

    def best(self, sizes: Sizes, stream: int) -> Scores:
        return self.scores(Followers(self.parts[0]), sizes, stream)


def _around(sizes: Sizes) -> dict[str, Any]:
    return {
        "hidden_size": sizes["width"], "num_heads": sizes["heads"], "num_layers": sizes["layers"],
    }  # fmt: skip


_MODEL: dict[str, Any] = {"width": 64, "heads": 2, "layers": 2, "tests": 256}
_QUICK = {**_MODEL, "steps": 400, "rates": [1e-2]}
_WHOLE = {**_MODEL, "steps": 3000, "rates": [1e-3, 3e-3, 1e-2]}
_NUMBERS = {"inputs": 4, "spread": 0.0, "tokens": 24, "period": 0, "batch": 64}

RECALL = Pairs(
    name="recall",
    quick={**_QUICK, "pairs": 8, "vocabulary": 64, "batch": 64},
    whole={**_WHOLE, "pairs": 16, "vocabulary": 256, "batch": 64},
)
SHORT_RECALL = Pairs(
    name="short recall",
    quick={**_QUICK, "width": 32, "steps": 200, "rates": [2e-2], "pairs": 4, "vocabulary": 16, "batch": 32},
    whole={**_WHOLE, "pairs": 4, "vocabulary": 16, "batch": 64},
)
LONG_RECALL = Pairs(
    name="long recall",
    quick={**_QUICK, "pairs": 16, "vocabulary": 256, "batch": 32},
    whole={
        **_WHOLE, "pairs": 64, "vocabulary": 8192, "batch": 32, "labels_drawn": 16,
        "rates": [3e-3, 1e-2],
    },
)
INDUCTION = Copy(
    name="induction",
    quick={**_QUICK, "pairs": 16, "vocabulary": 64, "batch": 64},
    whole={**_WHOLE, "pairs": 64, "vocabulary": 256, "batch": 64},
)
REGRESSION = Regression(
    name="regression",
    x_label="pairs seen, at most",
    quick={**_QUICK, **_NUMBERS},
    whole={**_WHOLE, **_NUMBERS, "inputs": 8, "tokens": 64},
)
TEXT = OwnText(
    quick={**_QUICK, "tokens": 128, "batch": 8},
    whole={**_WHOLE, "tokens": 512, "batch": 16},
)
