"""The portable forms where numbers are extreme, tensors are odd, or a call is wrong."""

from __future__ import annotations

import pytest
import torch
import torch_cases as cases
import torch_oracle as oracle
from torch_cases import Sizes
from ttr.torch.portable import regress

SIZES = Sizes(batch=1, tokens=150, key_dim=6, value_dim=3)


def compare(recipe: str, inputs: dict, state: dict | None = None, tolerance: float = 1e-9) -> None:
    """y and the final state against the definition, entry by entry."""
    want, last = oracle.definition(recipe, inputs, state or {})
    y, final = regress(recipe, **inputs, state=state, return_state=True)
    torch.testing.assert_close(y, want, rtol=tolerance, atol=tolerance)
    for name, tensor in final.items():
        torch.testing.assert_close(tensor, last[name], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "recipe",
    [
        "gla",
        "kda",
        "rwkv7",
        "gated_deltanet",
        "gateloop",
        "weighted_rls",
        "mesa",
        "mlstm",
        "hgrn2",
        "lru",
    ],
)
def test_decays_of_any_strength(recipe: str) -> None:
    inputs = cases.inputs(recipe, SIZES)
    generator = torch.Generator().manual_seed(5)
    strengths = torch.tensor([0, -1e-3, -0.7, -7, -70, -torch.inf], dtype=torch.float64)
    drawn = torch.randint(0, 6, inputs["log_decay"].shape, generator=generator)
    inputs["log_decay"] = strengths[drawn]
    if (
        recipe == "weighted_rls"
    ):  # its ridge fades: what is forgotten altogether leaves no condition
        inputs["log_decay"] = inputs["log_decay"].clamp(min=-0.7)
    compare(recipe, inputs, tolerance=1e-7 if recipe == "weighted_rls" else 1e-9)


@pytest.mark.parametrize(
    "recipe", ["gla", "gated_deltanet", "kda", "rwkv7", "gateloop", "mesa", "mlstm", "lru"]
)
def test_gradients_of_any_decay_are_finite(recipe: str) -> None:
    inputs = cases.inputs(recipe, SIZES)
    inputs["log_decay"][:, ::3] = -torch.inf
    inputs["log_decay"][:, 1::5] = -70
    leaves = {name: x.requires_grad_() for name, x in inputs.items()}
    regress(recipe, **leaves).square().sum().backward()
    for name, x in leaves.items():
        if x.grad is not None:
            assert x.grad.isfinite().all(), name


@pytest.mark.parametrize(
    "recipe", ["nlms", "efla", "longhorn", "deltanet", "gated_deltanet{normalise_qk:true}", "rls"]
)
def test_zero_keys(recipe: str) -> None:
    inputs = cases.inputs(recipe, SIZES)
    inputs["k"][:, ::2] = 0
    compare(recipe, inputs)
    leaves = {name: x.requires_grad_() for name, x in inputs.items()}
    regress(recipe, **leaves).sum().backward()
    assert leaves["k"].grad.isfinite().all()


@pytest.mark.parametrize(
    "recipe",
    ["linear_attention{features: relu, normalise_sum: sum}", "linear_attention{output_norm: l2}"],
)
def test_nothing_to_divide_by_gives_nothing(recipe: str) -> None:
    inputs = cases.inputs(recipe, SIZES)
    inputs["k"][:, :5] = 0
    compare(recipe, inputs)
    leaves = {name: x.requires_grad_() for name, x in inputs.items()}
    y = regress(recipe, **leaves)
    assert (y[:, :5] == 0).all()
    y.sum().backward()
    assert leaves["k"].grad.isfinite().all()


@pytest.mark.parametrize(
    "recipe", ["rls{ridge: 0}", "affine_rls{ridge: 0}", "rls{ridge: 0, read: before}"]
)
def test_without_a_ridge_the_smallest_norm(recipe: str) -> None:
    inputs = cases.inputs(recipe, SIZES)
    inputs.pop("ridge")
    inputs["k"][..., 3] = inputs["k"][..., 2]  # a direction that is never seen
    compare(recipe, inputs, tolerance=1e-6)


