"""The portable form of networks that are trained while they read: states, places, types, wrong calls."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch_cases as cases
import torch_oracle as oracle
from torch_cases import Sizes
from torch.utils.checkpoint import checkpoint
from ttr.torch.portable import network, regress

Tensors = dict[str, torch.Tensor]
SIZES = Sizes(batch=2, tokens=70, key_dim=5, value_dim=3)
CONSTANTS = ("ln_weight", "ln_bias", "row_bias")
NETWORKS = [
    "ttt_linear{mini_batch: 7}",
    "ttt_mlp{read: before}",
    "titans",
    "titans{mini_batch: 6, read: before}",
    "titans{adapt: adam, eps: 0.1, curvature_decay: 0.9}",
    "lact{mini_batch: 50}",
    "in_place_ttt{mini_batch: 9, read: after}",
]
IN_BATCHES = [
    "ttt_linear{mini_batch: 7}",
    "ttt_mlp{read: batch_end}",
    "titans{mini_batch: 6, weight_decay: coupled}",
    "titans{mini_batch: 20, read: batch_start}",
    "in_place_ttt{mini_batch: 9, read: before}",
]


def cut(inputs: Tensors, begin: int, end: int) -> Tensors:
    return {
        n: x if n in CONSTANTS else x[:, begin:end].contiguous() for n, x in inputs.items()
    }


def close(got: torch.Tensor, want: torch.Tensor, tolerance: float = 1e-11) -> None:
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("recipe", NETWORKS)
def test_whole_is_split_anywhere(recipe: str) -> None:
    inputs = cases.inputs(recipe, SIZES)
    whole, final = regress(recipe, **inputs, return_state=True)
    pieces, state = [], None
    for begin, end in ((0, 1), (1, 33), (33, 33), (33, 34), (34, 70)):
        y, state = regress(recipe, **cut(inputs, begin, end), state=state, return_state=True)
        pieces.append(y)
    close(torch.cat(pieces, 1), whole)
    assert state is not None and set(state) == set(final)
    for name, tensor in final.items():
        close(state[name], tensor)


@pytest.mark.parametrize("recipe", IN_BATCHES)
def test_memories_may_be_at_different_places(recipe: str) -> None:
    inputs = cases.inputs(recipe, SIZES)
    early, late = (oracle.definition(recipe, cut(inputs, 0, n), {})[1] for n in (4, 12))
    state = {n: torch.cat([early[n][:, :1], late[n][:, 1:]], 1).contiguous() for n in early}
    assert len(state["state.position"].unique()) == 2
    tail = cut(inputs, 20, 60)
    want, last = oracle.definition(recipe, tail, state)
    y, final = regress(recipe, **tail, state=state, return_state=True)
    close(y, want)
    for name, tensor in final.items():
        close(tensor, last[name])
    held = {n: x.requires_grad_() if x.is_floating_point() else x for n, x in state.items()}
    y = regress(recipe, **tail, state=held)
    leaves = {n: x for n, x in held.items() if x.requires_grad}
    got = torch.autograd.grad(y.sum(), list(leaves.values()), allow_unused=True)
    wanted = oracle.gradients(recipe, tail, held, torch.ones_like(y), {})
    for (name, x), gradient in zip(leaves.items(), got):
        close(torch.zeros_like(x) if gradient is None else gradient, wanted[name], 1e-9)


@pytest.mark.parametrize("recipe", NETWORKS)
def test_sequences_may_share_their_start(recipe: str) -> None:
    """Their gradients add up; constants that are absent are ones and zeros."""
    inputs = {n: x for n, x in cases.inputs(recipe, SIZES).items() if n not in CONSTANTS}
    _, reached = regress(recipe, **inputs, return_state=True)
    state = {
        n: x[0].clone().requires_grad_()
        for n, x in reached.items()
        if n.startswith(("state.w", "state.b"))
    }
    y = regress(recipe, **inputs, state=state)
    close(y, oracle.definition(recipe, inputs, state)[0])
    wanted = oracle.gradients(recipe, inputs, state, torch.ones_like(y), {})
    for name, gradient in zip(state, torch.autograd.grad(y.sum(), list(state.values()))):
        close(gradient, wanted[name], 1e-9)


@pytest.mark.parametrize("recipe", NETWORKS)
def test_no_tokens_leave_the_state(recipe: str) -> None:
    none = cut(cases.inputs(recipe, SIZES), 0, 0)
    y, started = regress(recipe, **none, return_state=True)
    assert y.shape[1] == 0
    want = oracle.definition(recipe, none, {})[1]
    assert set(started) == set(want)
    for name, tensor in started.items():
        close(tensor, want[name])
    state = cases.state(recipe, SIZES)
    for name, tensor in regress(recipe, **none, state=state, return_state=True)[1].items():
        assert torch.equal(tensor, state[name]), name


@pytest.mark.parametrize("recipe", NETWORKS)
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 3e-5), (torch.bfloat16, 8e-3), (torch.float16, 1e-3)]
)
def test_narrow_types(recipe: str, dtype: torch.dtype, tolerance: float) -> None:
    narrow = {n: x.to(dtype) for n, x in cases.inputs(recipe, SIZES).items()}
    y, final = regress(recipe, **narrow, return_state=True)
    assert y.dtype == dtype
    assert {x.dtype for x in final.values()} <= {torch.float32, torch.int64}
    close(y.double(), regress(recipe, **{n: x.double() for n, x in narrow.items()}), tolerance)


@pytest.mark.parametrize("recipe", ["lact", "in_place_ttt", "titans{read: before}"])
def test_tokens_that_nothing_has_read_have_a_gradient_of_zero(recipe: str) -> None:
    inputs = {n: x[:, :1].requires_grad_() for n, x in cases.inputs(recipe, SIZES).items()}
    regress(recipe, **inputs).sum().backward()
    for name, x in inputs.items():
        assert x.grad is not None and (name == "q" or not x.grad.any()), name


@pytest.mark.parametrize("recipe", ["ttt_linear{mini_batch: 2}", "titans{mini_batch: 2}"])
def test_autograd_keeps_few_weights(recipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those behind 8 of 64 parts, and none inside of a stretch of parts."""
    inputs = {
        n: x.requires_grad_() for n, x in cases.inputs(recipe, replace(SIZES, tokens=128)).items()
    }
    weights, kept, stretches = (5 * 5, 5 * 20, 20 * 3), [], []

    def noted(*arguments: Any, **options: Any) -> Any:
        stretches.append(arguments)
        return checkpoint(*arguments, **options)

    def pack(x: torch.Tensor) -> torch.Tensor:
        kept.append(x.dim() == 3 and x.shape[1] * x.shape[2] in weights)
        return x

    monkeypatch.setattr(network, "checkpoint", noted)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        regress(recipe, **inputs)
    assert len(stretches) == 8 and not any(kept)


@pytest.mark.parametrize(
    ("text", "state", "change"),
    [
        ("must be given with state.g_w1 but is missing", {"state.g_w1": torch.zeros(2, 2, 5, 5)}, {}),
        ("a whole number from 0 to 15 but is 16", {"state.position": torch.full((2, 2), 16)}, {}),
        ("must be int64 but is", {"state.position": torch.zeros(2, 2)}, {}),
        ("= [2,2,5,5] but is", {"state.w1": torch.zeros(2, 2, 5, 4)}, {}),
        ("row_bias must be [H,mini_batch] = [2,16]", {}, {"row_bias": torch.zeros(2, 4)}),
        ("v must be as long as k under residual: true, Dv = Dk = 5 but is Dv = 4", {}, {"v": 4}),
    ],
)  # fmt: skip
def test_a_wrong_call_names_its_argument(text: str, state: Tensors, change: dict) -> None:
    inputs = cases.inputs("ttt_linear", SIZES)
    if "v" in change:
        change = {"v": inputs["v"][..., :4], "ln_weight": None, "ln_bias": None}
    with pytest.raises(ValueError) as caught:
        regress("ttt_linear", **{**inputs, **change}, state=state)
    assert text in str(caught.value)
