"""Pools and drafts: against decoders of single streams, and those that never saw what was taken back."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import operator_cases as cases
import pytest
import torch
import ttr
from drawn import held
from ttr.torch import Decoder, StatePool, regress, regress_at

CAUSAL = [n for n in cases.NAMES if ttr.Recipe(n).option("causal") == "true"]
SIZED = [n for n in CAUSAL if "S" not in str([s["shape"] for s in ttr.state_specs(n)])]


def cut(name: str, inputs: dict[str, Any], begin: int, end: int) -> dict[str, Any]:
    sizes = cases.sizes_of(name)
    steps = sizes["T n"] // sizes["T"]
    made: dict[str, Any] = {}
    for spec in ttr.input_specs(name):
        if spec["keyword"] not in inputs:
            continue
        axes = spec["shapes"][0]
        n = {"T": 1, "T n": steps}.get(axes[1] if len(axes) > 1 else "", 0)
        tensor = inputs[spec["keyword"]]
        made[spec["keyword"]] = tensor[:, begin * n : end * n] if n else tensor
    return made


def rows(name: str, inputs: dict[str, Any], wanted: list[int]) -> dict[str, Any]:
    per_batch = {s["keyword"] for s in ttr.input_specs(name) if s["shapes"][0][0] == "B"}
    return {key: t[wanted] if key in per_batch else t for key, t in inputs.items()}


def pool_for(name: str, inputs: dict[str, Any], slots: int, **options: Any) -> StatePool:
    v, q, k = inputs["v"], inputs.get("q"), inputs.get("k")
    with_state = regress(name, **rows(name, inputs, [0]), return_state=True)[1]
    heads = next(iter(with_state.values())).shape[1]
    keys = v if k is None and q is None else q if k is None else k
    return StatePool(
        name,
        slots,
        key_dim=keys.shape[-1],
        value_dim=v.shape[-1],
        heads=heads,
        query_heads=None if q is None else q.shape[2],
        key_heads=None if k is None else k.shape[2],
        value_heads=v.shape[2],
        features=inputs["features_w"].shape[1] if "features_w" in inputs else 0,
        dtype=torch.float64,
        **options,
    )


@pytest.mark.parametrize("name", SIZED)
def test_slots_answer_as_decoders(name: str) -> None:
    inputs = cases.draw(name, T=6)
    pool = pool_for(name, inputs, 5)
    alone = [Decoder(name), Decoder(name)]
    slot_of = [3, 0]
    for t in range(6):
        token = cut(name, inputs, t, t + 1)
        order = [[1, 0], [0, 1], [1]][t % 3]
        dtype = torch.int32 if t % 2 else torch.int64
        y = pool.step_(
            torch.tensor([slot_of[s] for s in order], dtype=dtype), **rows(name, token, order)
        )
        for row, s in enumerate(order):
            torch.testing.assert_close(
                y[row : row + 1], alone[s].step(**rows(name, token, [s])), rtol=1e-9, atol=1e-9
            )
    pool.copy_([3], [4])
    for entry, tensor in alone[0].state().items():
        torch.testing.assert_close(pool.state(4)[entry], tensor, rtol=1e-9, atol=1e-9)
    pool.free_(3)
    assert pool.state(3) == {}


@pytest.mark.parametrize("name", CAUSAL)
def test_drafts_leave_no_trace(name: str) -> None:
    inputs, wrong = cases.draw(name, T=9), cases.draw(name, T=9, seed=5)
    plain, drafts = Decoder(name, draft=3), Decoder(name, draft=3)
    for decoder in (plain, drafts):  # the first weight of mLSTM cannot be taken back
        decoder.step(**cut(name, inputs, 0, 1))
    for t in range(1, 7, 2):
        drafts.step(**cut(name, wrong | constants(name, inputs), t, t + 3))
        drafts.roll_back(3)
        y = drafts.step(**cut(name, inputs, t, t + 3))
        assert torch.equal(y[:, :2], plain.step(**cut(name, inputs, t, t + 2)))
        assert drafts.pending >= 3
        drafts.roll_back(1)
        drafts = copy.deepcopy(drafts) if t == 3 else pickle.loads(pickle.dumps(drafts))
    expected = plain.state()
    for entry, tensor in drafts.state().items():
        if entry not in ("state.k", "state.v"):  # which have room behind the pairs
            assert torch.equal(tensor, expected[entry])


def constants(name: str, inputs: dict[str, Any]) -> dict[str, Any]:
    per_batch = {s["keyword"] for s in ttr.input_specs(name) if s["shapes"][0][0] == "B"}
    return {key: t for key, t in inputs.items() if key not in per_batch}


def test_a_decoder_with_a_draft_goes_on_from_a_state() -> None:
    inputs = cases.draw("gated_deltanet", T=6)
    whole = regress("gated_deltanet", **inputs)
    _, state = regress("gated_deltanet", **cut("gated_deltanet", inputs, 0, 3), return_state=True)
    decoder = Decoder("gated_deltanet", draft=2)
    decoder.start(state)
    y = decoder.step(**cut("gated_deltanet", inputs, 3, 6))
    torch.testing.assert_close(y, whole[:, 3:], rtol=1e-9, atol=1e-9)
    decoder.start(None)
    assert decoder.state() == {} and decoder.pending == 0


def test_prompts_are_packed_and_compiled() -> None:
    inputs = cases.draw("kda", T=5)
    pool = pool_for("kda", inputs, 4)
    flat = {key: t.flatten(0, 1).unsqueeze(0) for key, t in inputs.items()}
    bounds = torch.tensor([0, 5, 10], dtype=torch.int32)
    y = pool.step_([2, -1], **flat, cu_seqlens=bounds)
    expected, state = regress("kda", **rows("kda", inputs, [0]), return_state=True)
    torch.testing.assert_close(y[:, :5], expected, rtol=1e-9, atol=1e-9)
    assert not y[:, 5:].any()
    torch.testing.assert_close(pool.state(2)["state"], state["state"], rtol=1e-9, atol=1e-9)

    token = cut("kda", inputs, 0, 1)
    slots = torch.tensor([1, 2])
    other = copy.deepcopy(pool)
    compiled = torch.compile(lambda s, t: pool.step_(s, **t) * 2, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(slots, token), other.step_(slots, **token) * 2)
    assert torch.equal(pool.memory, other.memory)


@pytest.mark.parametrize("name", ["gated_deltanet", "delta_product", "softmax", "rls"])
def test_states_at_inner_tokens(name: str) -> None:
    inputs = cases.draw(name, T=7)
    whole, last = regress(name, **inputs, return_state=True)
    y, state, states = regress_at(name, [2, 6], **inputs)
    torch.testing.assert_close(y, whole, rtol=1e-8, atol=1e-8)
    for entry, tensor in held(last).items():
        torch.testing.assert_close(held(state)[entry], tensor, rtol=1e-8, atol=1e-8)
    rest = regress(name, **cut(name, inputs, 6, 7), state=states[1])
    assert torch.equal(rest, y[:, 6:])
    with pytest.raises(ValueError, match="at must rise from 1 to 7"):
        regress_at(name, [0, 3], **inputs)
    packed = {"cu_seqlens": torch.tensor([0, 7])}
    with pytest.raises(ValueError, match="cu_seqlens must be absent"):
        regress_at(name, [3], **rows(name, inputs, [0]), **packed)


def test_errors() -> None:
    inputs = cases.draw("deltanet", T=1)
    pool = pool_for("deltanet", inputs, 3)
    for slots, message in [
        ([0, 3], "from -1 to 2 but is 3"),
        ([1, 1], "different ones but is twice 1"),
        ([1], "2, one for each sequence"),
        (torch.tensor([[0, 1]]), r"int32 or int64 \[sequences\]"),
        (torch.tensor([0.0, 1.0]), r"int32 or int64 \[sequences\]"),
    ]:
        with pytest.raises(ValueError, match=message):
            pool.step_(slots, **inputs)
    assert not pool.memory.any()  # not even a header
    with pytest.raises(RuntimeError, match="regress"):
        pool.step_([0, 1], **(inputs | {"k": inputs["k"].requires_grad_()}))
    with pytest.raises(ValueError, match="keeps its pairs grows"):
        StatePool("softmax", 2, key_dim=4, value_dim=4)
    with pytest.raises(ValueError, match="dtype must be float32, float64, bfloat16 or float16"):
        StatePool("deltanet", 2, key_dim=4, value_dim=4, dtype=torch.int8)
    with pytest.raises(ValueError, match="draft must be from 0 to 64"):
        Decoder("deltanet", draft=65)
    decoder = Decoder("deltanet", draft=2)
    with pytest.raises(ValueError, match="from 0 to 0 to be taken back but are 1"):
        decoder.roll_back(1)


@pytest.mark.parametrize("decay", [-1.0, -9.0, -25.0, -60.0])
@pytest.mark.parametrize("name", ["gated_deltanet", "kda", "mamba2"])
def test_drafts_go_back_past_strong_decays(name: str, decay: float) -> None:
    """What has decayed below rounding is written at once; it is taken back as well."""
    generator = torch.Generator().manual_seed(1)
    inputs = cases.draw(name, T=60)
    inputs["log_decay"] = decay * torch.rand(inputs["log_decay"].shape, generator=generator).double()
    drafts, plain, at = Decoder(name, draft=8), Decoder(name, draft=8), 0
    drafts.step(**cut(name, inputs, 0, 1))
    plain.step(**cut(name, inputs, 0, 1))
    calls = [((5,), 2), ((1, 1, 1, 1), 1), ((3, 1, 4), 0), ((2, 6), 3), ((8,), 7), ((1, 5), 6)]
    for lengths, right in calls:
        for length in lengths:
            begin = at + 1 + (20 if right == 0 else 0)
            drafts.step(**cut(name, inputs, begin, begin + length))
            at += length
        read = sum(lengths)
        assert drafts.pending >= read
        drafts.roll_back(read - right)
        at -= read - right
        if right:
            plain.step(**cut(name, inputs, at - right + 1, at + 1))
        expected = copy.deepcopy(plain).state()
        for entry, tensor in copy.deepcopy(drafts).state().items():
            torch.testing.assert_close(tensor, expected[entry], rtol=1e-12, atol=1e-12)
