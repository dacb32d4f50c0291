"""Gradients of short convolution, norms and gates, against differences and those of their formulas."""

from __future__ import annotations

import pytest
import torch
import ttr.torch as tt
from around_cases import CASES, TOLERANCE, B, D, H, T, close, conv_formula, grads_of, rand


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("name", CASES)
def test_gradients(name: str) -> None:
    """Against central differences, and against autograd of the formula."""
    actual, formula, tensors = CASES[name]()
    tensors = [t.requires_grad_() for t in tensors]
    assert torch.autograd.gradcheck(actual, tensors)
    for a, b in zip(grads_of(actual, tensors), grads_of(formula, tensors)):
        close(a, b)


@pytest.mark.parametrize("name", CASES)
def test_gradients_of_each_alone(name: str) -> None:
    actual, formula, tensors = CASES[name]()
    for i in range(len(tensors)):
        for j, tensor in enumerate(tensors):
            tensor.requires_grad_(i == j)
        close(grads_of(actual, tensors)[i], grads_of(formula, tensors)[i])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", CASES)
def test_gradients_have_the_dtypes_of_their_tensors(name: str, dtype: torch.dtype) -> None:
    actual, formula, tensors = CASES[name]()
    tensors = [t.to(dtype).requires_grad_() for t in tensors]
    exact = [t.detach().double().requires_grad_() for t in tensors]
    for a, b in zip(grads_of(actual, tensors), grads_of(formula, exact)):
        assert a.dtype == dtype
        size = b.abs().max().item()
        torch.testing.assert_close(a.double(), b, rtol=0, atol=3 * TOLERANCE[dtype] * size)


def test_gradient_through_the_final_state_alone() -> None:
    x, w, s = rand(B, 2, H, D, grad=True), rand(H, D, 4, grad=True), rand(B, 3, H, D, grad=True)
    _, final = tt.short_conv(x, w, state=s, return_state=True)
    dx, dw, ds = torch.autograd.grad(final.square().sum(), (x, w, s))
    assert torch.equal(dx, 2 * x) and (dw == 0).all()
    assert torch.equal(ds, 2 * s * torch.tensor([0.0, 0.0, 1.0])[:, None, None])


def test_gradients_of_packed_sequences() -> None:
    x, w = rand(1, 9, H, D, grad=True), rand(H, D, 3, grad=True)
    bounds = torch.tensor([0, 4, 9])
    packed = grads_of(lambda x, w: tt.short_conv(x, w, cu_seqlens=bounds), [x, w])
    apart = grads_of(
        lambda x, w: torch.cat(
            [conv_formula(x[:, a:b], w, None, None, False)[0] for a, b in ((0, 4), (4, 9))], 1
        ),
        [x, w],
    )
    for a, b in zip(packed, apart):
        close(a, b)


def test_gradients_of_gradients_are_refused() -> None:
    x = rand(B, T, H, D, grad=True)
    for y in (tt.norm(x), tt.step_gate(x), tt.skip_gate(x, z=x.detach())):
        (dx,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        with pytest.raises(RuntimeError, match="gradients of gradients"):
            dx.sum().backward()
