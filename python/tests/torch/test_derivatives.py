"""Derivatives that layers do not have are refused with the way around, never 0 without a word."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import around_cases
import operator_cases as cases
import pytest
import torch
import ttr.torch as tt
from torch import Tensor
from torch.autograd import forward_ad
from ttr.torch import portable

#: PyTorch compiles rules of its own for forward mode, by what it calls deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
FORWARD = "derivatives are made in forward mode.*reverse mode"
TWICE = "gradients of gradients must not be asked for.*differences of first gradients"


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def by_query(recipe: str, call: Callable[..., Any] = tt.regress) -> Callable[[Tensor], Any]:
    inputs = cases.draw(recipe)
    return lambda q: call(recipe, **{**inputs, "q": q})


def refuses_tangents(call: Callable[[Tensor], Any], x: Tensor) -> None:
    one = torch.ones_like(x)
    with pytest.raises(RuntimeError, match=FORWARD):
        torch.func.jvp(call, (x,), (one,))
    with pytest.raises(RuntimeError, match=FORWARD):
        torch.func.jacfwd(call)(x)
    for grad in (False, True):
        with forward_ad.dual_level(), pytest.raises(RuntimeError, match=FORWARD):
            call(forward_ad.make_dual(x.clone().requires_grad_(grad), one))


@pytest.mark.parametrize("recipe", ["gated_deltanet", "rls", "softmax", "mamba"])
def test_a_tangent_is_refused(recipe: str) -> None:
    refuses_tangents(by_query(recipe), cases.draw(recipe)["q"])


@pytest.mark.parametrize("name", list(around_cases.CASES))
def test_a_tangent_around_a_memory_is_refused(name: str) -> None:
    call, _, tensors = around_cases.CASES[name]()
    for i, tensor in enumerate(tensors):
        refuses_tangents(lambda x: call(*tensors[:i], x, *tensors[i + 1 :]), tensor)


def test_a_tangent_of_a_state_and_of_a_token_is_refused() -> None:
    state = cases.reached("gated_deltanet")["state"]
    inputs = cases.draw("gated_deltanet")
    refuses_tangents(lambda s: tt.regress("gated_deltanet", **inputs, state={"state": s}), state)
    token = cases.draw("gated_deltanet", T=1)
    refuses_tangents(lambda s: tt.step_("gated_deltanet", {"state": s}, **token), state)
    refuses_tangents(lambda q: tt.Decoder("gated_deltanet").step(**{**token, "q": q}), token["q"])
    cache, w = numbers(1, 3, 2), numbers(2, 4)
    refuses_tangents(lambda x: tt.short_conv_(cache, x, w), numbers(1, 1, 2))


def test_a_tangent_below_other_transforms_is_refused() -> None:
    call, x = by_query("gated_deltanet"), cases.draw("gated_deltanet")["q"]
    many = torch.stack([x, x])
    with pytest.raises(RuntimeError, match=FORWARD):
        torch.func.jvp(torch.vmap(call), (many,), (many,))


def test_a_tangent_under_compile_is_refused() -> None:
    x = numbers(1, 2, 3, 4)
    for call in (
        lambda x: torch.func.jvp(torch.compile(tt.norm, backend="aot_eager"), (x,), (x,)),
        torch.compile(lambda x: torch.func.jvp(tt.norm, (x,), (x,)), backend="aot_eager"),
    ):
        torch._dynamo.reset()
        with pytest.raises(RuntimeError, match="(?s)forward mode"):
            call(x)


def test_what_has_no_tangent_is_taken_in_forward_mode() -> None:
    call, x = by_query("gated_deltanet"), cases.draw("gated_deltanet")["q"]
    y = call(x)
    primal, tangent = torch.func.jvp(lambda z: z * call(x).sum(), (x,), (x,))
    assert torch.equal(primal, tangent) and torch.equal(primal, x * y.sum())


@pytest.mark.parametrize("recipe", ["gated_deltanet", "mamba", "gla"])
def test_the_way_around_has_both(recipe: str) -> None:
    """The portable form in forward mode, and gradients of its gradients."""
    call, x = by_query(recipe, portable.regress), cases.draw(recipe)["q"]
    step = 1e-6 * torch.ones_like(x)
    _, tangent = torch.func.jvp(call, (x,), (step,))
    torch.testing.assert_close(tangent, (call(x + step) - call(x - step)) / 2, rtol=1e-6, atol=1e-12)
    q = x.detach().requires_grad_()

    def first(q: Tensor) -> Tensor:
        return torch.autograd.grad(call(q).pow(3).sum(), q, create_graph=True)[0]

    second = torch.autograd.grad((first(q) * step).sum(), q)[0]
    difference = (first(q + step) - first(q - step)) / 2
    torch.testing.assert_close(second, difference, rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("recipe", ["rls", "kalmanet", "mesa"])
def test_solvers_on_other_devices_refuse_a_tangent(recipe: str) -> None:
    refuses_tangents(by_query(recipe, portable.regress), cases.draw(recipe)["q"])


CHEBYSHEV = "rls{optimizer: chebyshev, steps: 9}"
CONJUGATE = "rls{optimizer: conjugate_gradient, steps: 9}"


@pytest.mark.parametrize("name", ["q", "k", "v"])
@pytest.mark.parametrize("recipe", ["rls", CHEBYSHEV, CONJUGATE])
def test_solvers_on_other_devices_refuse_gradients_of_gradients(recipe: str, name: str) -> None:
    """Also where a second way leads to the input, past the solver."""
    inputs = cases.draw(recipe)
    x = inputs[name].requires_grad_()
    y = portable.regress(recipe, **inputs)
    assert isinstance(y, Tensor)
    loss = y.pow(3).sum() + x.pow(3).sum()
    (first,) = torch.autograd.grad(loss, x, create_graph=True)
    plain = torch.autograd.grad(
        portable.regress(recipe, **inputs).pow(3).sum() + x.pow(3).sum(), x  # type: ignore[union-attr]
    )[0]
    torch.testing.assert_close(first, plain)
    if name == "v":  # y is linear in v: the solver's own part of it is not differentiated
        return
    with pytest.raises(RuntimeError, match=TWICE):
        torch.autograd.grad(first.pow(2).sum(), x)


@pytest.mark.parametrize("name", list(around_cases.CASES))
def test_gradients_of_gradients_around_a_memory_are_refused(name: str) -> None:
    call, _, tensors = around_cases.CASES[name]()
    x = tensors[0].requires_grad_()
    y = call(*tensors)
    y = y[0] if isinstance(y, tuple) else y
    (first,) = torch.autograd.grad(y.pow(3).sum() + x.pow(3).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match=TWICE):
        torch.autograd.grad(first.pow(2).sum(), x)
