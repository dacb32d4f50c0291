"""regress, on the CPU: values against the definition, shapes, dtypes, strides, states."""

from __future__ import annotations

from typing import Any

import operator_cases as cases
import pytest
import torch
import ttr
from drawn import held
from ttr.torch import cu_seqlens_of, regress

# Some ten roundings of the dtype; of bfloat16 one, that of y.
ROUNDING = {torch.float64: 1e-11, torch.float32: 2e-6, torch.bfloat16: 2**-8}


@pytest.mark.parametrize("name", cases.NAMES)
def test_values_and_states_are_the_definitions(name: str) -> None:
    inputs = cases.draw(name)
    y, state = regress(name, **inputs, return_state=True)
    expected, final = cases.definition(name, inputs)
    assert y.shape == expected.shape and y.dtype == torch.float64
    assert cases.worst(y, expected) < ROUNDING[torch.float64]
    assert state.keys() == final.keys()
    for entry, numbers in final.items():
        assert state[entry].shape == numbers.shape, entry
        torch.testing.assert_close(state[entry], numbers, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", cases.NAMES)
def test_a_sequence_may_be_split_anywhere(name: str) -> None:
    if not ttr.Recipe(name).option("causal") == "true":
        pytest.skip("reads the whole sequence at once")
    inputs = cases.draw(name, T=8)
    steps = cases.sizes_of(name)["T n"] // cases.sizes_of(name)["T"]
    whole, last = regress(name, **inputs, return_state=True)
    axes = {s["keyword"]: s["shapes"][0] for s in ttr.input_specs(name)}

    def part(begin: int, end: int) -> dict[str, Any]:
        cut: dict[str, Any] = {}
        for entry, tensor in inputs.items():
            second = axes[entry][1] if len(axes[entry]) > 1 else ""
            n = {"T": 1, "T n": steps}.get(second, 0)
            cut[entry] = tensor[:, begin * n : end * n] if n else tensor
        return cut

    first, state = regress(name, **part(0, 3), return_state=True)
    kept = {entry: tensor.clone() for entry, tensor in state.items()}
    second, state2 = regress(name, **part(3, 8), state=state, return_state=True)
    for entry, tensor in kept.items():  # what is given stays as it is
        assert torch.equal(tensor, state[entry])
    torch.testing.assert_close(torch.cat([first, second], 1), whole, rtol=1e-8, atol=1e-8)
    reached = held(state2)
    for entry, tensor in last.items():
        torch.testing.assert_close(reached[entry], tensor, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["gated_deltanet", "mamba2", "mesa", "rwkv7", "lru", "softmax"])
def test_dtypes(name: str, dtype: torch.dtype) -> None:
    inputs = cases.draw(name, dtype=dtype)
    wide: dict[str, Any] = {n: t if n in ("q", "k", "v") else t.float() for n, t in inputs.items()}
    for given in (inputs, wide):  # gates may be wider than q, k and v
        y, state = regress(name, **given, return_state=True)
        assert y.dtype == dtype
        assert all(t.dtype in (torch.float32, torch.int64) for t in state.values())
        assert cases.worst(y, cases.definition(name, given)[0]) < ROUNDING[dtype]


@pytest.mark.parametrize("engine", ["definition", None])
def test_the_operator_takes_the_definition_too(engine: str | None) -> None:
    inputs = list(cases.draw("retnet").values())
    y, final, saved = torch.ops.ttr.forward("retnet", inputs, 7, [], 0, engine=engine)
    expected, state = cases.definition("retnet", cases.draw("retnet"))
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(final[0], state["state"])
    assert saved == []


def test_grouped_heads() -> None:
    inputs = cases.draw("gated_deltanet", Hq=2, Hk=1, Hv=4, H=4)
    y = regress("gated_deltanet", **inputs)
    assert y.shape == (2, 9, 4, 4)
    assert cases.worst(y, cases.definition("gated_deltanet", inputs)[0]) < ROUNDING[torch.float64]
    several = cases.draw("gated_deltanet", Hq=4)
    y = regress("gated_deltanet", **several)
    assert y.shape == (2, 9, 4, 4)
    assert cases.worst(y, cases.definition("gated_deltanet", several)[0]) < ROUNDING[torch.float64]


@pytest.mark.parametrize("name", ["gated_deltanet", "mesa", "lru", "softmax", "ttt_linear"])
@pytest.mark.parametrize("batch, tokens", [(2, 0), (0, 3), (2, 1)])
def test_empty_and_one_token(name: str, batch: int, tokens: int) -> None:
    inputs = cases.draw(name, B=batch, T=tokens)
    y, state = regress(name, **inputs, return_state=True)
    assert y.shape == (batch, tokens, 2, 4)
    for spec in ttr.state_specs(name):
        assert state[spec["name"]].shape[0] == batch
    if batch:
        expected, final = cases.definition(name, inputs)
        assert cases.worst(y, expected) < ROUNDING[torch.float64]
        for entry, numbers in final.items():
            torch.testing.assert_close(state[entry], numbers)


def test_strides() -> None:
    inputs = cases.draw("gated_deltanet")
    y = regress("gated_deltanet", **inputs)
    for form in (
        lambda t: t.transpose(1, 2).contiguous().transpose(1, 2),  # tokens innermost but one
        lambda t: t.transpose(1, -1).contiguous().transpose(1, -1),  # the last axis is strided
        lambda t: torch.stack([t, t], 2)[:, :, 0],
    ):
        strided: dict[str, Any] = {n: form(t) for n, t in inputs.items()}
        assert not all(t.is_contiguous() for t in strided.values())
        assert torch.equal(regress("gated_deltanet", **strided), y)
    one: dict[str, Any] = {n: t[:1, :, :1].expand(2, -1, 2, *t.shape[3:]) for n, t in inputs.items()}
    same: dict[str, Any] = {n: t.contiguous() for n, t in one.items()}
    assert torch.equal(regress("gated_deltanet", **one), regress("gated_deltanet", **same))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_packed_sequences(dtype: torch.dtype) -> None:
    inputs = cases.draw("gated_deltanet", B=1, T=11)
    bounds = torch.tensor([0, 4, 4, 5, 11], dtype=dtype)
    y, state = regress("gated_deltanet", **inputs, cu_seqlens=bounds, return_state=True)
    assert state["state"].shape == (4, 2, 4, 4)
    for begin, end in [(0, 4), (4, 5), (5, 11)]:
        alone = regress("gated_deltanet", **{n: t[:, begin:end] for n, t in inputs.items()})
        torch.testing.assert_close(y[:, begin:end], alone)


def test_numbered_tokens_are_packed_sequences() -> None:
    numbers = torch.tensor([[3, 3, 3, 0, 0, 7]], dtype=torch.int32)
    assert cu_seqlens_of(numbers).tolist() == [0, 3, 5, 6]
    assert cu_seqlens_of(numbers[0]).tolist() == [0, 3, 5, 6]
    assert cu_seqlens_of(numbers[:, :1]).tolist() == [0, 1]
    with pytest.raises(ValueError, match="seq_idx must be"):
        cu_seqlens_of(torch.zeros(2, 3, dtype=torch.int32))
    with pytest.raises(ValueError, match="seq_idx must be"):
        cu_seqlens_of(torch.zeros(3))


def test_recipes_in_every_form() -> None:
    inputs = cases.draw("deltanet")
    y = regress("deltanet", **inputs)
    recipe = ttr.Recipe("deltanet")
    for form in (recipe, str(recipe), recipe.to_dict()):
        assert torch.equal(regress(form, **inputs), y)


def test_parts_of_a_state() -> None:
    inputs, state = cases.draw("mlstm"), cases.reached("mlstm")
    y = regress("mlstm", **inputs, state=state)
    assert cases.worst(y, cases.definition("mlstm", inputs, state)[0]) < ROUNDING[torch.float64]
    assert torch.equal(regress("mlstm", **inputs, state={}), regress("mlstm", **inputs))
    one = {"state.w1": torch.randn(2, 2, 4, 4, dtype=torch.float64)}
    inputs = cases.draw("ttt_linear")
    y, final = regress("ttt_linear", **inputs, state=one, return_state=True)
    assert cases.worst(y, cases.definition("ttt_linear", inputs, one)[0]) < ROUNDING[torch.float64]
    assert final["state.g_w1"].abs().max() > 0  # what this mini-batch has gathered so far


@pytest.mark.parametrize("name", ["gated_deltanet", "mamba", "mesa"])
def test_any_number_of_threads_gives_the_same_bits(name: str) -> None:
    inputs = cases.draw(name, dtype=torch.float32, B=3, T=70)
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            given = {n: t.clone().requires_grad_() for n, t in inputs.items()}
            y = regress(name, **given)
            y.square().sum().backward()
            results.append([y.detach(), *(t.grad for t in given.values())])
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        for a, b in zip(results[0], other):
            assert a is not None and b is not None and torch.equal(a, b)


def test_bfloat16_products() -> None:
    inputs = cases.draw("gated_deltanet", dtype=torch.bfloat16, T=130, Dk=16, Dv=16)
    y = regress("gated_deltanet", **inputs, bfloat16_products=True)
    assert cases.worst(y, cases.definition("gated_deltanet", inputs)[0]) < 1e-2
