"""Gradients of regress: central differences in float64, and what autograd asks of an operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import operator_cases as cases
import pytest
import torch
import ttr
from torch import Tensor
from ttr.torch import Decoder, _library, regress

SMALL: dict[str, Any] = {"B": 1, "T": 3, "Hq": 1, "Hk": 1, "Hv": 1, "H": 1, "Dk": 2, "Dv": 2, "F": 2}


def function_of(
    name: str, keys: list[str], states: list[str], counts: dict[str, Tensor]
) -> Callable[..., Any]:
    """A function of tensors in order: y and the entries of the final state that are no counts."""

    def call(*tensors: Tensor) -> Any:
        inputs: dict[str, Any] = dict(zip(keys, tensors))
        state = {**dict(zip(states, tensors[len(keys) :])), **counts}
        if "state.a" in state:  # symmetric: one triangle of it is read
            state["state.a"] = (state["state.a"] + state["state.a"].mT) / 2
        y, final = regress(name, **inputs, state=state, return_state=True)
        return (y, *(t for t in final.values() if t.is_floating_point()))

    return call


@pytest.mark.parametrize("name", cases.WITH_GRADIENTS)
def test_gradcheck(name: str) -> None:
    """Gradients of every input of a recipe and of its initial state, through y and the final one."""
    inputs = cases.draw(name, optional=True, grad=True, **SMALL)
    reached = cases.reached(name, optional=True, **SMALL)
    state = {entry: t.requires_grad_() for entry, t in reached.items() if t.is_floating_point()}
    counts = {entry: t for entry, t in reached.items() if not t.is_floating_point()}
    call = function_of(name, list(inputs), list(state), counts)
    assert torch.autograd.gradcheck(call, (*inputs.values(), *state.values()), atol=1e-6)


@pytest.mark.parametrize("name", ["gated_deltanet", "mesa", "mamba", "hgrn"])
def test_gradients_over_several_chunks(name: str) -> None:
    """Directional derivatives where what is saved matters: more than 64 rows, grouped heads."""
    inputs = cases.draw(name, T=70, Hq=1, Hk=1 if name != "mamba" else 2, grad=True)
    y = regress(name, **inputs)
    weights = torch.randn(y.shape, dtype=y.dtype, generator=torch.Generator().manual_seed(5))
    (y * weights).sum().backward()
    for entry, tensor in inputs.items():
        with torch.no_grad():
            direction = torch.randn(tensor.shape, dtype=y.dtype) * 1e-5
            ahead = regress(name, **{**inputs, entry: tensor + direction})
            behind = regress(name, **{**inputs, entry: tensor - direction})
            slope = ((ahead - behind) * weights).sum() / 2
        assert tensor.grad is not None
        expected = (tensor.grad * direction).sum()
        size = (tensor.grad.abs() * direction.abs()).sum()
        assert abs(slope - expected) < 1e-7 * size + 1e-12, entry


@pytest.mark.parametrize("name", cases.WITHOUT_GRADIENTS)
def test_recipes_without_an_engine_differentiate_few_numbers(name: str) -> None:
    if int(ttr.Recipe(name).option("budget")) > 0:
        name += "{budget: 2}"  # gradcheck takes a backward pass for every number of the state
    inputs = cases.draw(name, grad=True, **SMALL)
    call = function_of(name, list(inputs), [], {})
    assert torch.autograd.gradcheck(call, tuple(inputs.values()), atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("name", cases.WITHOUT_GRADIENTS)
def test_recipes_without_an_engine_differentiate_many_numbers_by_pytorchs_operators(name: str) -> None:
    many = cases.draw(name, grad=True, T=160, B=2)
    assert sum(t.numel() for t in many.values()) > 4096
    wanted = list(many.values())
    dy = torch.randn_like(regress(name, **many))
    made = torch.autograd.grad(regress(name, **many), wanted, dy)
    expected = torch.autograd.grad(ttr.torch.portable.regress(name, **many), wanted, dy)
    for got, want in zip(made, expected):
        assert torch.equal(got, want)
    with torch.no_grad():
        exact = regress(name, **many)
    torch.testing.assert_close(regress(name, **many), exact, rtol=1e-7, atol=1e-7)


def test_of_recipes_that_no_road_differentiates_few_numbers_are_taken() -> None:
    name = "rwkv6{decay: matrix}"
    with pytest.raises(ValueError, match="requires_grad must be of at most 4096 numbers.*has no form"):
        regress(name, **cases.draw(name, grad=True, T=1100))


def gradients(**options: Any) -> list[Tensor]:
    inputs = cases.draw("gated_deltanet", grad=True, T=70, **options)
    y = regress("gated_deltanet", **inputs)
    return list(torch.autograd.grad(y.square().sum(), list(inputs.values())))


def test_subsets_of_what_requires_gradients() -> None:
    expected = dict(zip(cases.draw("gated_deltanet"), gradients()))
    for wanted in ({"q"}, {"step"}, {"k", "log_decay"}, {"v", "q", "step"}):
        inputs = cases.draw("gated_deltanet", T=70)
        for entry in wanted:
            inputs[entry].requires_grad_()
        y = regress("gated_deltanet", **inputs)
        assert y.requires_grad
        y.square().sum().backward()
        for entry, tensor in inputs.items():
            assert (tensor.grad is not None) == (entry in wanted)
            if tensor.grad is not None:
                assert torch.equal(tensor.grad, expected[entry])


def test_hooks_may_move_what_is_saved() -> None:
    expected = gradients()

    def moved(tensor: Tensor) -> Tensor:
        """A copy one byte, or one number, beyond a multiple of 64."""
        memory = torch.empty(tensor.numel() + 65, dtype=tensor.dtype)
        there = memory[1 : 1 + tensor.numel()].view(tensor.shape)
        return there.copy_(tensor)

    with torch.autograd.graph.saved_tensors_hooks(moved, lambda tensor: tensor):
        assert all(torch.equal(a, b) for a, b in zip(gradients(), expected))
    with torch.autograd.graph.save_on_cpu():
        assert all(torch.equal(a, b) for a, b in zip(gradients(), expected))


def test_no_grad_and_inference_mode() -> None:
    inputs = cases.draw("gated_deltanet", grad=True)
    with_gradients = regress("gated_deltanet", **inputs)
    for mode in (torch.no_grad(), torch.inference_mode()):
        with mode:
            y, state = regress("gated_deltanet", **inputs, return_state=True)
        assert not y.requires_grad and not state["state"].requires_grad
        assert torch.equal(y, with_gradients)


def test_broadcast_gradients() -> None:
    """y.sum().backward() hands over a gradient without strides."""
    for batch, tokens in [(2, 9), (1, 1), (2, 0), (0, 3)]:
        inputs = cases.draw("gated_deltanet", grad=True, B=batch, T=tokens)
        regress("gated_deltanet", **inputs).sum().backward()
        twin = cases.draw("gated_deltanet", grad=True, B=batch, T=tokens)
        y = regress("gated_deltanet", **twin)
        y.backward(torch.ones_like(y))
        for entry, tensor in inputs.items():
            assert tensor.grad is not None and twin[entry].grad is not None
            assert torch.equal(tensor.grad, twin[entry].grad)


def test_gradients_of_strided_and_shared_inputs() -> None:
    base = cases.draw("gated_deltanet")
    strided = {
        n: t.transpose(1, -1).contiguous().transpose(1, -1).detach().requires_grad_()
        for n, t in base.items()
    }
    plain = {n: t.clone().requires_grad_() for n, t in base.items()}
    regress("gated_deltanet", **strided).square().sum().backward()
    regress("gated_deltanet", **plain).square().sum().backward()
    for n, t in plain.items():
        assert t.grad is not None and strided[n].grad is not None
        assert torch.equal(t.grad, strided[n].grad)
    # One tensor as query and key, expanded over the batch: its gradient is the sum of all.
    shared = torch.randn(1, 9, 2, 4, dtype=torch.float64, requires_grad=True)
    rest = {n: base[n] for n in ("v", "log_decay", "step")}
    y = regress("gated_deltanet", shared.expand(2, -1, -1, -1), shared.expand(2, -1, -1, -1), **rest)
    y.sum().backward()
    two = [shared.detach().expand(2, -1, -1, -1).clone().requires_grad_() for _ in range(2)]
    regress("gated_deltanet", *two, **rest).sum().backward()
    assert two[0].grad is not None and two[1].grad is not None
    torch.testing.assert_close(shared.grad, (two[0].grad + two[1].grad).sum(0, keepdim=True))


def test_through_the_final_state_alone() -> None:
    inputs = cases.draw("gated_deltanet", grad=True)
    y, state = regress("gated_deltanet", **inputs, return_state=True)
    state["state"].square().sum().backward()
    assert inputs["q"].grad is not None and inputs["q"].grad.abs().max() == 0
    assert inputs["v"].grad is not None and inputs["v"].grad.abs().max() > 0


def test_a_state_passes_gradients_from_call_to_call() -> None:
    whole = cases.draw("gated_deltanet", grad=True, T=8)
    regress("gated_deltanet", **whole).square().sum().backward()
    halves = {n: t.detach().clone().requires_grad_() for n, t in whole.items()}
    first, state = regress(
        "gated_deltanet", **{n: t[:, :3] for n, t in halves.items()}, return_state=True
    )
    second = regress("gated_deltanet", **{n: t[:, 3:] for n, t in halves.items()}, state=state)
    (first.square().sum() + second.square().sum()).backward()
    for n, t in whole.items():
        torch.testing.assert_close(halves[n].grad, t.grad)


def test_counts_are_not_differentiable() -> None:
    inputs = cases.draw("ttt_linear", grad=True, **SMALL)
    _, state = regress("ttt_linear", **inputs, return_state=True)
    assert not state["state.position"].requires_grad
    assert state["state.g_w1"].requires_grad


def test_gradients_of_gradients_are_refused() -> None:
    inputs = cases.draw("gated_deltanet", grad=True)
    y = regress("gated_deltanet", **inputs)
    first = torch.autograd.grad(y.square().sum(), list(inputs.values()), create_graph=True)
    plain = torch.autograd.grad(
        regress("gated_deltanet", **inputs).square().sum(), list(inputs.values())
    )
    assert all(torch.equal(a, b) for a, b in zip(first, plain))
    with pytest.raises(RuntimeError, match="gradients of gradients must not be asked for"):
        first[0].sum().backward()


def test_what_changed_since_is_refused() -> None:
    inputs = cases.draw("gated_deltanet", grad=True)
    leaf = inputs["v"]
    inputs["v"] = leaf * 1
    y = regress("gated_deltanet", **inputs)
    inputs["v"].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_backward_twice_on_one_graph() -> None:
    inputs = cases.draw("gated_deltanet", grad=True, T=70)
    y = regress("gated_deltanet", **inputs).square().sum()
    first = torch.autograd.grad(y, list(inputs.values()), retain_graph=True)
    second = torch.autograd.grad(y, list(inputs.values()))
    assert all(torch.equal(a, b) for a, b in zip(first, second))


def test_gradients_in_bfloat16() -> None:
    wide = cases.draw("gated_deltanet", dtype=torch.bfloat16, grad=True, T=20)
    exact = {n: t.detach().double().requires_grad_() for n, t in wide.items()}
    regress("gated_deltanet", **wide).sum().backward()
    regress("gated_deltanet", **exact).sum().backward()
    for n, t in exact.items():
        given = wide[n].grad
        assert given is not None and given.dtype == torch.bfloat16 and t.grad is not None
        assert (given.double() - t.grad).abs().max() < 2**-7 * t.grad.abs().max()


def test_the_operator_without_what_was_saved() -> None:
    """torch.ops.ttr.forward is differentiable itself, saving or not."""
    expected = gradients()
    for saves in (False, True):
        inputs = cases.draw("gated_deltanet", grad=True, T=70)
        given = (1 | 2 | 4) | 1 << 4 | 1 << 8
        y, _, _ = torch.ops.ttr.forward(
            "gated_deltanet", list(inputs.values()), given, [], 0, saves=saves
        )
        made = torch.autograd.grad(y.square().sum(), list(inputs.values()))
        for a, b in zip(made, expected):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_saved_memory_of_another_call_is_refused() -> None:
    inputs = list(cases.draw("gated_deltanet").values())
    given = (1 | 2 | 4) | 1 << 4 | 1 << 8
    y, _, saved = torch.ops.ttr.forward("gated_deltanet", inputs, given, [], 0, saves=True)
    dy = torch.ones_like(y)
    other = list(cases.draw("gated_deltanet", T=7).values())
    dother = torch.ones(2, 7, 2, 4, dtype=torch.float64)
    with pytest.raises(ValueError, match="saved"):
        _library.backward("gated_deltanet", other, given, [], 0, dother, [], 0, saved, 1)
    with pytest.raises(ValueError, match="saved"):
        _library.backward(
            "gated_deltanet", inputs, given, [], 0, dy, [], 0, [torch.zeros_like(saved[0])], 1
        )
    with pytest.raises(ValueError, match="saved must be a contiguous tensor of uint8"):
        _library.backward("gated_deltanet", inputs, given, [], 0, dy, [], 0, [dy], 1)


def test_the_zoo_has_gradients() -> None:
    assert len(cases.WITH_GRADIENTS) > 30
    assert set(cases.WITH_GRADIENTS) | set(cases.WITHOUT_GRADIENTS) == set(ttr.zoo())


@pytest.mark.parametrize("name", ["gated_deltanet", "rls", "softmax"])
def test_half(name: str) -> None:
    """float16 in and out; sums and the state in float32."""
    half = {k: t.half().requires_grad_() for k, t in cases.draw(name, T=6).items()}
    wide = {k: t.detach().float().requires_grad_() for k, t in half.items()}
    y, state = regress(name, **half, return_state=True)
    expected = regress(name, **wide)
    assert y.dtype == torch.float16
    assert torch.equal(y, expected.half())
    assert all(t.dtype in (torch.float32, torch.int64) for t in state.values())
    dy = torch.ones_like(y)
    for key, gradient in zip(half, torch.autograd.grad(y, list(half.values()), dy)):
        (reference,) = torch.autograd.grad(expected, wide[key], dy.float(), retain_graph=True)
        assert gradient.dtype == torch.float16
        assert torch.equal(gradient, reference.half())
    decoder = Decoder(name)
    tokens = {k: t.detach()[:, :1] for k, t in half.items()}
    first = decoder.step(**tokens)
    assert first.dtype == torch.float16
    torch.testing.assert_close(first, y.detach()[:, :1], rtol=2e-3, atol=2e-3)
