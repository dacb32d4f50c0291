"""A small random model of every family: logits, caches, tokens and gradients."""

from __future__ import annotations

import copy
from typing import Any

import pytest

pytest.importorskip("transformers", reason="the models are those of transformers")

import torch
import ttr.transformers
from torch import Tensor
from transformer_cases import no_further
from transformer_models import (
    FAMILIES,
    InFloat64,
    cache_of,
    in_bfloat16,
    prompt,
    recurrent_states,
    small_model,
)


def run(model: Any) -> dict[str, Tensor]:
    """Logits and states of a prompt and some tokens behind it; gradients of the prompt alone.

    What is alike is one tensor: roundings are drawn anew in each, and some are smaller by luck.
    """
    ids, tail = prompt(), prompt(8, seed=2)
    with torch.no_grad():
        out = model(ids, use_cache=True)
        found, said = {"prefill": out[0]}, []
        for token in tail.split(1, 1):
            out = model(token, **cache_of(out), use_cache=True)
            said.append(out[0])
        found["tokens"] = torch.cat(said, 1)
        if states := recurrent_states(cache_of(out)):
            found["states"] = torch.cat([t.flatten() for t in states])
    model.zero_grad()
    logits = model.train()(ids, use_cache=False)[0]
    model.eval()
    found["training"] = logits.detach()
    draw = torch.randn(logits.shape, generator=torch.Generator().manual_seed(3))
    logits.backward(draw.to(logits.dtype))
    slopes = [p.grad.double().flatten() for p in model.parameters() if p.grad is not None]
    return found | {"gradients": torch.cat(slopes)}


def compare(model: Any, factor: float, slack: float) -> None:
    theirs = run(model)
    ttr.transformers.report(clear=True)
    with ttr.transformers.accelerated(model):
        ours = run(model)
    rows = ttr.transformers.report(clear=True)
    assert rows and all(row.reason is None for row in rows), str(rows)
    with InFloat64():
        wanted = run(copy.deepcopy(model).double())
    no_further(ours, theirs, wanted, factor, slack)


@pytest.mark.parametrize("family", FAMILIES)
def test_float32(family: str) -> None:
    compare(small_model(family), factor=1.5, slack=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_bfloat16(family: str) -> None:
    """Its roundings decide nothing by halves: a model amplifies them as it may."""
    compare(in_bfloat16(small_model(family)), factor=2, slack=1e-2)
