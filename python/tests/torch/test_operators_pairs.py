"""Kept pairs token by token: in place while there is room, and then in tensors of twice the size."""

from __future__ import annotations

from typing import Any

import operator_cases as cases
import pytest
import torch
from drawn import held
from torch import Tensor
from ttr.torch import Decoder, regress, reserve_pairs, step_

RECIPES = ["softmax", "decayed_softmax", "window_softmax{window: 3}", "nadaraya_watson"]


def token(inputs: dict[str, Tensor], t: int) -> dict[str, Any]:
    return {name: tensor[:, t : t + 1] for name, tensor in inputs.items()}


def places(state: dict[str, Tensor]) -> list[int]:
    return [tensor.data_ptr() for tensor in state.values()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_state_with_room_is_written_in_place(recipe: str, dtype: torch.dtype) -> None:
    inputs = cases.draw(recipe, dtype=dtype, T=11)
    expected, last = cases.definition(recipe, inputs)
    _, state = regress(recipe, **token(inputs, 0), return_state=True)
    state = reserve_pairs(recipe, state, 10)
    before = places(state)
    for t in range(1, 11):
        y = step_(recipe, state, **token(inputs, t))
        assert cases.worst(y, expected[:, t : t + 1]) < (1e-12 if dtype == torch.float64 else 1e-5)
    assert places(state) == before
    for name, tensor in held(state).items():
        torch.testing.assert_close(
            tensor, held(last)[name].to(tensor.dtype), rtol=1e-5, atol=1e-6, msg=name
        )


def test_a_full_state_is_refused_by_its_name() -> None:
    inputs = cases.draw("softmax", T=6)
    _, state = regress("softmax", **token(inputs, 0), return_state=True)
    state = reserve_pairs("softmax", state, 2)
    assert state["state.k"].shape[1] == 3
    for t in (1, 2):
        step_("softmax", state, **token(inputs, t))
    before = {name: tensor.clone() for name, tensor in state.items()}
    text = r"state.k must be of S >= 4 pairs.* is of S = 3"
    with pytest.raises(ValueError, match=text):
        step_("softmax", state, **token(inputs, 3))
    assert all(torch.equal(state[name], before[name]) for name in state)
    step_("softmax", reserve_pairs("softmax", state, 1), **token(inputs, 3))


def test_room_that_is_there_is_no_copy() -> None:
    state = cases.reached("softmax", T=5)
    larger = reserve_pairs("softmax", state, 1)
    assert larger["state.v"].shape[1] == 10 and state["state.v"].shape[1] == 5
    assert places(reserve_pairs("softmax", larger, 5)) == places(larger)
    assert reserve_pairs("softmax", larger, 6)["state.k"].shape[1] == 20
    assert reserve_pairs("softmax", state, 100)["state.k"].shape[1] == 105
    with pytest.raises(ValueError, match="state.length must be given but is absent"):
        reserve_pairs("softmax", {n: t for n, t in state.items() if n != "state.length"}, 1)
    # Twice its pairs are room for all that a window will see.
    window = "window_softmax{window: 4}"
    state = reserve_pairs(window, cases.reached(window, T=5), 1000)
    assert state["state.k"].shape[1] == 8
    assert places(reserve_pairs(window, state, 1000)) == places(state)
    linear = cases.reached("linear_attention")
    assert places(reserve_pairs("linear_attention", linear, 1000)) == places(linear)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_decoder_grows_to_twice_its_size(recipe: str) -> None:
    inputs = cases.draw(recipe, T=12)
    expected, _ = cases.definition(recipe, inputs)
    decoder = Decoder(recipe)
    rows: list[int] = []
    for t in range(12):
        before = places(decoder._state)
        y = decoder.step(**token(inputs, t))
        assert cases.worst(y, expected[:, t : t + 1]) < 1e-12
        rows.append(decoder._state["state.k"].shape[1])
        assert (places(decoder._state) == before) == (t > 0 and rows[-2] == rows[-1])
    if "window" in recipe:
        assert rows == [1, 2, 4, 4] + [6] * 8
    else:
        assert rows == [1, 2, 4, 4, 8, 8, 8, 8, 16, 16, 16, 16]


def test_a_decoder_leaves_what_it_started_from() -> None:
    inputs = cases.draw("softmax", T=6)
    state = reserve_pairs("softmax", cases.reached("softmax", T=3), 6)
    copies = {name: tensor.clone() for name, tensor in state.items()}
    decoder = Decoder("softmax")
    decoder.start(state)
    first = decoder.step(**token(inputs, 0))
    with pytest.raises(ValueError, match="k must be"):
        decoder.step(**token(inputs | {"k": inputs["k"][..., :2]}, 1))
    assert decoder.state()["state.length"].max() == 4
    assert all(torch.equal(state[name], copies[name]) for name in state)
    # A state that is asked for is no part of the memory either.
    decoder.state()["state.v"].zero_()
    decoder.start(state)
    assert torch.equal(decoder.step(**token(inputs, 0)), first)


def test_pairs_in_bfloat16_stay_so() -> None:
    inputs = cases.draw("softmax", dtype=torch.float32, T=9, Dk=16, Dv=16)
    rounded = inputs | {n: inputs[n].bfloat16().float() for n in ("k", "v")}
    expected, _ = cases.definition("softmax", rounded)
    _, state = regress("softmax", **token(inputs, 0), return_state=True)
    narrow = {n: t.bfloat16() if t.is_floating_point() else t for n, t in state.items()}
    decoder = Decoder("softmax")
    decoder.start(narrow)
    for t in range(1, 9):
        assert cases.worst(decoder.step(**token(inputs, t)), expected[:, t : t + 1]) < 1e-5
    assert decoder.state()["state.k"].dtype == torch.bfloat16


def test_a_mask_that_is_expanded_gets_the_sum_of_its_gradients() -> None:
    """torch.Tensor.expand has strides of 0, which go in as they are; autograd sums what comes out."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 7, 3, 4, dtype=torch.float64) for _ in range(3))
    bias = torch.randn(7, 7, dtype=torch.float64, requires_grad=True)
    wide = bias[None, :, None].expand(2, 7, 3, 7)
    y = regress("softmax{pair_bias: input}", q, k, v, pair_bias=wide)
    heads = [x.transpose(1, 2) for x in (q, k, v)]
    causal = torch.ones(7, 7, dtype=torch.bool).tril()
    mask = torch.where(causal, bias, -torch.inf)
    expected = torch.nn.functional.scaled_dot_product_attention(*heads, attn_mask=mask)
    assert torch.allclose(y, expected.transpose(1, 2), atol=1e-13)
    dy = torch.randn_like(y)
    (got,) = torch.autograd.grad(y, bias, dy, retain_graph=True)
    (wanted,) = torch.autograd.grad(expected, bias, dy.transpose(1, 2))
    assert torch.allclose(got, wanted, atol=1e-13)
