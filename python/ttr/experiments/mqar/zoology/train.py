"""One run, which may be cut off at any step and goes on from there."""

from __future__ import annotations

import math
import pickle
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ttr._files import whole

from ..model import METHODS, design_of
from .data import Examples, sets
from .model import Recall

#: A run ends at the first epoch behind which its accuracy is greater.
ENOUGH = 0.99
WEIGHT_DECAY = 0.1
#: Seconds between two states on the disk within an epoch.
OFTEN = 60.0


@dataclass(frozen=True)
class Settings:
    """All that a run's numbers depend on, but for the device's rounding."""

    method: str = "linear attention"
    architecture: str = "strict"
    pairs: int = 64
    width: int = 64
    tokens: int = 256
    rate: float = 1e-2
    seed: int = 0
    vocabulary: int = 8192
    examples: int = 100_000
    epochs: int = 64
    batch: int = 256
    tests: int = 3000
    lags: tuple[float, ...] = (0.0, 1.0)
    learn_lags: bool = True

    def row(self) -> dict[str, Any]:
        return {"procedure": "zoology", **asdict(self), "lags": list(self.lags)}

    @property
    def epoch_steps(self) -> int:
        return -(-self.examples // self.batch)

    @property
    def steps(self) -> int:
        return self.epochs * self.epoch_steps


class Run:
    """Training and tests, a step at a time. The state is in `file` behind every epoch, once a
    minute, and where a run is stopped; what another run has left there is not read."""

    def __init__(self, settings: Settings, file: Path, device: str) -> None:
        s = self.settings = settings
        self.file, self.device = file, device
        torch.manual_seed(s.seed)
        design = design_of(s.method, s.architecture, s.lags, s.learn_lags)
        recipe = METHODS[s.method].recipe(s.architecture)
        self.model = Recall(recipe, design, s.vocabulary, s.width).to(device)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=s.rate, weight_decay=WEIGHT_DECAY
        )
        self.step, self.seconds = 0, 0.0
        self.sum = torch.zeros((), dtype=torch.float64, device=device)  # of the epoch's losses
        self.losses: list[float] = []
        self.accuracies: list[float] = []
        self._load()

    # ---- Its state -------------------------------------------------------------------------------

    def _load(self) -> None:
        saved = read_state(self.file, self.settings)
        if saved is None:
            return
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.sum.fill_(saved["sum"])
        self.step, self.seconds = saved["step"], saved["seconds"]
        self.losses, self.accuracies = saved["losses"], saved["accuracies"]

    def save(self) -> None:
        """Writes the state, whole or not at all."""
        state = {
            "settings": self.settings.row(),
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "sum": self.sum.item(),
            "step": self.step,
            "seconds": self.seconds,
            "losses": self.losses,
            "accuracies": self.accuracies,
        }
        with whole(self.file) as part:
            torch.save(state, part)

    @property
    def ended(self) -> str:
        """Why it ended: "accuracy", "loss" (not finite), "epochs"; empty while it goes on."""
        if self.accuracies and self.accuracies[-1] > ENOUGH:
            return "accuracy"
        if len(self.losses) < len(self.accuracies):
            return "loss"
        return "epochs" if self.step >= self.settings.steps else ""

    def row(self) -> dict[str, Any]:
        """What it found: accuracy behind the last epoch, and behind each."""
        s, last = self.settings, self.accuracies[-1]
        return {
            "validation": last,
            "accuracy": {str(s.tokens): last},
            "accuracies": self.accuracies,
            "loss": [round(x, 4) for x in self.losses],
            "ended": self.ended,
            "lags": self.model.lags(),
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "seconds": round(self.seconds, 1),
            "device": self.device,
        }

    # ---- Its steps -------------------------------------------------------------------------------

    def go_on(self, goes_on: Callable[[int], bool]) -> bool:
        """Steps until it has ended (True) or goes_on(steps made by this call) is false (False)."""
        s, first = self.settings, self.step
        if self.ended or not goes_on(0):
            return bool(self.ended)
        training, tests = sets(
            s.examples, s.tests, s.tokens, s.pairs, s.vocabulary, s.seed, self.device
        )
        start = saved = time.perf_counter()
        before = self.seconds
        while not self.ended and goes_on(self.step - first):
            self._make_step(training)
            whole = self.step % s.epoch_steps == 0
            if whole:
                self._end_epoch(tests)
            now = time.perf_counter()
            self.seconds = before + now - start
            if whole or now - saved > OFTEN:
                self.save()
                saved = now
        self.save()
        return bool(self.ended)

    def _make_step(self, training: Examples) -> None:
        """Dropout is drawn from the step's number, so that a run has the same one wherever it was
        cut off."""
        s = self.settings
        epoch, place = divmod(self.step, s.epoch_steps)
        chosen = _order(s.examples, s.seed, epoch)[place * s.batch : (place + 1) * s.batch]
        for group in self.optimizer.param_groups:
            group["lr"] = 0.5 * s.rate * (1 + math.cos(math.pi * epoch / s.epochs))
        self.model.train()
        torch.manual_seed(1_000_003 * (s.seed + 1) + self.step)
        tokens, places, answers = training.batch(chosen.to(self.device))
        loss = F.cross_entropy(self.model(tokens, places).flatten(0, 1), answers.flatten())
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.sum += loss.detach()
        self.step += 1

    def _end_epoch(self, tests: Examples) -> None:
        mean = self.sum.item() / self.settings.epoch_steps
        self.sum.zero_()
        if not math.isfinite(mean):
            self.accuracies.append(0.0)
            return
        self.losses.append(mean)
        self.accuracies.append(accuracy(self.model, tests, self.settings.batch))


@lru_cache(maxsize=1)
def _order(examples: int, seed: int, epoch: int) -> Tensor:
    """The order of the examples in an epoch."""
    generator = torch.Generator().manual_seed(1_000_003 * (seed + 1) + epoch)
    return torch.randperm(examples, generator=generator)


@torch.no_grad()
def accuracy(model: Recall, tests: Examples, batch: int) -> float:
    """The share of labels whose response has the greatest logit of the whole vocabulary."""
    model.eval()
    right = 0
    for first in range(0, len(tests), batch):
        tokens, places, answers = tests.batch(slice(first, first + batch))
        right += int((model(tokens, places).argmax(-1) == answers).sum())
    return right / tests.answers.numel()


def read_state(file: Path, settings: Settings) -> dict[str, Any] | None:
    """The state in a file; None where there is none that exactly these settings have left."""
    try:
        saved = torch.load(file, map_location="cpu", weights_only=True)
    except (OSError, EOFError, RuntimeError, pickle.UnpicklingError):
        return None
    if not isinstance(saved, dict) or saved.get("settings") != settings.row():
        return None
    return saved
