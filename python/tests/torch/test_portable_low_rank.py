"""Curvatures of low rank on the portable road: their digits, and slopes where an importance is 0."""

from __future__ import annotations

import pytest
import torch
import torch_cases as cases
import torch_oracle as oracle
from torch_cases import Sizes
from ttr.torch.portable import low_rank, regress

#: Columns of halves, orthogonal.
H = torch.tensor([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]]).double() / 2


def worst(got: torch.Tensor, u: torch.Tensor, k: torch.Tensor, b: float, ridge: float) -> float:
    """The largest error of a gain along the columns of H, the first three of which rows of U lie along, in eps
    of what roundings of the gain and of k move."""
    squares = torch.cat([u.double().square().sum(-1), torch.zeros(1)])
    divisors, shares = ridge + squares, H.T @ k.double()
    total = 1 + b * (shares.square() / divisors).sum()
    error = (H.T @ got.double() - shares / divisors / total).abs()
    room = got.double().norm() + k.double().norm() / divisors / total
    return float((error[error > 0] / room[error > 0]).amax()) / torch.finfo(k.dtype).eps if error.any() else 0.0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("ridge", [1e-12, 1e-8, 1e-4, 1, 1e3])
def test_no_ridge_and_no_importance_cost_digits(dtype: torch.dtype, ridge: float) -> None:
    """Of keys in the rows, beside them, and both. Rows are powers of 2 long, so that their lengths are exact."""
    u = (torch.tensor([[4.0], [1.0], [0.5 if dtype == torch.float32 else 2**-10]]) * H.T[:3]).to(dtype)
    noise = torch.randn(2, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for k in (noise[0], H[:, 0], H[:, 3], H[:, 0] - 2 * H[:, 2], H[:, 1] + 1e-6 * noise[1], torch.zeros(4)):
        key = k.to(dtype)
        for b in (0, 2.0**-60, 2.0**-20, 1, 2.0**20):
            weight = torch.tensor([b], dtype=dtype)
            got = low_rank._gain(u, key, weight, ridge)
            assert got.isfinite().all()
            assert worst(got, u, key, b, ridge) <= 8, (k, b)


@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-12), (torch.float32, 1e-4)])
@pytest.mark.parametrize("ridge", [1e-8, 1e-4, 1])
def test_keys_that_come_again(dtype: torch.dtype, tolerance: float, ridge: float) -> None:
    """What is left of such a key is rounding, which the ridge divides: along the keys none of it counts."""
    recipe = f"low_rank_rls{{rank: 3, ridge: {ridge}}}"
    inputs = cases.inputs(recipe, Sizes(tokens=24), dtype=dtype)
    inputs["k"] = inputs["k"][:, torch.arange(24) % 3]
    inputs["q"] = inputs["k"]
    want, _ = oracle.definition(recipe, {name: x.double() for name, x in inputs.items()}, {})
    torch.testing.assert_close(regress(recipe, **inputs).double(), want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "recipe",
    [
        "low_rank_rls{rank: 2, importance: input}",
        "low_rank_rls{rank: 2, steps: 3, step: input, importance: input, curvature_decay: 0.7}",
    ],
)
def test_slopes_where_an_importance_is_zero(recipe: str) -> None:
    """They are those on the side where there is some, and of an importance of nearly 0 they are the same."""
    inputs = cases.inputs(recipe, Sizes(batch=1, tokens=8))
    tokens = [3, 4, 6]
    inputs["importance"][:, tokens, 1] = 0
    y, _ = oracle.definition(recipe, inputs, {})
    dy = torch.randn(y.shape, generator=torch.Generator().manual_seed(2), dtype=y.dtype)
    found = []
    for least in (0, 1e-25):
        given = {name: x.clone() for name, x in inputs.items()}
        given["importance"].clamp_(min=least)
        leaves = {name: x.requires_grad_() for name, x in given.items()}
        regress(recipe, **leaves).backward(dy)
        found.append({name: x.grad for name, x in leaves.items()})
    for name, gradient in found[0].items():
        torch.testing.assert_close(found[1][name], gradient, rtol=1e-10, atol=1e-10, msg=name)
    for t in tokens:
        slopes = []
        for h in (1e-5, 5e-6):
            moved = dict(inputs, importance=inputs["importance"].clone())
            moved["importance"][0, t, 1] = h
            slopes.append(float(((oracle.definition(recipe, moved, {})[0] - y) * dy).sum()) / h)
        slope = 2 * slopes[1] - slopes[0]
        assert found[0]["importance"][0, t, 1].item() == pytest.approx(slope, rel=1e-6, abs=1e-6)
