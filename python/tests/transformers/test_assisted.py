"""Assisted generation on recurrent models: drafts are taken back, the tokens are those of greedy
generation."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

transformers = pytest.importorskip("transformers", reason="the models are those of transformers")

if transformers.__version__.startswith("5.23."):
    pytest.skip("caches of transformers 5.24", allow_module_level=True)

import torch
import ttr.transformers
from torch import Tensor
from transformer_models import prompt, recurrent_states, small_model
from transformers import DynamicCache
from ttr.transformers import TtrConfig, TtrForCausalLM

#: Two of each memory that can be taken back; the second Mamba-2 has attention in the same layers.
FAMILIES = ["qwen3_next", "olmo_hybrid", "kimi_linear", "bailing_hybrid", "mamba2", "falcon_h1"]
TOKENS = 40


def generate(model: Any, **options: Any) -> tuple[Tensor, int]:
    """What it says, and in how many calls."""
    calls: list[int] = []
    handle = model.register_forward_pre_hook(lambda *_: calls.append(1))
    ids = prompt(6, batch=1).repeat(1, 4)
    lengths = {"max_new_tokens": TOKENS, "min_new_tokens": TOKENS, "do_sample": False}
    with torch.no_grad():
        said: Tensor = model.generate(ids, **lengths, **options)
    handle.remove()
    return said, len(calls)


def near(model: Any, noise: float = 0.003) -> Any:
    """An assistant that is often right."""
    other = copy.deepcopy(model)
    torch.manual_seed(2)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=noise)
    return other


def check(model: Any, assistant: Any, want: Tensor) -> None:
    counts = {}
    for tokens in (1, 4, 20):
        assistant.generation_config.num_assistant_tokens = tokens
        assistant.generation_config.assistant_confidence_threshold = 0.0
        found, counts[tokens] = generate(model, assistant_model=assistant)
        assert torch.equal(found, want), tokens
    assert TOKENS / 5 < counts[4] < TOKENS and TOKENS / 21 < counts[20], "some were right, some wrong"
    for tokens in (1, 3, 10):
        found, _ = generate(model, prompt_lookup_num_tokens=tokens)
        assert torch.equal(found, want), tokens


@pytest.mark.parametrize("family", FAMILIES)
def test_it_says_what_greedy_generation_says(family: str) -> None:
    model = small_model(family)
    want, _ = generate(model)
    with ttr.transformers.accelerated(model):
        check(model, near(model), want)


def test_an_assistant_of_another_memory() -> None:
    model, assistant = small_model("qwen3_next"), small_model("mamba2")
    want, _ = generate(model)
    with ttr.transformers.accelerated(model), ttr.transformers.accelerated(assistant):
        found, _ = generate(model, assistant_model=assistant)
    assert torch.equal(found, want)


@pytest.mark.parametrize("layers", [["gated_deltanet", "softmax"], ["mamba2", "kda", "rls"]])
def test_models_of_ours(layers: list[str]) -> None:
    torch.manual_seed(0)
    config = TtrConfig(layers=layers, vocabulary=96, hidden_size=32, num_heads=2, num_layers=3)
    model = TtrForCausalLM(config).eval()
    with torch.no_grad():  # blocks begin small beside the token: here memories are to be heard
        for block in model.model.blocks:
            block.layer.output.weight.mul_(20)
    want, _ = generate(model)
    check(model, near(model, 0.01), want)


def test_a_cache_of_ours_without_a_draft_is_refused() -> None:
    model = TtrForCausalLM(TtrConfig(vocabulary=96, hidden_size=32, num_heads=2, num_layers=1)).eval()
    cache = ttr.transformers.models.TtrCache(model.model)
    with pytest.raises(ValueError, match=r"^\[TtrCache\] draft must be at least the tokens of a draft"):
        generate(model, prompt_lookup_num_tokens=3, cache=cache)


# ---- Caches ------------------------------------------------------------------------------------


class Reader:
    """A model that reads one prompt through a cache that records, there and back."""

    def __init__(self, family: str, change: Callable[[Any], Any] = lambda model: model) -> None:
        self.model = change(small_model(family))
        self.ids, self.at = prompt(200, batch=1), 0
        with torch.no_grad():
            self.want = self.model(self.ids, use_cache=False).logits
        ttr.transformers.accelerate(self.model)
        self.cache: Any = DynamicCache(config=self.model.config)
        self.cache.activate_past_recording()

    def read(self, tokens: int, tolerance: float = 1e-4) -> None:
        end = self.at + tokens
        words = {"cache": self.cache, "use_cache": True, "attention_mask": torch.ones(1, end)}
        with torch.no_grad():
            found = self.model(self.ids[:, self.at : end], **words).logits
        bounds = {"rtol": tolerance, "atol": tolerance}
        torch.testing.assert_close(found, self.want[:, self.at : end], **bounds)
        self.at = end

    def back(self, tokens: int) -> None:
        self.cache.crop(-tokens)
        self.at -= tokens


@pytest.mark.parametrize("family", FAMILIES)
def test_any_way_there_and_back(family: str) -> None:
    """Drafts in one call and in several, taken back in part, altogether and not at all."""
    reader = Reader(family)
    generator = torch.Generator().manual_seed(0)

    def draw(least: int, most: int) -> int:
        return int(torch.randint(least, most + 1, (), generator=generator))

    reader.read(2)  # fewer than the taps of a convolution
    reader.back(0)
    while reader.at < 180:
        begin = reader.at
        for _ in range(draw(1, 3)):
            reader.read(draw(1, 6))
        reader.back(draw(0, reader.at - begin))


def test_between_two_calls_the_state_is_the_one_that_was() -> None:
    reader = Reader("qwen3_next")
    reader.read(9)
    before = [state.clone() for state in recurrent_states({"cache": reader.cache})]
    for _ in range(3):
        reader.read(1)
    reader.back(3)
    for found, want in zip(recurrent_states({"cache": reader.cache}), before, strict=True):
        assert torch.equal(found, want)


def test_originals_go_back_too() -> None:
    """What ours does not take is called again in the same way."""
    ttr.transformers.report(clear=True)
    reader = Reader("qwen3_next", lambda model: model.half())
    reader.want = reader.want.half()
    for tokens, back in ((8, 3), (1, 1), (6, 5)):
        reader.read(tokens, 2e-2)
        reader.back(back)
    reader.read(4, 2e-2)
    rows = ttr.transformers.report(clear=True)
    assert {row.reason for row in rows} == {"float16"}


def test_no_further_than_was_recorded() -> None:
    reader = Reader("qwen3_next")
    reader.read(8)
    reader.back(2)
    reader.read(3)
    with pytest.raises(RuntimeError, match=r"must be from -3 to 0, .* but is -4"):
        reader.cache.crop(-4)
    reader.back(3)
    reader.read(2)


def test_a_cache_that_was_changed_cannot_go_back() -> None:
    reader = Reader("mamba2")
    reader.read(8)
    assert reader.cache.is_croppable and reader.cache.get_seq_length() == 8
    reader.cache.reorder_cache(torch.tensor([0]))
    assert not reader.cache.is_croppable


@pytest.mark.parametrize("family", ["mamba", "falcon_mamba", "jamba", "zamba"])
def test_scans_that_begin_at_zeros_are_not_assisted(family: str) -> None:
    """They cannot check a draft: transformers refuses, in the same words."""
    model = small_model(family)
    ttr.transformers.accelerate(model)
    with pytest.raises(ValueError, match="stateful"):
        generate(model, prompt_lookup_num_tokens=3)


def test_without_ours_all_is_as_it_was() -> None:
    model = small_model("qwen3_next")
    layer = transformers.cache_utils.LinearAttentionCacheLayerMixin
    owners = [type(model).__mro__[1], transformers.Cache, layer]
    before = [dict(vars(owner)) for owner in owners]
    with ttr.transformers.accelerated(model):
        assert not model._is_stateful
        assert [dict(vars(owner)) for owner in owners] != before
    assert [dict(vars(owner)) for owner in owners] == before
    with pytest.raises(ValueError, match="stateful"):
        generate(model, prompt_lookup_num_tokens=3)
