"""The portable forms against the definition: outputs, states, gradients."""

from __future__ import annotations

import re

import pytest
import torch
import torch_cases as cases
import torch_oracle as oracle
import ttr
from portable_cases import ALL, SHAPES
from torch_cases import Sizes
from ttr.torch.portable import least_squares, regress


def close(got: torch.Tensor, want: torch.Tensor, what: str, tolerance: float = 1e-10) -> None:
    """Every token and head within `tolerance` of the largest number of its own or, if smaller,
    1."""
    assert got.shape == want.shape, what
    torch.testing.assert_close(
        got.double(), want.double(), rtol=tolerance, atol=tolerance, msg=lambda m: f"{what}: {m}"
    )


def run_both(recipe: str, sizes: Sizes, with_state: bool) -> None:
    inputs = cases.inputs(recipe, sizes)
    state = cases.state(recipe, sizes) if with_state else {}
    want, last = oracle.definition(recipe, inputs, state)
    y, final = regress(recipe, **inputs, state=state, return_state=True)
    close(y, want, "y")
    assert set(final) == set(last)
    last = cases.without_padding(last)
    for name, tensor in cases.without_padding(final).items():
        close(tensor, last[name], name)


@pytest.mark.parametrize("recipe", ALL)
@pytest.mark.parametrize("shape", SHAPES)
def test_agrees_with_the_definition(recipe: str, shape: str) -> None:
    run_both(recipe, SHAPES[shape], with_state=False)


@pytest.mark.parametrize(
    "recipe",
    [name for name in ALL if "intention" not in name and not re.search("causal: ?false", name)],
)
@pytest.mark.parametrize("shape", ["plain", "chunks", "packed"])
def test_goes_on_from_a_state(recipe: str, shape: str) -> None:
    run_both(recipe, SHAPES[shape], with_state=True)


#: Solvers whose gradient is that of the converged problem, taken far enough to be converged.
_LONG = "steps: 300}"
_CG = "mesa{optimizer: conjugate_gradient, steps: 60"
CONVERGED = {
    "kalmanet": "kalmanet{" + _LONG,
    "kalmanet{ridge_kind:constant,steps:6}": "kalmanet{ridge_kind: constant, ridge: 0.3, " + _LONG,
    "kalmanet{ridge_kind:fading,ridge:0.3,steps:6}": "kalmanet{ridge_kind: fading, ridge: 0.3, "
    + _LONG,
    "kalmanet{steps:1}": "kalmanet{ridge: 0.5, " + _LONG,
    "mesa{optimizer:conjugate_gradient,steps:2}": _CG + "}",
    "mesa{optimizer:conjugate_gradient,steps:3,preconditioner:diagonal}": _CG
    + ", preconditioner: diagonal}",
    "kernel_gd{optimizer: conjugate_gradient, steps: 3, importance: input}": "kernel_gd{"
    "optimizer: conjugate_gradient, steps: 60, importance: input, ridge: 0.3}",
}
SMALL = Sizes(
    batch=1, tokens=6, query_heads=4, key_heads=1, value_heads=2, heads=2, key_dim=3, value_dim=2
)


