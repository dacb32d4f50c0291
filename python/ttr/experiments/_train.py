"""The training that all experiments share."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

#: Data sets of choice and test, apart from those of training, whose number is the seed.
CHOICE, TEST = 1 << 40, 1 << 41


def fit(
    network: nn.Module,
    loss_of: Callable[[int], Tensor],
    steps: int,
    rate: float,
    fast: Sequence[nn.Parameter] = (),
    step_done: Callable[[int], None] = lambda step: None,
) -> dict[str, Any]:
    """Trains `network` on loss_of(0), loss_of(1), ...; gives `loss`, `last_loss`, `seconds`.

    AdamW, no weight decay, cosine to 0 behind a warm-up of a quarter of the steps, at most 100; the
    norm of the gradient clipped at 1; ten times the rate for `fast`, the write gates.
    """
    trained = [p for p in network.parameters() if p.requires_grad]
    others = [p for p in trained if all(p is not f for f in fast)]
    groups: list[dict[str, Any]] = [{"params": others, "lr": rate}]
    if fast:
        groups.append({"params": list(fast), "lr": 10 * rate})
    optimizer = torch.optim.AdamW(groups, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _share(step, steps))
    losses, start = [], time.perf_counter()
    for step in range(steps):
        loss = loss_of(step)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        step_done(step + 1)
    return {
        "loss": [round(x, 4) for x in losses[:: max(1, steps // 50)]],
        "last_loss": sum(losses[-10:]) / max(1, len(losses[-10:])),
        "seconds": round(time.perf_counter() - start, 1),
    }


def _share(step: int, steps: int) -> float:
    """The share of the rate that a step takes."""
    warm = min(100, steps // 4)
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))
