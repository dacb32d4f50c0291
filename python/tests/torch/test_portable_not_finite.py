"""What is not finite stays with its sequence and with the tokens that depend on it, in every portable form."""

from __future__ import annotations

import re

import pytest
import torch
import torch_cases as cases
import torch_oracle as oracle
import ttr
from portable_cases import ALL
from torch import Tensor
from torch_cases import Sizes
from ttr.torch.portable import regress

TOKENS, AT = 12, 5
SIZES = Sizes(batch=2, tokens=TOKENS, key_dim=4, value_dim=4)


def first_reached(recipe: str) -> int:
    """The first token that may depend on AT."""
    if "intention" in recipe or re.search("causal: ?false", recipe):
        return 0
    if ttr.Recipe(recipe).option("read") != "batch_end":
        return AT
    size = int(ttr.Recipe(recipe).option("mini_batch"))
    return AT // size * size


def rows_of_tokens(recipe: str) -> list[str]:
    """Inputs that have a row for each token."""
    specs = ttr.input_specs(recipe)
    return [s["keyword"] for s in specs if s["shapes"][0][1:2] in (["T"], ["T n"]) and s["name"] != "cu_seqlens"]


def spoilt(inputs: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    """NaN in the first sequence, at a token of one head."""
    made = {n: x.clone() for n, x in inputs.items()}
    made[name].unflatten(1, (TOKENS, -1))[0, AT, :, 0] = torch.nan
    return made


@pytest.mark.parametrize("recipe", ALL)
def test_what_is_not_finite_stays_where_it_belongs(recipe: str) -> None:
    """Outputs, and gradients of outputs that do not depend on it; what the definition loses is lost."""
    inputs, first = cases.inputs(recipe, SIZES), first_reached(recipe)
    whole = regress(recipe, **inputs)
    for name in rows_of_tokens(recipe):
        given = spoilt(inputs, name)
        want, _ = oracle.definition(recipe, given, {})
        leaves = {n: x.requires_grad_() for n, x in given.items()}
        y = regress(recipe, **leaves)
        clean = y.isfinite()
        assert clean[1].all() and clean[0, :first].all(), name
        torch.testing.assert_close(y[clean], whole[clean], rtol=1e-8, atol=1e-8)
        assert not (want.isnan().any(-1) & clean.all(-1)).any(), name
        asked = torch.zeros_like(y)
        asked[1], asked[0, :first] = 1, 1
        gradients = torch.autograd.grad(y, list(leaves.values()), asked, allow_unused=True)
        for n, gradient in zip(leaves, gradients):
            assert gradient is None or gradient.isfinite().all(), (name, n)


@pytest.mark.parametrize(
    "recipe",
    [
        "gla", "mlstm", "gateloop", "linear_attention{features: relu, normalise_sum: sum}", "momentum_deltanet",
        "delta_product", "kda", "mamba", "hgrn", "lru", "rls", "mesa", "kalmanet", "ttt_linear{mini_batch: 4}",
        "titans", "softmax", "decayed_softmax", "window_softmax{window: 3}", "local_linear", "kernel_ridge", "kernel_rls",
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["v", "k", "log_decay"])
def test_a_state_keeps_what_is_not_finite(recipe: str, name: str) -> None:
    """Tokens that go on from it lose what they lose in one call."""
    inputs = cases.inputs(recipe, SIZES)
    if name not in inputs:
        return
    given = spoilt(inputs, name)
    whole = regress(recipe, **given)
    rows, pieces, state = rows_of_tokens(recipe), [], None
    for begin, end in ((0, AT + 2), (AT + 2, AT + 2), (AT + 2, TOKENS)):
        part = {n: x.unflatten(1, (TOKENS, -1))[:, begin:end].flatten(1, 2) if n in rows else x for n, x in given.items()}
        y, state = regress(recipe, **part, state=state, return_state=True)
        pieces.append(y)
    assert torch.equal(torch.cat(pieces, 1).isnan(), whole.isnan())


@pytest.mark.parametrize("recipe", ["gla", "gated_deltanet", "rls", "ttt_linear", "softmax", "local_linear", "hgrn"])
def test_a_gradient_of_what_is_lost_is_lost(recipe: str) -> None:
    given = spoilt(cases.inputs(recipe, SIZES), "v")
    leaves = {n: x.requires_grad_() for n, x in given.items()}
    gradient = torch.autograd.grad(regress(recipe, **leaves).sum(), leaves["v"])[0]
    assert gradient[0, :AT, 0].isnan().any() and gradient[1].isfinite().all()


def test_a_decay_of_zero_and_a_window_forget_what_is_not_finite() -> None:
    for recipe, last in (("gated_deltanet", 8), ("gla", 8), ("mesa", 8), ("window_softmax{window: 3}", AT + 3)):
        inputs = cases.inputs(recipe, SIZES)
        if "log_decay" in inputs:
            inputs["log_decay"][:, last] = -torch.inf
        y = regress(recipe, **spoilt(inputs, "k"))
        assert y[0, AT:last, 0].isnan().all() and y[0, last:].isfinite().all(), recipe
