"""Caches of `ttr.torch.nn`: rows of the batch in another order, and the way back."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from nn_cases import CAUSAL, layer, tokens, tolerance
from torch import Tensor
from ttr.torch.nn import Cache, LanguageModel, TestTimeRegression


def close(a: Tensor, b: Tensor, recipe: str) -> None:
    bound = tolerance(recipe)
    torch.testing.assert_close(a, b, rtol=bound, atol=bound)


def read(module: TestTimeRegression, x: Tensor, draft: int = 0, prompt: int = 5) -> Cache:
    """A cache of a prompt, and then of the other tokens one by one."""
    cache = module.new_cache(draft)
    module(x[:, :prompt], cache=cache)
    for t in range(prompt, x.shape[1]):
        module(x[:, t : t + 1], cache=cache)
    return cache


@pytest.mark.parametrize("name", CAUSAL)
@torch.no_grad()
def test_rows_go_on_in_another_order(name: str) -> None:
    """Beams (as many rows), a selection (fewer), repetition (more)."""
    module, x = layer(name), tokens(3)
    for rows in ([2, 0, 0], [1], [0, 0, 1, 2, 2]):
        cache = read(module, x)
        cache.reorder(torch.tensor(rows))
        assert cache.batch == len(rows) and cache.tokens == 7
        more = tokens(len(rows), 2, seed=4)
        found = [module(more[:, t : t + 1], cache=cache) for t in range(2)]
        want = module(torch.cat([x[rows], more], 1))[:, -2:]
        close(torch.cat(found, 1), want, name)


@torch.no_grad()
def test_repeat_is_side_by_side() -> None:
    module, x = layer("gated_deltanet"), tokens(2)
    cache, other = read(module, x), read(module, x)
    cache.repeat(2)
    other.reorder([0, 0, 1, 1])
    more = tokens(4, 1)
    assert torch.equal(module(more, cache=cache), module(more, cache=other))
    fresh = module.new_cache()
    fresh.repeat(3)  # there is nothing to repeat
    fresh.reorder([])
    close(module(x, cache=fresh), module(x), "gated_deltanet")


@pytest.mark.parametrize("name", CAUSAL)
@torch.no_grad()
def test_the_way_back_leaves_no_trace(name: str) -> None:
    """What comes after tokens that are taken back depends on nothing that they were."""
    module, x = layer(name), tokens()
    guess, more = tokens(count=4, seed=8), tokens(count=3, seed=9)
    cache, plain = read(module, x, draft=4), read(module, x, draft=4)
    close(module(guess, cache=cache), module(torch.cat([x, guess], 1))[:, 7:], name)
    assert cache.pending == 4
    module(torch.cat([guess[:, :1], tokens(count=3, seed=5)], 1), cache=plain)
    cache.roll_back(3)
    plain.roll_back(3)
    for t in range(2):
        y = module(more[:, t : t + 1], cache=cache)
        assert torch.equal(y, module(more[:, t : t + 1], cache=plain))
    cache.crop(8)
    assert (cache.tokens, plain.tokens) == (8, 10)
    want = module(torch.cat([x, guess[:, :1], more], 1))[:, 8:]
    close(module(more, cache=cache), want, name)


@pytest.mark.parametrize("name", ["gated_deltanet", "rls", "softmax"])
@torch.no_grad()
def test_behind_a_prompt_its_last_tokens_can_be_taken_back(name: str) -> None:
    """Also where it is the first, however long."""
    module, x = layer(name), tokens(count=12)
    for count in (2, 3, 12):
        cache = module.new_cache(draft=3)
        close(module(x[:, :count], cache=cache), module(x)[:, :count], name)
        assert cache.pending == min(count, 3)
        cache.crop(count - 2)
        close(module(x[:, count - 2 :], cache=cache), module(x)[:, count - 2 :], name)


@pytest.mark.parametrize("draft", [0, 3])
@pytest.mark.parametrize("name", ["gated_deltanet", "rls", "softmax", "mamba", "lru", "ttt_linear", "kernel_rls"])
@torch.no_grad()
def test_no_tokens_change_nothing(name: str, draft: int) -> None:
    """Before any token, and behind some: the way back is still there."""
    module, x = layer(name), tokens()
    cache, none = module.new_cache(draft), x[:, :0]
    assert module(none, cache=cache).shape == (2, 0, 8)
    module(x[:, :5], cache=cache)
    pending = cache.pending
    assert module(none, cache=cache).shape == (2, 0, 8)
    assert module(none, cache=cache, attention_mask=torch.ones(2, 0, dtype=torch.long)).shape == (2, 0, 8)
    assert (cache.pending, cache.tokens) == (pending, 5) and pending == draft
    cache.roll_back(pending)
    close(module(x[:, 5 - pending :], cache=cache), module(x)[:, 5 - pending :], name)


@torch.no_grad()
def test_drafts_behind_padding_and_copies() -> None:
    module, x = layer("gated_deltanet"), tokens()
    mask = torch.tensor([[0, 0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1]])
    cache, plain = module.new_cache(draft=2), module.new_cache()
    for held in (cache, plain):
        module(x, cache=held, attention_mask=mask)
    assert cache.pending == 0
    guess, more = tokens(count=2, seed=3), tokens(count=1, seed=4)
    module(guess, cache=cache)
    for kept in (copy.deepcopy(cache), pickle.loads(pickle.dumps(cache))):
        other = copy.deepcopy(module)
        kept.roll_back(2)
        close(other(more, cache=kept), module(more, cache=copy.deepcopy(plain)), "gated_deltanet")
    cache.reorder([1, 0])
    cache.roll_back(2)
    plain.reorder([1, 0])
    close(module(more, cache=cache), module(more, cache=plain), "gated_deltanet")


@torch.no_grad()
def test_a_model_goes_back() -> None:
    torch.manual_seed(0)
    recipes = ["gated_deltanet", "softmax"]
    small = LanguageModel(recipes, 11, hidden_size=8, num_heads=2, num_layers=2).double()
    words = torch.randint(0, 11, (2, 9), generator=torch.Generator().manual_seed(3))
    caches = small.new_caches(draft=4)
    small(words, caches=caches)
    for cache in caches:
        cache.crop(6)
        cache.reorder([1, 1])
    want = small(words[[1, 1]])[:, 6:]
    close(small(words[[1, 1], 6:], caches=caches), want, "softmax")


@torch.no_grad()
def test_caches_of_earlier_versions() -> None:
    """They knew nothing of rows and drafts."""
    module, x = layer("gated_deltanet"), tokens()
    cache = read(module, x)
    held = copy.deepcopy(cache.__getstate__())
    del held["draft"], held["batch"], held["_rows_behind"]
    old = Cache.__new__(Cache)
    old.__setstate__(held)
    assert (old.batch, old.draft) == (2, 0)
    old.reorder([1, 0])
    cache.reorder([1, 0])
    assert torch.equal(
        copy.deepcopy(module)(x[:, :1], cache=old), module(x[:, :1], cache=cache)
    )


def test_what_a_cache_refuses() -> None:
    module, x = layer("gated_deltanet"), tokens()
    with pytest.raises(ValueError, match="draft must be from 0 to 64 but is 65"):
        module.new_cache(draft=65)
    with torch.no_grad():
        cache = read(module, x, draft=2)
    with pytest.raises(ValueError, match=r"tokens must be in 0 .. 2, .*\(draft = 2\), but is 3"):
        cache.roll_back(3)
    with pytest.raises(ValueError, match="tokens must be at least 0 but is -1"):
        cache.roll_back(-1)
    for call in (cache.roll_back, cache.crop, cache.repeat):
        with pytest.raises(ValueError, match="must be a whole number, at least [01], but is 1.5"):
            call(1.5)  # type: ignore[arg-type]
    for draft in (-1, 1.5):
        with pytest.raises(ValueError, match=f"draft must be from 0 to 64 but is {draft}"):
            module.new_cache(draft)
    for wrong in (4, 8):
        with pytest.raises(ValueError, match=f"tokens must be in 5 .. 7, as draft = 2, but is {wrong}"):
            cache.crop(wrong)
    for rows in ([2, 0], [-1]):
        with pytest.raises(ValueError, match=r"indices must be rows of the batch, 0 .. 1, but is \["):
            cache.reorder(rows)
    for nothing in (torch.tensor([0.5]), torch.tensor([True, False]), torch.tensor([[0, 1]])):
        with pytest.raises(ValueError, match="indices must be whole numbers"):
            cache.reorder(nothing)
    with pytest.raises(ValueError, match="times must be at least 1 but is 0"):
        cache.repeat(0)
    with pytest.raises(RuntimeError, match="must not require gradients where a cache is given"):
        module(x, cache=cache, attention_mask=torch.tensor([[0] * 7, [1] * 7]))
    assert (cache.tokens, cache.pending, cache.batch) == (7, 2, 2)
