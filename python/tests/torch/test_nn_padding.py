"""`attention_mask` and `lengths` of `ttr.torch.nn`: a padded row is the row alone."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
import torch
import ttr
from nn_cases import CAUSAL, HIDDEN, WITH_GRADIENTS, layer, tokens, tolerance
from torch import Tensor
from ttr.torch.nn import Block, Design, LanguageModel, _padding
from ttr.torch.nn._around import portable_conv, short_conv

NAMES = list(ttr.zoo())
#: Left, right and both sides, holes, a row of one token, a row of none, a full row.
MASK = torch.tensor(
    [
        [0, 0, 0, 1, 1, 1, 1],
        [1, 1, 1, 1, 0, 0, 0],
        [0, 1, 1, 1, 1, 1, 0],
        [1, 0, 1, 1, 0, 0, 1],
        [0, 0, 0, 0, 1, 0, 0],
        [0, 0, 0, 0, 0, 0, 0],
        [1, 1, 1, 1, 1, 1, 1],
    ]
)


def padded() -> Tensor:
    """Tokens whose padding would show: NaN."""
    x = tokens(len(MASK), MASK.shape[1])
    return x.masked_fill(MASK[..., None] == 0, float("nan"))


def alone(module: Any, x: Tensor, mask: Tensor = MASK) -> Tensor:
    """The rows one by one, without their padding; zeros there."""
    y = x.new_zeros(x.shape)
    for row, real in enumerate(mask.bool()):
        if real.any():
            y[row, real] = module(x[row : row + 1, real])[0]
    return y


def close(a: Tensor, b: Tensor, recipe: str) -> None:
    bound = tolerance(recipe)
    torch.testing.assert_close(a, b, rtol=bound, atol=bound)


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_padded_rows_are_the_rows_alone(name: str) -> None:
    module, x = layer(name), padded()
    y = module(x, attention_mask=MASK)
    close(y, alone(module, x), name)
    assert torch.equal(y[MASK == 0], torch.zeros_like(y[MASK == 0]))
    assert torch.equal(module(x, attention_mask=MASK.bool()), y)


@pytest.mark.parametrize("name", CAUSAL)
@torch.no_grad()
def test_padded_rows_with_a_cache(name: str) -> None:
    """A padded prompt, tokens for all rows, tokens for some, and a padded piece."""
    module, x = layer(name), padded()
    more = tokens(len(MASK), 6, seed=3)
    ones = torch.ones(len(MASK), 2, dtype=torch.long)
    some = torch.tensor([[1, 0, 1, 1, 0, 1, 0]]).T
    mask = torch.cat([MASK, ones, some, MASK[:, 1:4]], 1)
    whole = torch.cat([x, more], 1)
    cache, parts, first = module.new_cache(), [], 0
    for count in (7, 1, 1, 1, 3):
        piece = slice(first, first + count)
        given = mask[:, piece]
        parts.append(module(whole[:, piece], cache=cache, attention_mask=given))
        first += count
    close(torch.cat(parts, 1), alone(module, whole, mask), name)
    assert cache.batch == len(MASK)


@pytest.mark.parametrize(
    "name", ["gated_deltanet", "mesa", "mamba", "lru", "softmax", "ttt_linear", "delta_product"]
)
def test_gradients_are_those_of_the_rows_alone(name: str) -> None:
    assert name in WITH_GRADIENTS
    module, x = layer(name), padded().nan_to_num().requires_grad_()
    weight = tokens(len(MASK), MASK.shape[1], seed=9)
    wanted = [x, *module.parameters()]
    found = torch.autograd.grad((module(x, attention_mask=MASK) * weight).sum(), wanted)
    rows = []
    for row, real in enumerate(MASK.bool()):
        if real.any():
            rows.append((module(x[row : row + 1, real])[0] * weight[row, real]).sum())
    for a, b in zip(found, torch.autograd.grad(torch.stack(rows).sum(), wanted), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9)
    assert torch.equal(found[0][MASK == 0], torch.zeros_like(found[0][MASK == 0]))


@torch.no_grad()
def test_lengths_are_a_mask_of_right_padding() -> None:
    module, x = layer("gated_deltanet"), tokens(3, 5)
    mask = torch.tensor([[1, 1, 1, 0, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]])
    for dtype in (torch.int32, torch.int64):
        y = module(x, lengths=torch.tensor([3, 0, 5], dtype=dtype))
        assert torch.equal(y, module(x, attention_mask=mask))


@torch.no_grad()
def test_lists_are_masks_and_lengths() -> None:
    module, x, small = layer("gated_deltanet"), tokens(2, 5), model()
    mask, counts = [[0, 1, 1, 1, 1], [1] * 5], [3, 5]
    assert torch.equal(module(x, attention_mask=mask), module(x, attention_mask=torch.tensor(mask)))
    assert torch.equal(module(x, lengths=counts), module(x, lengths=torch.tensor(counts)))
    words = text(2, 5)
    assert torch.equal(small.loss(words, lengths=counts), small.loss(words, lengths=torch.tensor(counts)))
    for kind in (torch.int32, torch.uint8):
        assert torch.equal(small.loss(words.to(kind), lengths=counts), small.loss(words, lengths=counts))
    with pytest.raises(ValueError, match=r"lengths must be whole numbers \[B\] = \[2\] but is torch.int64 \[\]"):
        module(x, lengths=3)
    for bad in (words.double(), words[0], [[1, 2]]):
        with pytest.raises(ValueError, match=r"tokens must be .*\[B,T\] of whole numbers but is"):
            small(bad)


@torch.no_grad()
def test_a_mask_that_masks_nothing_goes_the_plain_way() -> None:
    module, x = layer("gated_deltanet"), tokens()
    with mock.patch.object(_padding, "Padding", side_effect=AssertionError("packed")):
        y = module(x, attention_mask=torch.ones(2, 7, dtype=torch.long))
        assert torch.equal(y, module(x))
        assert torch.equal(module(x, lengths=torch.tensor([7, 7])), y)
        with pytest.raises(AssertionError, match="packed"):
            module(x, lengths=torch.tensor([7, 6]))


@torch.no_grad()
def test_packed_prompts_fill_a_cache() -> None:
    """`cu_seqlens` beside a cache: a row of it for each sequence."""
    module, x = layer("gated_deltanet"), tokens(1, 9)
    cuts = torch.tensor([0, 4, 4, 9])
    cache = module.new_cache()
    packed = module(x, cache=cache, cu_seqlens=cuts)
    close(packed, module(x, cu_seqlens=cuts), "gated_deltanet")
    assert (cache.batch, cache.tokens) == (3, 5)
    token = tokens(3, 1, seed=2)
    y = module(token, cache=cache)
    for row, (first, last) in enumerate(((0, 4), (4, 4), (4, 9))):
        want = module(torch.cat([x[:, first:last], token[row : row + 1]], 1))[:, -1]
        close(y[row], want, "gated_deltanet")
    with pytest.raises(ValueError, match="cache must be of 2 rows, as x is, but is of 3"):
        module(tokens(2, 1), cache=cache)


def test_convolutions_of_packed_sequences_go_on_from_rows() -> None:
    """On any device, from more rows than a filter has taps, too."""
    x, weight = tokens(1, 9), tokens(1, 8, hidden=3)[0]
    cuts = torch.tensor([0, 1, 4, 4, 9])
    for rows in (2, 5):
        state = tokens(4, rows, seed=4)
        ours = short_conv(x, weight, state, cuts, True)
        for a, b in zip(ours, portable_conv(x, weight, state, cuts, True), strict=True):
            torch.testing.assert_close(a, b)
    state = tokens(1, 5, seed=4)
    ours, theirs = (way(x, weight, state, None, True) for way in (short_conv, portable_conv))
    torch.testing.assert_close(ours, theirs)


# ---- Models --------------------------------------------------------------------------------------


def model(recipes: Any = ("gated_deltanet", "softmax")) -> LanguageModel:
    torch.manual_seed(0)
    return LanguageModel(list(recipes), 11, hidden_size=8, num_heads=2, num_layers=2).double()


def text(batch: int = len(MASK), count: int = MASK.shape[1]) -> Tensor:
    return torch.randint(0, 11, (batch, count), generator=torch.Generator().manual_seed(3))


@torch.no_grad()
def test_models_and_blocks() -> None:
    small, words = model(), text()
    logits = small(words, attention_mask=MASK)
    for row, real in enumerate(MASK.bool()):
        close(logits[row, real], small(words[row : row + 1, real])[0], "softmax")
    assert not logits[MASK == 0].any()
    block = Block(layer("rls")).double()
    x = padded()
    y = block(x, attention_mask=MASK)
    close(y, alone(block, x), "rls")
    assert not y[MASK == 0].any()


def test_the_loss_is_of_real_tokens() -> None:
    small, words = model(), text()
    losses, counts = [], []
    for row, real in enumerate(MASK.bool()):
        if real.sum() > 1:
            losses.append(small.loss(words[row : row + 1, real]))
            counts.append(int(real.sum()) - 1)
    weights = torch.tensor(counts, dtype=torch.float64)
    want = (torch.stack(losses) * weights).sum() / weights.sum()
    torch.testing.assert_close(small.loss(words, attention_mask=MASK), want)
    torch.testing.assert_close(
        small.loss(words[:2], lengths=torch.tensor([7, 7])), small.loss(words[:2])
    )
    with pytest.raises(ValueError, match=r"must be of two tokens in some row but is \[1, 0\]"):
        small.loss(words[:2], lengths=torch.tensor([1, 0]))


def test_padded_prompts_go_on_as_they_do_alone() -> None:
    small, words = model(("gated_deltanet", "rls")), text()
    keep = MASK.any(1)
    told = small.generate(words[keep], 4, temperature=0, attention_mask=MASK[keep])
    for row, real in enumerate(MASK[keep].bool()):
        want = small.generate(words[keep][row : row + 1, real], 4, temperature=0)
        assert torch.equal(told[row, -4:], want[0, -4:])
    right = small.generate(words[:2], 4, temperature=0, lengths=torch.tensor([3, 7]))
    assert torch.equal(right[:1, -4:], small.generate(words[:1, :3], 4, temperature=0)[:, -4:])
    with pytest.raises(ValueError, match="of a token in every row"):
        small.generate(words, 1, attention_mask=MASK)


def test_bad_masks() -> None:
    one, x = layer("rls", design=Design()), tokens()
    assert torch.equal(one(x[:1], cu_seqlens=[0, 3, 7]), one(x[:1], cu_seqlens=torch.tensor([0, 3, 7])))
    for bad in ([], [0], [0.0, 7.0], torch.tensor([[0, 7]]), torch.tensor([0, 7], dtype=torch.int16)):
        for module in (one, Block(one)):
            with pytest.raises(ValueError, match=r"cu_seqlens must be \[N\+1\] of int32 or int64, N >= 1, but is"):
                module(x[:1], cu_seqlens=bad)
    ones = torch.ones(2, 7, dtype=torch.long)
    with pytest.raises(ValueError, match=r"attention_mask must be \[B,T\] = \[2,7\] but is \[2, 6\]"):
        one(x, attention_mask=ones[:, 1:])
    with pytest.raises(ValueError, match="attention_mask must be of bool, .* but is torch.float32"):
        one(x, attention_mask=ones.float())
    with pytest.raises(ValueError, match=r"attention_mask must be of 0 and 1 but is of 1 .. 2"):
        one(x, attention_mask=ones + torch.eye(2, 7, dtype=torch.long))
    with pytest.raises(ValueError, match="lengths must be absent where an attention_mask is given"):
        one(x, attention_mask=ones, lengths=torch.tensor([7, 7]))
    with pytest.raises(ValueError, match=r"lengths must be in 0 .. T = 7 but is \[8, 1\]"):
        one(x, lengths=torch.tensor([8, 1]))
    with pytest.raises(ValueError, match=r"lengths must be whole numbers \[B\] = \[2\] but is .*\[3\]"):
        one(x, lengths=torch.tensor([1, 2, 3]))
    with pytest.raises(ValueError, match="cu_seqlens must be absent where padding is given"):
        one(x[:1], attention_mask=ones[:1], cu_seqlens=torch.tensor([0, 7]))
    assert x.shape[-1] == HIDDEN
