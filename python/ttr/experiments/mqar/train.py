"""One run: a network trained on examples of one length, tested on those of others."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F

from . import law
from .model import Recall


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


#: Data sets of choice and test, apart from those of training, whose number is the seed.
_CHOICE, _TEST = 1 << 40, 1 << 41


def run(settings: Settings, step_done: Callable[[int], None] = lambda step: None) -> dict[str, Any]:
    """Trains at T = 4 P; accuracy of validation at that length and of every length that is asked.

    AdamW, no weight decay, cosine to 0 behind a warm-up of a quarter of the steps, at most 100; the
    norm of the gradient clipped at 1; ten times the rate for the write gate.
    """
    s = settings
    torch.manual_seed(s.seed)
    model = Recall(
        s.method, s.architecture, s.vocabulary, s.width, lags=s.lags, learn_lags=s.learn_lags
    )
    gate = model.write_gate()
    trained = [p for p in model.parameters() if p.requires_grad]
    others = [p for p in trained if all(p is not g for g in gate)]
    groups = [{"params": others, "lr": s.rate}]
    if gate:
        groups.append({"params": gate, "lr": 10 * s.rate})
    optimizer = torch.optim.AdamW(groups, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, s.steps))
    sample = torch.Generator().manual_seed(s.seed)
    losses, start = [], time.perf_counter()
    for step in range(s.steps):
        examples = law.make(s.batch, 4 * s.pairs, s.pairs, s.vocabulary, s.seed, step)
        chosen = torch.rand(s.batch, s.pairs, generator=sample).argsort(1)[:, : s.labels]
        tokens, places, answers = _tensors(examples)
        logits = model(tokens, places.gather(1, chosen))
        loss = F.cross_entropy(logits.flatten(0, 1), answers.gather(1, chosen).flatten())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        step_done(step + 1)
    seconds = time.perf_counter() - start
    return {
        "validation": accuracy(model, s, 4 * s.pairs, _CHOICE),
        "accuracy": {str(t): accuracy(model, s, t, _TEST) for t in s.lengths if t >= 4 * s.pairs},
        "loss": [round(x, 4) for x in losses[:: max(1, s.steps // 50)]],
        "last_loss": sum(losses[-10:]) / max(1, len(losses[-10:])),
        "lags": model.lags(),
        "parameters": sum(p.numel() for p in model.parameters()),
        "seconds": round(seconds, 1),
    }


@torch.no_grad()
def accuracy(model: Recall, s: Settings, tokens: int, stream: int) -> float:
    """The share of labels whose response has the greatest logit of the whole vocabulary."""
    right = total = 0
    size = max(1, min(8, 8192 // tokens))
    for number, first in enumerate(range(0, s.tests, size)):
        batch = min(size, s.tests - first)
        examples = law.make(batch, tokens, s.pairs, s.vocabulary, stream + s.seed, number)
        text, places, answers = _tensors(examples)
        right += int((model(text, places).argmax(-1) == answers).sum())
        total += answers.numel()
    return right / total


def _tensors(examples: law.Examples) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return (
        torch.from_numpy(examples.tokens),
        torch.from_numpy(examples.places),
        torch.from_numpy(examples.answers),
    )


def _rate(step: int, steps: int) -> float:
    warm = min(100, steps // 4)
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))
