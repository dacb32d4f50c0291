"""`ttr.torch.nn.Block` and `LanguageModel`, and what stands around a memory on other devices."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import ttr.torch
from nn_cases import layer, tokens
from ttr.torch import _layer_bench
from ttr.torch.nn import Block, Design, LanguageModel, TestTimeRegression, _around


def model(recipes: object = "gated_deltanet", seed: int = 0, layers: int = 2) -> LanguageModel:
    torch.manual_seed(seed)
    return LanguageModel(recipes, 11, hidden_size=8, num_heads=2, num_layers=layers).double()


def text(batch: int = 2, count: int = 9) -> torch.Tensor:
    return torch.randint(0, 11, (batch, count), generator=torch.Generator().manual_seed(3))


def test_a_language_model_learns_a_text_by_heart() -> None:
    small, words = model(["rls", "gated_deltanet"]), text(1, 24)
    optimizer = torch.optim.AdamW(small.parameters(), lr=1e-2)
    losses = []
    for _ in range(60):
        loss = small.loss(words)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] > 1.5 and losses[-1] < 0.3
    told = small.generate(words[:, :6], 18, temperature=0)
    assert (told == words).double().mean() > 0.8


@pytest.mark.parametrize("recipes", ["gated_deltanet", ["softmax", "rls"], "mamba2"])
def test_generation_is_the_whole_read_again(recipes: object) -> None:
    small, words = model(recipes), text()
    told = small.generate(words, 5, temperature=0)
    again = words
    for _ in range(5):
        again = torch.cat([again, small(again)[:, -1:].argmax(-1)], 1)
    assert torch.equal(told, again) and told.shape == (2, 14)
    draws = [small.generate(words, 5, generator=torch.Generator().manual_seed(4)) for _ in range(2)]
    assert torch.equal(draws[0], draws[1])


def test_the_head_is_the_embedding() -> None:
    small = model()
    assert not any("head" in name for name, _ in small.named_parameters())
    other = model(seed=1)
    other.load_state_dict(small.state_dict())
    assert torch.equal(other(text()), small(text()))
    assert torch.equal(copy.deepcopy(small)(text()), small(text()))


def test_a_design_is_around_every_memory() -> None:
    design = Design(output_norm="layer")
    made = LanguageModel(
        ["deltanet", "softmax"], 11, hidden_size=8, num_heads=2, num_layers=3, design=design
    )
    assert [block.layer.design for block in made.blocks] == [design] * 3  # type: ignore[union-attr]
    assert made(torch.tensor([[1, 2, 3]])).shape == (1, 3, 11)


def test_one_graph_under_compile() -> None:
    small, words = model(), text()
    torch._dynamo.reset()
    compiled = torch.compile(small, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(words), small(words), rtol=1e-9, atol=1e-9)


def test_a_block_without_mlp() -> None:
    inner, x = layer("rls"), tokens()
    block = Block(inner, mlp_ratio=0).double()
    assert torch.equal(block(x), x + inner(block.norm(x)))


def test_bad_calls() -> None:
    small = model()
    with pytest.raises(ValueError, match="caches must be 2, one a block, but is 1"):
        small(text(), caches=small.new_caches()[:1])
    with pytest.raises(ValueError, match="cache must be one that"):
        small(text(), caches=small.new_caches()[::-1])
    with pytest.raises(ValueError, match="num_layers must be at least 1"):
        model(layers=0)
    with pytest.raises(ValueError, match=r"tokens must be \[B,T\], T >= 1, but is \[2, 0\]"):
        small.generate(text(count=0), 1)
    for temperature in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="temperature must be finite and >= 0 but is"):
            small.generate(text(), 1, temperature=temperature)
    for away in (20, -20):
        with pytest.raises(ValueError, match=r"tokens must be in 0 .. \d+, the vocabulary, but is in "):
            small(text() + away)
    with pytest.raises(ValueError, match="count must be at least 0 but is -1"):
        small.generate(text(), -1)
    for tokens_given in (text()[:, :1], text()[:0]):
        with pytest.raises(ValueError, match=r"tokens must be \[B,T\], B >= 1, T >= 2, but is"):
            small.loss(tokens_given)
    sizes: dict[str, Any] = {"hidden_size": 8, "num_heads": 2, "num_layers": 1}
    for name, bad in (("hidden_size", 0), ("num_layers", 1.5), ("mlp_ratio", -1.0)):
        with pytest.raises(ValueError, match=rf"\[(LanguageModel|Block)\] {name} must be .* but is {bad}"):
            LanguageModel("rls", 8, **{**sizes, name: bad})
    with pytest.raises(ValueError, match="vocabulary must be at least 1 but is 0"):
        LanguageModel("rls", 0, **sizes)
    with pytest.raises(ValueError, match=r"recipes must be a recipe, .* but is \[\]"):
        LanguageModel([], 8, **sizes)
    with pytest.raises(ValueError, match="recipes must be causal, .* but is .*causal: false"):
        LanguageModel("intention", 8, hidden_size=8, num_heads=2, num_layers=1)


def test_a_cache_in_a_call_that_wants_gradients_is_refused() -> None:
    small = model()
    with pytest.raises(RuntimeError, match=r"x must not require gradients .* use torch.no_grad\(\), or"):
        small(text(), caches=small.new_caches())
    with torch.no_grad():
        small(text(), caches=small.new_caches())


def test_a_cache_is_refused_where_a_parameter_alone_wants_gradients() -> None:
    """Also of a gate, a convolution, a learned start."""
    module, x = layer("ttt_linear"), tokens()
    module.requires_grad_(False)
    cache = module.new_cache()
    module(x, cache=cache)
    for name, parameter in module.named_parameters():
        parameter.requires_grad_()
        with pytest.raises(RuntimeError, match=f"{name} must not require gradients where a cache"):
            module(x, cache=cache)
        parameter.requires_grad_(False)
    assert cache.tokens == x.shape[1]


def test_other_devices_have_the_same_numbers() -> None:
    """Where there are no operators of the library, PyTorch's own stand around a memory."""
    x, weight = tokens(1, 9), tokens(1, 8, hidden=3)[0]
    state = tokens(1, 2, seed=4)
    for silu in (False, True):
        ours = _around.short_conv(x, weight, state, None, silu)
        theirs = _around.portable_conv(x, weight, state, None, silu)
        for a, b in zip(ours, theirs):
            torch.testing.assert_close(a, b)
    cuts = torch.tensor([0, 1, 4, 4, 9])
    ours, _ = _around.short_conv(x, weight, None, cuts, False)
    theirs, _ = _around.portable_conv(x, weight, None, cuts, False)
    torch.testing.assert_close(ours, theirs)
    rows, gate = tokens(2, 14).view(2, 7, 4, 4), tokens(2, 14, seed=6).view(2, 7, 4, 4)
    scale = tokens(1, 1, hidden=4)[0, 0]
    for kind in ("l2", "rms", "layer"):
        for gate_kind in ("silu", "sigmoid"):
            for first in (False, True):
                a = _around.norm(rows, scale, gate, kind, gate_kind, first)
                b = _around.portable_norm(rows, scale, gate, kind, gate_kind, first)
                torch.testing.assert_close(a, b)


def test_the_layer_that_the_bench_compares_with_is_the_same() -> None:
    torch.manual_seed(0)
    made, x = TestTimeRegression("gated_deltanet", 16, 2), tokens(1, 64, hidden=16).float().requires_grad_()
    want = made(x)
    with _layer_bench.of_pytorch():
        found = made(x)
    torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-4)
    gradients = [torch.autograd.grad(y.square().sum(), x)[0] for y in (found, want)]
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-3)
