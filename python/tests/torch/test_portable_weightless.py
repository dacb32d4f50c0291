"""A factor of exactly 0 takes nothing on the portable road, as in the engines."""

from __future__ import annotations

import math

import pytest
import torch
import torch_cases as cases
import torch_oracle as oracle
from torch_cases import Sizes
from ttr.torch.portable import regress

SIZES = Sizes(tokens=70, heads=4, query_heads=4, key_heads=2, value_heads=4, key_dim=4)
TOKENS = [1, 30, 31, 69]

#: A recipe, a factor, and the rows that it weighs.
CASES = [
    ("deltanet", "step", ["k", "v"]),
    ("gated_deltanet", "step", ["k", "v"]),
    ("kda", "step", ["k", "v"]),
    ("comba", "step", ["k", "v", "erase_key"]),
    ("gated_deltanet2{step: input}", "step", ["k", "v", "erase_gate"]),
    ("longhorn", "step", ["k", "v"]),
    ("efla", "step", ["k", "v"]),
    ("leaky_lms", "step", ["k", "v", "weight_decay"]),
    ("delta_product", "step", ["k", "v"]),
    ("momentum_deltanet", "step", ["k", "v"]),
    ("preconditioned_deltanet", "step", ["k", "v"]),
    ("rwkv7", "erase_gate", ["erase_key"]),
    ("linear_attention{importance: input, features: elu1}", "importance", ["k", "v"]),
    ("mlstm", "log_importance", ["k", "v"]),
    ("hgrn2", "log_decay", ["v"]),
    ("hgrn", "log_decay", ["v"]),
    ("lru{importance: root_complement}", "log_decay", ["v"]),
    ("mamba{importance: input}", "importance", ["k", "v"]),
    ("weighted_rls", "importance", ["k", "v"]),
    ("mesa", "importance", ["k", "v"]),
    ("kalmanet{importance: input}", "importance", ["k", "v"]),
    ("softmax{importance: log}", "log_importance", ["k", "v"]),
    ("kernel_ridge{importance: input}", "importance", ["k", "v"]),
    ("local_linear{importance: input}", "importance", ["k", "v"]),
    ("ttt_linear", "step", ["k", "v"]),
    ("titans", "step", ["k", "v"]),
    ("lact", "step", ["k", "v"]),
]


def spoil(
    inputs: dict[str, torch.Tensor], factor: str, rows: list[str], heads: int, value: float
) -> dict[str, torch.Tensor]:
    """The factor takes nothing in the first heads; what it weighs is the value."""
    inputs = {name: x.clone() for name, x in inputs.items()}
    steps = inputs[factor].shape[1] // SIZES.tokens
    at = [t * steps + j for t in TOKENS for j in range(steps)]
    inputs[factor][:, at, :heads] = -math.inf if factor == "log_importance" else 0
    for name in rows:
        inputs[name][:, at] = value
    return inputs


def sizes_of(recipe: str) -> Sizes:
    square = recipe.startswith(("ttt", "hgrn", "lru", "in_place"))
    heads = 4 if recipe.startswith(("hgrn", "lru")) else 2
    return Sizes(**{**vars(SIZES), "key_heads": heads, "value_dim": 4 if square else 3})


@pytest.mark.parametrize("recipe, factor, rows", CASES)
@pytest.mark.parametrize("heads", [4, 1])
def test_rows_count_as_zeros(recipe: str, factor: str, rows: list[str], heads: int) -> None:
    inputs = cases.inputs(recipe, sizes_of(recipe))
    want, _ = oracle.definition(recipe, spoil(inputs, factor, rows, heads, math.nan), {})
    got = regress(recipe, **spoil(inputs, factor, rows, heads, math.nan))
    assert isinstance(got, torch.Tensor)
    assert want[:, :, :heads].isfinite().all()
    torch.testing.assert_close(got[:, :, :heads], want[:, :, :heads], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("recipe, factor, rows", CASES)
def test_gradients_are_those_of_zeros(recipe: str, factor: str, rows: list[str]) -> None:
    inputs = cases.inputs(recipe, sizes_of(recipe))
    found = []
    for value in (0, math.inf):
        leaves = spoil(inputs, factor, rows, 4, value)
        for x in leaves.values():
            x.requires_grad_()
        y = regress(recipe, **leaves)
        assert isinstance(y, torch.Tensor)
        y.square().sum().backward()
        found.append({name: x.grad for name, x in leaves.items()})
    for name, zeros in found[0].items():
        if name == "erase_key" and recipe == "comba":  # queries read it, a zero alone with a slope
            continue
        torch.testing.assert_close(found[1][name], zeros, rtol=1e-9, atol=1e-9, msg=name)


@pytest.mark.parametrize("recipe", ["softmax{importance: log}", "local_linear{importance: input}"])
def test_pairs_of_a_state_that_weigh_nothing(recipe: str) -> None:
    factor = "log_importance" if "log" in recipe else "importance"
    inputs = spoil(cases.inputs(recipe, sizes_of(recipe)), factor, ["k", "v"], 4, math.nan)
    _, state = oracle.definition(recipe, inputs, {})
    more = cases.inputs(recipe, sizes_of(recipe), seed=1)
    want, _ = oracle.definition(recipe, more, state)
    got = regress(recipe, **more, state=state)
    assert isinstance(got, torch.Tensor) and want.isfinite().all()
    torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("recipe, factor, rows", CASES[:2])
def test_a_compiled_call_does_not_look(recipe: str, factor: str, rows: list[str]) -> None:
    inputs = spoil(cases.inputs(recipe, sizes_of(recipe)), factor, rows, 4, math.nan)
    compiled = torch.compile(lambda given: regress(recipe, **given), backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(inputs), regress(recipe, **inputs))
