"""Where models begin, what optimizers are given, and losses in pieces."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import ttr
from nn_cases import layer, tokens
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from ttr.torch.nn import PUBLISHED, LanguageModel, _loss, parameter_groups, published


def model(recipe: str, design: Any = None, vocabulary: int = 11, layers: int = 2) -> LanguageModel:
    torch.manual_seed(0)
    return LanguageModel(
        recipe, vocabulary, hidden_size=8, num_heads=2, num_layers=layers, design=design
    ).double()


def text(batch: int = 2, count: int = 9) -> torch.Tensor:
    return torch.randint(0, 11, (batch, count), generator=torch.Generator().manual_seed(3))


# ---- State dictionaries of before ----------------------------------------------------------------

LATER = ["rls", "rls{ridge: 0.5}", "weighted_rls", "ttt_linear", "gateloop", "hgrn2", "lact", "in_place_ttt",
         "hgrn", "rg_lru"]  # fmt: skip


@pytest.mark.parametrize("recipe", ["softmax", "linear_attention", "retnet", "gla", "gated_deltanet", "mamba2", *LATER])
def test_a_model_of_before_is_what_it_was(recipe: str) -> None:
    """Without the convolution for positions, an output gate or its bias, a learned ridge."""
    now = published(recipe)
    late: dict[str, Any] = {} if now.silu and recipe not in ("hgrn", "hgrn2", "lact") else {"conv_size": 0}
    if recipe == "rg_lru":
        late = {"convolved": "v", "output_gate": None}
    learn = tuple(name for name in now.learn if name != "ridge")
    gates = {name: gate for name, gate in now.gates.items() if name != "ridge"}
    before = model(recipe, replace(now, gate_bias=False, learn=learn, gates=gates, **late))
    with torch.no_grad():
        for parameter in before.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    after = model(recipe)
    assert set(before.state_dict()) < set(after.state_dict())
    after.load_state_dict(before.state_dict())
    torch.testing.assert_close(after(text()), before(text()), rtol=1e-12, atol=1e-12)


def test_a_mamba_of_before_says_that_it_has_no_norm() -> None:
    """SiLU on q and k and a norm change what is computed: with the design of before it is what it was."""
    then = replace(published("mamba"), silu="v", output_norm=None, gate_first=False)
    before = model("mamba", replace(then, convolved="v", gate_bias=False))
    with pytest.raises(RuntimeError, match="Missing key.*norm_weight"):
        model("mamba").load_state_dict(before.state_dict())
    after = model("mamba", then)
    after.load_state_dict(before.state_dict())
    torch.testing.assert_close(after(text()), before(text()), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["convolve.q.weight", "gate.weight", "output.weight", "norm_weight"])
def test_a_file_that_misses_other_tensors_is_refused(name: str) -> None:
    made = model("retnet")
    state = {n: t for n, t in made.state_dict().items() if n != f"blocks.1.layer.{name}"}
    with pytest.raises(RuntimeError, match=f"Missing key.*{name}"):
        made.load_state_dict(state)


# ---- The start -----------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", [n for n, design in PUBLISHED.items() if design.output_gate])
def test_output_gates_begin_as_constants(recipe: str) -> None:
    gate = layer(recipe).gate
    z = gate(tokens())
    factor = F.silu(z) if PUBLISHED[recipe].output_gate == "silu" else 2 * z.sigmoid()
    torch.testing.assert_close(factor, torch.ones_like(factor), rtol=1e-6, atol=1e-6)


def test_blocks_begin_below_what_they_read() -> None:
    made = model("gated_deltanet", layers=4)
    x = made.embedding(text())
    first = x
    for block in made.blocks:
        x = block(x)
    assert 0 < (x - first).square().mean() < 0.5 * first.square().mean()


@pytest.mark.parametrize(("recipe", "start"), [("rls", 0.1), ("rls{ridge: 0.5}", 0.5), ("mesa", 1.0)])
def test_ridges_begin_where_keys_are_averaged(recipe: str, start: float) -> None:
    """Also of recipes without a row, and of a recipe's line."""
    for same in (recipe, str(ttr.Recipe(recipe))):
        ridge = layer(same).inputs(tokens())["ridge"]
        torch.testing.assert_close(ridge, torch.full_like(ridge, start), rtol=1e-5, atol=0)
        assert ridge.requires_grad
    assert "ridge" in layer("affine_rls").gates and "ridge" not in layer("local_linear").gates


