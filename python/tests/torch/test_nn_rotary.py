"""Rotary positions of a design: what they are, and that caches, packing and padding keep them."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from nn_cases import layer, tokens
from torch import Tensor
from ttr.torch.nn import Design, LanguageModel, ModelConfig, TestTimeRegression, published
from ttr.torch.nn._rotary import rotate

DESIGN = Design(rotary=100.0, qk_norm="l2", conv_size=3, convolved="v")
NAMES = ["softmax", "gated_deltanet", "rls"]


def turned(recipe: str) -> TestTimeRegression:
    return layer(recipe, design=DESIGN)


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)


def test_they_are_those_of_transformers() -> None:
    llama = pytest.importorskip("transformers.models.llama.modeling_llama", reason="compares with it")
    config = llama.LlamaConfig(
        hidden_size=16, num_attention_heads=2, rope_parameters={"rope_type": "default", "rope_theta": 500.0}
    )
    rows, places = tokens(2, 7, hidden=16).view(2, 7, 2, 8), torch.arange(3, 10)[None]
    cos, sin = llama.LlamaRotaryEmbedding(config)(rows, places)
    want, _ = llama.apply_rotary_pos_emb(rows, rows, cos, sin, unsqueeze_dim=2)
    torch.testing.assert_close(rotate(rows, places, 500.0), want, rtol=1e-5, atol=1e-5)  # theirs: float32
    narrow = rotate(rows.bfloat16(), places, 500.0)
    assert narrow.dtype == torch.bfloat16
    torch.testing.assert_close(narrow.double(), want, rtol=2e-2, atol=2e-2)


def test_products_are_of_distances() -> None:
    q, k = tokens(1, 1, 2).view(1, 1, 2, 4), tokens(1, 1, 3).view(1, 1, 2, 4)

    def product(t: int, s: int) -> Tensor:
        return (rotate(q, torch.tensor([[t]]), 100.0) * rotate(k, torch.tensor([[s]]), 100.0)).sum(-1)

    close(product(11, 4), product(7, 0))
    assert (product(11, 4) - product(11, 5)).abs().max() > 1e-3
    module, x = turned("softmax"), tokens()
    inputs = module.inputs(x)
    plain = layer("softmax", design=Design(qk_norm="l2", conv_size=3, convolved="v")).inputs(x)
    close(inputs["k"].norm(dim=-1), plain["k"].norm(dim=-1))
    close(inputs["q"][:, :1], plain["q"][:, :1])
    assert (inputs["q"][:, 1:] - plain["q"][:, 1:]).abs().max() > 1e-2


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_caches_count_each_row(name: str) -> None:
    """Padding in the prompt, rows in another order, and tokens taken back."""
    module, x = turned(name), tokens(2, 8)
    mask = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 0]])
    cache = module.new_cache(draft=2)
    module(x[:, :5], cache=cache, attention_mask=mask)
    cache.reorder([1, 0, 1])
    rows = x[[1, 0, 1], 5:]
    module(rows[:, :1], cache=cache)
    module(rows[:, [2, 2]], cache=cache)
    cache.roll_back(2)
    copied = copy.deepcopy(cache)
    found = module(rows[:, 1:], cache=copied)
    for row, before in enumerate((x[1, 2:4], x[0, :5], x[1, 2:4])):
        want = module(torch.cat([before, rows[row]])[None])
        close(found[row], want[0, -2:])


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_packed_sequences_begin_at_zero(name: str) -> None:
    module, x = turned(name), tokens(1, 9)
    cuts = torch.tensor([0, 4, 4, 9])
    cache = module.new_cache()
    parts = [module(x[:, a:b]) for a, b in ((0, 4), (4, 9))]
    close(module(x, cu_seqlens=cuts), torch.cat(parts, 1))
    close(module(x, cache=cache, cu_seqlens=cuts), torch.cat(parts, 1))
    token = tokens(3, 1, seed=2)
    y = module(token, cache=cache)
    for row, (first, last) in enumerate(((0, 4), (4, 4), (4, 9))):
        close(y[row], module(torch.cat([x[:, first:last], token[row : row + 1]], 1))[0, -1:])


def test_a_model_has_them_by_a_word() -> None:
    attention = {"recipe": "softmax", "design": {"like": "softmax", "conv_size": 0, "rotary": 10000.0}}
    sizes = {"vocabulary": 11, "hidden_size": 8, "num_heads": 2, "num_layers": 2}
    config = ModelConfig.from_dict({"layers": ["rls", attention], **sizes})
    assert ModelConfig.from_dict(config.to_dict()).to_dict() == config.to_dict()
    assert config.layers[1].design == replace(published("softmax"), conv_size=0, rotary=10000.0)
    made = LanguageModel.from_config(config).double()
    assert "rotary positions, base 10000" in str(made)
    words = torch.randint(0, 11, (2, 9), generator=torch.Generator().manual_seed(3))
    torch._dynamo.reset()
    compiled = torch.compile(made, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(words), made(words), rtol=1e-9, atol=1e-9)
    told = again = words
    told = made.generate(words, 4, temperature=0)
    for _ in range(4):
        again = torch.cat([again, made(again)[:, -1:].argmax(-1)], 1)
    assert torch.equal(told, again)


@pytest.mark.parametrize("recipe", ["lru", "hgrn2", "delta_product"])
def test_what_cannot_turn(recipe: str) -> None:
    with pytest.raises(ValueError, match="design.rotary must be 0, as .* an even head_dim, one a token"):
        layer(recipe, design=Design(rotary=100.0))
    with pytest.raises(ValueError, match=r"design.rotary must be .* but is 100\.0"):
        layer("softmax", design=Design(rotary=100.0), head_dim=3)
    with pytest.raises(ValueError, match=r"design.rotary must be a finite base above 0, or 0: none, but is -1"):
        layer("softmax", design=Design(rotary=-1.0))