def leaves(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {
        name: x.clone().requires_grad_() for name, x in tensors.items() if x.is_floating_point()
    }


def as_function(recipe: str, inputs: dict[str, torch.Tensor], state: dict[str, torch.Tensor]):
    """The call as a function of a flat list of tensors, for gradcheck: y and the final state."""
    counts = {name: x for name, x in state.items() if not x.is_floating_point()}
    state = leaves(state)
    names = [*inputs, *state]

    def call(*tensors: torch.Tensor):
        given = dict(zip(names, tensors))
        held = counts | {name: given.pop(name) for name in state}
        y, final = regress(recipe, **given, state=held, return_state=True)
        return (y, *(x for x in final.values() if x.is_floating_point()))

    return call, [*inputs.values(), *state.values()]


@pytest.mark.parametrize("recipe", ALL)
def test_gradients_are_those_of_differences(recipe: str) -> None:
    recipe = CONVERGED.get(recipe, recipe)
    inputs = leaves(cases.inputs(recipe, SMALL))
    causal = "intention" not in recipe and not re.search("causal: ?false", recipe)
    call, tensors = as_function(recipe, inputs, cases.state(recipe, SMALL) if causal else {})
    assert torch.autograd.gradcheck(call, tensors, fast_mode=True, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    "recipe",
    [
        "gated_deltanet",
        "kda",
        "rwkv7",
        "delta_product",
        "gateloop",
        "mlstm",
        "momentum_deltanet",
        "leaky_lms",
        "weighted_rls",
        "mesa",
        "kalmanet",
        "batch_gd",
        "mamba",
        "lru",
        "ttt_linear",
        "ttt_mlp{read: before}",
        "titans",
        "titans{mini_batch: 80, read: before}",
        "titans{mini_batch: 7, read: batch_end, weight_decay: coupled, norm: true, bias: true}",
        "titans{adapt: adam, eps: 0.1, curvature_decay: 0.9}",
        "titans{adapt: adagrad, eps: 0.1, momentum: false}",
        "lact{mini_batch: 33, row_factor: inverse}",
        "in_place_ttt{mini_batch: 80, read: after}",
        "softmax",
        "softmax{kernel: triweight, bandwidth: 2, window: 20, importance: input, decay: scalar}",
        "kernel_smoother{kernel: gaussian, bandwidth: 0.5, importance: log}",
        "local_linear{importance: input, decay: scalar}",
        "local_quadratic{kernel: laplace, bandwidth: 1, window: 40}",
        "kernel_ridge{importance: input}",
    ],
)
def test_gradients_over_chunks_agree_with_the_engine(recipe: str) -> None:
    """Over more than one chunk, and through the final state."""
    sizes = Sizes(batch=1, tokens=90, key_heads=1, key_dim=4, value_dim=3)
    inputs, start = leaves(cases.inputs(recipe, sizes)), cases.state(recipe, sizes)
    state = start | leaves(start)
    y, final = regress(recipe, **inputs, state=state, return_state=True)
    generator = torch.Generator().manual_seed(3)
    final = {name: x for name, x in final.items() if x.is_floating_point()}
    weights = [
        torch.randn(x.shape, generator=generator, dtype=x.dtype) for x in (y, *final.values())
    ]
    want = oracle.gradients(recipe, inputs, state, weights[0], dict(zip(final, weights[1:])))
    wanted = {name: x for name, x in (inputs | state).items() if x.requires_grad}
    got = torch.autograd.grad(
        [y, *final.values()], list(wanted.values()), weights, allow_unused=True
    )
    for (name, x), gradient in zip(wanted.items(), got):
        gradient = torch.zeros_like(x) if gradient is None else gradient
        close(gradient, want[name], f"d{name}", tolerance=1e-9)


@pytest.mark.parametrize("recipe", ["rls", "mesa{read: before}", "affine_rls"])
@pytest.mark.parametrize("shape", ["plain", "grouped values", "many queries", "packed"])
def test_memories_are_taken_together_or_in_parts(
    recipe: str, shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Least squares of some sequences and heads at a time: outputs, states and gradients."""
    sizes = SHAPES[shape]
    state = cases.state(recipe, sizes)

    def results() -> list[torch.Tensor]:
        inputs = leaves(cases.inputs(recipe, sizes)) | {
            n: x for n, x in cases.inputs(recipe, sizes).items() if not x.is_floating_point()
        }
        held = leaves(state)
        y, final = regress(recipe, **inputs, state=held, return_state=True)
        made = [y, *final.values()]
        wanted = [x for x in (*inputs.values(), *held.values()) if x.requires_grad]
        weights = [x.detach() + 1 for x in made]
        found = torch.autograd.grad(made, wanted, weights, allow_unused=True)  # a state has its ridge
        return [*made, *(x for x in found if x is not None)]

    together = results()
    taken: list[tuple[int, int]] = []
    parts = least_squares._parts
    monkeypatch.setitem(least_squares._TOGETHER, "cpu", 16)
    monkeypatch.setattr(least_squares, "_parts", lambda call: taken.append(parts(call)) or taken[-1])
    for got, want in zip(results(), together):
        close(got, want, "a part", tolerance=1e-9)
    assert taken[0] == {"plain": (2, 2), "grouped values": (2, 1), "many queries": (2, 1), "packed": (1, 2)}[shape]


def test_every_recipe_of_the_zoo_is_among_these() -> None:
    assert set(ttr.zoo()) <= {recipe.partition("{")[0] for recipe in ALL}