@pytest.mark.parametrize(
    "recipe", ["gated_deltanet", "kda", "weighted_rls", "mamba2", "mesa", "mlstm", "gateloop", "hgrn", "hgrn2", "rg_lru"]
)
def test_memories_begin_long(recipe: str) -> None:
    """Of what stood 16 tokens before, enough is left to learn from. From a half a token, or A up to 16, none is."""
    log_decay = layer(recipe, hidden_size=64, num_heads=16).inputs(torch.zeros(1, 2, 64).double())["log_decay"]
    assert (16 * log_decay).exp().min() > 0.15


@pytest.mark.parametrize(("recipe", "name"), [("gateloop", "phase"), ("mlstm", "log_importance"), ("mlstm", "log_decay")])
def test_gates_begin_flat(recipe: str, name: str) -> None:
    value = layer(recipe).inputs(tokens())[name]
    torch.testing.assert_close(value, value[:1, :1].expand_as(value), rtol=0, atol=0)
    assert name == "log_decay" or not value.any()


def test_nlms_has_keys_of_every_size() -> None:
    inputs = layer("nlms").inputs(tokens())
    sizes = inputs["k"].norm(dim=-1)
    assert sizes.max() > 1.5 * sizes.min()


# ---- Groups --------------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", ["gated_deltanet", "mamba2", "mesa", "ttt_linear", "rwkv7"])
def test_only_matrices_decay(recipe: str) -> None:
    made = model(recipe)
    names = {id(p): n for n, p in made.named_parameters()}
    decayed, kept = ([names[id(p)] for p in g["params"]] for g in parameter_groups(made, 0.3))
    assert sorted([*decayed, *kept]) == sorted(names.values())
    assert all(n.endswith("weight") for n in decayed)
    assert {"embedding.weight", "blocks.0.layer.project.v.weight", "blocks.1.mlp.up.weight"} <= set(decayed)
    assert not any(word in n for n in decayed for word in ("norm", "bias", "gates", "start", "skip"))
    assert all(n in kept for n in names.values() if ".gates." in n)
    assert [g["weight_decay"] for g in parameter_groups(made, 0.3)] == [0.3, 0.0]


def test_what_does_not_learn_is_in_no_group() -> None:
    made = model("rls")
    made.embedding.requires_grad_(False)
    groups = parameter_groups(made)
    assert not any(p is made.embedding.weight for g in groups for p in g["params"])
    assert [len(g["params"]) for g in parameter_groups(nn.Linear(2, 3, bias=False))] == [1]
    with pytest.raises(ValueError, match="model must be one with parameters that require gradients"):
        parameter_groups(made.requires_grad_(False))
    for bad in (-0.1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="weight_decay must be finite and >= 0 but is"):
            parameter_groups(model("rls"), bad)


# ---- Losses --------------------------------------------------------------------------------------


class Largest(TorchDispatchMode):
    """The numbers of the largest tensor that is made."""

    numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for one in made if isinstance(made, (tuple, list)) else (made,):
            if isinstance(one, torch.Tensor):
                self.numbers = max(self.numbers, one.numel())
        return made


def losses(made: LanguageModel, words: dict[str, Any]) -> tuple[torch.Tensor, list[torch.Tensor], int]:
    made.zero_grad()
    with Largest() as largest:
        loss = made.loss(text(3, 40), **words)
        loss.backward()
    return loss.detach(), [p.grad.clone() for p in made.parameters() if p.grad is not None], largest.numbers


@pytest.mark.parametrize("words", [{}, {"lengths": torch.tensor([40, 7, 23])}])
@pytest.mark.parametrize("tied", [True, False])
def test_logits_in_pieces_are_the_whole(
    words: dict[str, Any], tied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    made = LanguageModel(
        "rls", 700, hidden_size=8, num_heads=2, num_layers=1, tied=tied
    ).double()
    want, gradients, most = losses(made, words)
    assert most >= 67 * 700
    monkeypatch.setattr(_loss, "MOST_LOGITS", 7000)
    found, others, most = losses(made, words)
    assert most <= 7000
    torch.testing.assert_close(found, want, rtol=1e-12, atol=0)
    assert len(gradients) == len(others) == len(list(made.parameters()))
    for a, b in zip(gradients, others):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_a_row_of_logits_may_be_more_than_a_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_loss, "MOST_LOGITS", 5)
    features, weight = tokens(1, 4)[0], tokens(1, 11, seed=2)[0]
    targets = torch.tensor([1, 10, 0, 3])
    want = F.cross_entropy(features @ weight.T, targets)
    found = _loss.cross_entropy(features, lambda f: f @ weight.T, 11, targets)
    torch.testing.assert_close(found, want)
    narrow = _loss.cross_entropy(features.bfloat16(), lambda f: f @ weight.T.bfloat16(), 11, targets)
    assert narrow.dtype == torch.bfloat16
    torch.testing.assert_close(narrow.double(), want, rtol=3e-2, atol=0)
