"""Training as people run it."""

from __future__ import annotations

import copy
from typing import Any

import pytest

pytest.importorskip("transformers", reason="the models are those of transformers")

import torch
import ttr.transformers
from torch import Tensor
from transformer_cases import distance
from transformer_models import InFloat64, prompt, small_model

FAMILIES = ["qwen3_next", "kimi_linear", "mamba2", "mamba", "lfm2"]


def losses(model: Any, steps: int) -> Tensor:
    """Losses on a sequence whose next token follows from the one before it."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator, seen = torch.Generator().manual_seed(0), []
    for _ in range(steps):
        begin = torch.randint(1, 96, (2, 1), generator=generator)
        ids = (begin * 3 ** torch.arange(8) + torch.arange(8)) % 95 + 1
        loss = model(ids, labels=ids, use_cache=False).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen.append(loss.detach())
    return torch.stack(seen)


@pytest.mark.parametrize("family", ["qwen3_next", "mamba2"])
def test_200_steps_have_the_same_curve(family: str) -> None:
    model = small_model(family, initializer_range=0.02)
    twin = copy.deepcopy(model)
    want = losses(model, 200)
    with ttr.transformers.accelerated(twin):
        found = losses(twin, 200)
    assert want[-20:].mean() < 0.7 * want[:5].mean(), "it learns"
    torch.testing.assert_close(found, want, rtol=1e-3, atol=1e-3)


def gradients(model: Any, **options: Any) -> Tensor:
    model.zero_grad()
    model.train()
    out = model(prompt(40), use_cache=False, **options)[0]
    draw = torch.randn(out.shape, generator=torch.Generator().manual_seed(0))
    out.backward(draw.to(out.dtype))
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


@pytest.mark.parametrize("family", FAMILIES)
def test_gradient_checkpointing(family: str) -> None:
    model = small_model(family)
    with ttr.transformers.accelerated(model):
        want = gradients(model)
        if hasattr(model, "activation_checkpointing_enable"):
            model.activation_checkpointing_enable()
        else:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        torch.testing.assert_close(gradients(model), want)


@pytest.mark.parametrize("family", FAMILIES)
def test_accumulation(family: str) -> None:
    """Two batches one after another add up."""
    model = small_model(family)
    with ttr.transformers.accelerated(model):
        once = gradients(model)
        model(prompt(40), use_cache=False)[0].backward(
            torch.randn(2, 40, 96, generator=torch.Generator().manual_seed(0))
        )
        twice = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    torch.testing.assert_close(twice, 2 * once)


@pytest.mark.parametrize("family", FAMILIES)
def test_autocast(family: str) -> None:
    """In bfloat16 where autocast has it, no further from float64 than the original is there."""
    model = small_model(family)
    with torch.autocast("cpu", torch.bfloat16):
        theirs = gradients(model)
    with ttr.transformers.accelerated(model), torch.autocast("cpu", torch.bfloat16):
        ours = gradients(model)
    assert all(row.reason is None for row in ttr.transformers.report())
    with InFloat64():
        wanted = gradients(copy.deepcopy(model).double())
    assert distance(ours, wanted) <= 1.5 * distance(theirs, wanted)


def test_left_padding_in_training() -> None:
    model, ids = small_model("qwen3_next"), prompt(40)
    mask = torch.ones_like(ids)
    mask[0, :9] = 0
    want = gradients(model, attention_mask=mask)
    with ttr.transformers.accelerated(model):
        found = gradients(model, attention_mask=mask)
    assert distance(found, want) < 1e-4
