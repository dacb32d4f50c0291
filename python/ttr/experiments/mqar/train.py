"""One run: a network trained on examples of one length, tested on those of others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F

from .._train import CHOICE, TEST, fit
from . import law
from .model import Recall, network, write_gate


@dataclass(frozen=True)
class Settings:
    """All that a run's numbers depend on."""

    method: str = "linear attention"
    architecture: str = "gate"
    pairs: int = 64
    width: int = 64
    rate: float = 5e-3
    seed: int = 0
    lengths: tuple[int, ...] = (256, 512, 1024)
    vocabulary: int = 8192
    steps: int = 400
    batch: int = 32
    labels: int = 16  #: of each example and step that the loss takes, a sample
    tests: int = 32  #: examples of each length
    lags: tuple[float, ...] = (0.0, 1.0)  #: the keys' convolution, as it starts
    learn_lags: bool = True

    def row(self) -> dict[str, Any]:
        return {**asdict(self), "lengths": list(self.lengths), "lags": list(self.lags)}


def run(settings: Settings, step_done: Callable[[int], None] = lambda step: None) -> dict[str, Any]:
    """Trains at T = 4 P; accuracy of validation at that length and of every one that is asked."""
    s = settings
    torch.manual_seed(s.seed)
    model = network(
        s.method, s.architecture, s.vocabulary, s.width, lags=s.lags, learn_lags=s.learn_lags
    )
    sample = torch.Generator().manual_seed(s.seed)

    def loss(step: int) -> torch.Tensor:
        examples = law.make(s.batch, 4 * s.pairs, s.pairs, s.vocabulary, s.seed, step)
        chosen = torch.rand(s.batch, s.pairs, generator=sample).argsort(1)[:, : s.labels]
        tokens, places, answers = tensors(examples)
        logits = model(tokens, places.gather(1, chosen))
        return F.cross_entropy(logits.flatten(0, 1), answers.gather(1, chosen).flatten())

    trained = fit(model, loss, s.steps, s.rate, write_gate(model), step_done)
    return {
        "validation": accuracy(model, s, 4 * s.pairs, CHOICE),
        "accuracy": {str(t): accuracy(model, s, t, TEST) for t in s.lengths if t >= 4 * s.pairs},
        "lags": model.lags(),
        "parameters": sum(p.numel() for p in model.parameters()),
        **trained,
    }


@torch.no_grad()
def accuracy(model: Recall, s: Settings, tokens: int, stream: int) -> float:
    """The share of labels whose response has the greatest logit of the whole vocabulary."""
    right = total = 0
    size = max(1, min(8, 8192 // tokens))
    for number, first in enumerate(range(0, s.tests, size)):
        batch = min(size, s.tests - first)
        examples = law.make(batch, tokens, s.pairs, s.vocabulary, stream + s.seed, number)
        text, places, answers = tensors(examples)
        right += int((model(text, places).argmax(-1) == answers).sum())
        total += answers.numel()
    return right / total


def tensors(examples: law.Examples) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Tokens, places and answers."""
    return (
        torch.from_numpy(examples.tokens),
        torch.from_numpy(examples.places),
        torch.from_numpy(examples.answers),
    )
