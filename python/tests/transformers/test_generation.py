"""Generation as people run it: the same tokens with ours."""

from __future__ import annotations

from typing import Any

import pytest

transformers = pytest.importorskip("transformers", reason="the models are those of transformers")

import torch
import ttr.transformers
from torch import Tensor
from transformer_models import cache_of, prompt, recurrent_states, small_model

#: One of each memory, and one without.
FAMILIES = ["qwen3_next", "kimi_linear", "mamba2", "falcon_h1", "mamba", "jamba", "lfm2"]

WAYS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampling": {"do_sample": True, "temperature": 0.8},
    "beam search": {"num_beams": 3},
    "beam sampling": {"num_beams": 2, "do_sample": True},
    "several answers": {"do_sample": True, "num_return_sequences": 2},
}


def generate(model: Any, ids: Tensor, **options: Any) -> Tensor:
    torch.manual_seed(0)
    common = {"max_new_tokens": 12, "min_new_tokens": 12, "do_sample": False}
    with torch.no_grad():
        tokens: Tensor = model.generate(ids, **common | options)
    return tokens


def same(model: Any, ids: Tensor, **options: Any) -> None:
    want = generate(model, ids, **options)
    ttr.transformers.report(clear=True)
    with ttr.transformers.accelerated(model):
        found = generate(model, ids, **options)
    rows = ttr.transformers.report(clear=True)
    assert rows and all(row.reason is None for row in rows), str(rows)
    assert torch.equal(found, want)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("family", FAMILIES)
def test_ways(family: str, way: str) -> None:
    same(small_model(family), prompt(9), **WAYS[way])


@pytest.mark.parametrize("family", FAMILIES)
def test_left_padding(family: str) -> None:
    ids = prompt(9)
    mask = torch.ones_like(ids)
    ids[0, :4] = mask[0, :4] = 0
    same(small_model(family), ids, attention_mask=mask)


@pytest.mark.parametrize("family", ["qwen3_next", "kimi_linear", "mamba2", "falcon_h1"])
def test_a_static_cache(family: str) -> None:
    same(small_model(family), prompt(9), cache_implementation="static", disable_compile=True)


def test_assisted_generation() -> None:
    assistant = small_model("lfm2", num_hidden_layers=2, layer_types=["conv", "full_attention"])
    same(small_model("lfm2"), prompt(9, batch=1), assistant_model=assistant)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_chat_goes_on(family: str) -> None:
    """Several tokens on a filled cache, then one by one."""
    model = small_model(family)

    def chat() -> list[Tensor]:
        out, said = None, []
        for turn, length in enumerate((9, 5, 1, 1, 7)):
            held = {} if out is None else cache_of(out)
            with torch.no_grad():
                out = model(prompt(length, seed=turn), use_cache=True, **held)
            said.append(out[0])
        return [*said, *recurrent_states(cache_of(out))]

    want = chat()
    with ttr.transformers.accelerated(model):
        found = chat()
    for ours, theirs in zip(found, want, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("begins", ["with ours", "with the original"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_other_goes_on(family: str, begins: str) -> None:
    """A cache belongs to nobody: nothing is left pending behind it."""
    model = small_model(family)

    def run(first: bool, second: bool) -> list[Tensor]:
        said, held = [], {}
        for served, lengths in ((first, (9, 1, 1)), (second, (1, 1, 4))):
            for length in lengths:
                if served:
                    ttr.transformers.accelerate(model)
                with torch.no_grad():
                    out = model(prompt(length, seed=length), use_cache=True, **held)
                ttr.transformers.disable()
                held = cache_of(out)
                said.append(out[0])
        return said

    want, ours_first = run(False, False), begins == "with ours"
    for found, theirs in zip(run(ours_first, not ours_first), want, strict=True):
        torch.testing.assert_close(found, theirs, rtol=1e-3, atol=1e-4)


def test_a_model_of_four_layers_says_64_tokens() -> None:
    model = small_model("qwen3_next", num_hidden_layers=4)
    same(model, prompt(70, batch=1), max_new_tokens=64, min_new_tokens=64)


def test_a_token_goes_into_the_cache() -> None:
    """The state of a token is written where it lies."""
    for family in ("qwen3_next", "kimi_linear", "mamba2", "mamba"):
        model = small_model(family)
        with ttr.transformers.accelerated(model), torch.no_grad():
            out = model(prompt(9), use_cache=True)
            before = [(t.data_ptr(), t.stride()) for t in recurrent_states(cache_of(out))]
            out = model(prompt(1), use_cache=True, **cache_of(out))
            assert before == [(t.data_ptr(), t.stride()) for t in recurrent_states(cache_of(out))]