def test_gradient_of_the_smallest_norm() -> None:
    """The rank stays: keys span two of five directions, queries have a part in the others."""
    generator = torch.Generator().manual_seed(2)
    directions = torch.randn(2, 5, generator=generator, dtype=torch.float64)
    mixed = torch.randn(1, 4, 1, 2, generator=generator, dtype=torch.float64)
    start = (mixed[:, :2] @ directions).requires_grad_()
    q, v = (
        torch.randn(1, 4, 1, d, generator=generator, dtype=torch.float64, requires_grad=True)
        for d in (5, 2)
    )
    weights = mixed[:, 2:].clone().requires_grad_()

    def call(
        q: torch.Tensor, v: torch.Tensor, start: torch.Tensor, weights: torch.Tensor
    ) -> torch.Tensor:
        later = (weights.unsqueeze(-1) * start.transpose(1, 2).unsqueeze(1)).sum(
            -2
        )  # in the same span
        return regress("rls{ridge: 0}", q, torch.cat([start, later], 1), v)

    assert torch.autograd.gradcheck(call, (q, v, start, weights), fast_mode=True)


@pytest.mark.parametrize(
    "recipe",
    [
        "gated_deltanet",
        "kda",
        "rwkv7",
        "mlstm",
        "gla",
        "lru",
        "mamba",
        "hgrn",
        "mesa",
        "delta_product",
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_narrow_types(recipe: str, dtype: torch.dtype) -> None:
    """float32 to its rounding; bfloat16 is computed in float32 and rounded once."""
    rounded = {name: x.to(dtype).double() for name, x in cases.inputs(recipe, SIZES).items()}
    want = regress(recipe, **rounded)
    narrow = {name: x.to(dtype) for name, x in rounded.items()}
    y, final = regress(recipe, **narrow, return_state=True)
    assert y.dtype == dtype
    assert all(x.dtype == torch.float32 for x in final.values())
    tolerance = {torch.float32: 3e-5, torch.bfloat16: 8e-3}[dtype]
    torch.testing.assert_close(y.double(), want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "recipe",
    ["gated_deltanet", "kda", "mamba", "lru", "mesa", "mlstm", "delta_product", "gateloop"],
)
def test_no_tokens(recipe: str) -> None:
    sizes = Sizes(tokens=0)
    state = cases.state(recipe, sizes)
    y, final = regress(recipe, **cases.inputs(recipe, sizes), state=state, return_state=True)
    assert y.shape[1] == 0
    for name, tensor in final.items():
        torch.testing.assert_close(tensor, state[name])


@pytest.mark.parametrize(
    "recipe",
    [
        "gated_deltanet",
        "kda",
        "mlstm",
        "momentum_deltanet",
        "mesa",
        "mamba",
        "lru",
        "delta_product",
        "gateloop",
    ],
)
def test_whole_is_split_anywhere(recipe: str) -> None:
    inputs = cases.inputs(recipe, SIZES)
    whole, final = regress(recipe, **inputs, return_state=True)
    steps = 2 if recipe == "delta_product" else 1
    pieces, state = [], None
    for begin, end in ((0, 1), (1, 70), (70, 70), (70, 150)):
        part = {}
        for name, x in inputs.items():
            per_token = name not in ("a", "ridge")
            n = steps if name in ("k", "v", "step") else 1
            part[name] = x[:, begin * n : end * n] if per_token else x
        y, state = regress(recipe, **part, state=state, return_state=True)
        pieces.append(y)
    torch.testing.assert_close(torch.cat(pieces, 1), whole, rtol=1e-10, atol=1e-10)
    for name, tensor in final.items():
        torch.testing.assert_close(state[name], tensor, rtol=1e-10, atol=1e-10)


def test_any_strides() -> None:
    inputs = cases.inputs("gated_deltanet", SIZES)
    want = regress("gated_deltanet", **inputs)
    odd = {name: x.transpose(1, 2).contiguous().transpose(1, 2) for name, x in inputs.items()}
    odd["v"] = inputs["v"].flip(-1).flip(-1).mT.contiguous().mT
    torch.testing.assert_close(regress("gated_deltanet", **odd), want)
    broadcast = {
        **inputs,
        "step": torch.full((1, 1, 1), 0.5, dtype=torch.float64).expand(1, 150, 2),
    }
    dense = {**broadcast, "step": broadcast["step"].contiguous()}
    torch.testing.assert_close(
        regress("gated_deltanet", **broadcast), regress("gated_deltanet", **dense)
    )


WRONG = {
    "k must be [B,T,Hk,Dk] = [1,150,2,6] but is [1, 150, 2, 5]": lambda x: x.update(
        k=x["k"][..., :5]
    ),
    "step must be given but is missing": lambda x: x.pop("step"),
    "log_decay, step, cu_seqlens: did you mean step?": lambda x: x.update(beta=x["step"]),
    "momentum is no input of": lambda x: x.update(momentum=x["step"]),
    "log_decay must be <= 0 but is 1 somewhere": lambda x: x["log_decay"].fill_(1),
    "step must be >= 0 but is -1 somewhere": lambda x: x["step"].fill_(-1),
    "v must be float32": lambda x: x.update(v=x["v"].long()),
    "cu_seqlens must be 0 ... 150 without falling but is [0, 9, 7, 150]": lambda x: x.update(
        cu_seqlens=torch.tensor([0, 9, 7, 150])
    ),
    "q must be of heads that divide": lambda x: x.update(q=x["q"][:, :, :1].expand(-1, -1, 3, -1)),
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_call_names_its_argument(text: str) -> None:
    inputs = cases.inputs("gated_deltanet", SIZES)
    WRONG[text](inputs)
    with pytest.raises(ValueError) as caught:
        regress("gated_deltanet", **inputs)
    assert text in str(caught.value)


def test_a_state_of_another_recipe_is_refused() -> None:
    inputs = cases.inputs("gated_deltanet", SIZES)
    with pytest.raises(ValueError, match="state has an entry 'state.n'"):
        regress("gated_deltanet", **inputs, state={"state.n": torch.zeros(1, 2, 6)})
    with pytest.raises(ValueError, match="must be .*= .1,2,6,3. but is"):
        regress("gated_deltanet", **inputs, state={"state": torch.zeros(1, 2, 6, 4)})


def test_what_no_road_takes_is_refused_with_the_reason() -> None:
    recipe = "quasi_newton{preconditioner: low_rank}"
    with pytest.raises(ValueError, match="preconditioner: low_rank"):
        regress(recipe, **cases.inputs(recipe, Sizes()))


def test_drawn_features_are_to_be_given() -> None:
    inputs = cases.inputs("linear_attention{features: favor}", Sizes())
    inputs.pop("features_w")
    with pytest.raises(ValueError, match="features_w must be given"):
        regress("linear_attention{features: favor}", **inputs)


@pytest.mark.parametrize(
    "recipe",
    [
        "rls",
        "mesa",
        "gated_deltanet",
        "kda",
        "mamba",
        "lru",
        "softmax",
        "decayed_softmax",
        "local_linear",
        "kernel_ridge",
        "kernel_rls",
    ],
)
def test_under_autocast_everything_keeps_its_type(recipe: str) -> None:
    inputs = {
        name: x.requires_grad_()
        for name, x in cases.inputs(recipe, SIZES, dtype=torch.float32).items()
    }
    want = regress(recipe, **inputs)
    with torch.autocast("cpu", torch.bfloat16):
        y = regress(recipe, **inputs)
        assert torch.equal(y, want)
    got = torch.autograd.grad(y.square().sum(), list(inputs.values()))
    wanted = torch.autograd.grad(want.square().sum(), list(inputs.values()))
    assert all(torch.equal(a, b) for a, b in zip(got, wanted))


@pytest.mark.parametrize("ridge", ["1e-3", "1e-4", "1e-5"])
@pytest.mark.parametrize("width", [16, 64])
def test_least_squares_in_float32_lose_what_their_condition_costs(ridge: str, width: int) -> None:
    """Also in first chunks, whose systems grow from a small ridge."""
    recipe = f"rls{{ridge: {ridge}}}"
    inputs = _unit_rows(width)
    error, condition = _error_and_condition(recipe, inputs, float(ridge))
    # The bound is 4 eps times the condition; one of these runs reaches a few times that.
    assert (error <= 64 * torch.finfo(torch.float32).eps * condition).all()
    assert error[3 * width :].max() < 1e-4


def _unit_rows(width: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    q, k = (
        torch.nn.functional.normalize(torch.randn(1, 300, 1, width, generator=generator), dim=-1)
        for _ in range(2)
    )
    return {"q": q, "k": k, "v": torch.randn(1, 300, 1, 8, generator=generator)}


def _error_and_condition(
    recipe: str, inputs: dict[str, torch.Tensor], ridge: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """[T] each, errors as a share of the token's greatest number."""
    want, _ = oracle.definition(recipe, {n: x.double() for n, x in inputs.items()}, {})
    k = inputs["k"][0, :, 0].double()
    systems = (k.unsqueeze(-1) * k.unsqueeze(-2)).cumsum(0) + ridge * torch.eye(k.shape[-1])
    y = regress(recipe, **inputs)
    error = (y.double() - want)[0, :, 0].abs().amax(-1) / want[0, :, 0].abs().amax(-1)
    return error, torch.linalg.cond(systems)
