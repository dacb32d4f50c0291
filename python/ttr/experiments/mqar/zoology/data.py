"""Sets of examples that stay the same through all epochs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from ..._train import TEST
from .. import law

#: Examples are drawn in parts of this size, so that a greater set begins as a smaller one.
PART = 1000


@dataclass(frozen=True)
class Examples:
    """A set on its device: tokens [N, T], places and answers [N, P] of the labels, int32."""

    tokens: Tensor
    places: Tensor
    answers: Tensor

    def __len__(self) -> int:
        return len(self.tokens)

    def batch(self, chosen: Tensor | slice) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens, places and answers of those chosen, int64."""
        return self.tokens[chosen].long(), self.places[chosen].long(), self.answers[chosen].long()


@lru_cache(maxsize=1)
def sets(
    training: int, tests: int, tokens: int, pairs: int, vocabulary: int, seed: int, device: str
) -> tuple[Examples, Examples]:
    """The examples of training and those of the test. The last two sets are kept, as runs that
    follow one another mostly share them. ValueError: sizes that no example has."""
    sizes = tokens, pairs, vocabulary
    return (
        _draw(training, *sizes, seed, device),
        _draw(tests, *sizes, TEST + seed, device),
    )


def _draw(
    count: int, tokens: int, pairs: int, vocabulary: int, seed: int, device: str
) -> Examples:
    text = torch.empty(count, tokens, dtype=torch.int32)
    places, answers = (torch.empty(count, pairs, dtype=torch.int32) for _ in range(2))
    for number, first in enumerate(range(0, count, PART)):
        here = slice(first, min(first + PART, count))
        part = law.make(PART, tokens, pairs, vocabulary, seed, number)
        for whole, drawn in (
            (text, part.tokens), (places, part.places), (answers, part.answers)
        ):  # fmt: skip
            whole[here] = torch.from_numpy(drawn[: here.stop - here.start])
    return Examples(text.to(device), places.to(device), answers.to(device))
