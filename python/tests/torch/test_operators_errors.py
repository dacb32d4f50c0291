"""Bad input: ValueError that names the argument as it was written, before any work."""

from __future__ import annotations

import json
from typing import Any

import operator_cases as cases
import pytest
import torch
from ttr.torch import _library, regress
from ttr.torch._arguments import arrange

INPUTS = cases.draw("gated_deltanet")
RELU = "linear_attention{features: t2r}"


@pytest.mark.parametrize(
    "changes, text",
    [
        ({"k": INPUTS["k"][..., :2]}, r"k must be \[B,T,Hk,Dk\] = \[2,9,2,4\] but is \[2,9,2,2\]"),
        ({"q": INPUTS["q"][:, :5]}, "q|k"),
        ({"v": INPUTS["v"][0]}, "v must be"),
        ({"v": None}, "v must be"),
        ({"step": None}, "step must be"),
        ({"step": INPUTS["step"].int()}, "step must be float32, float64, bfloat16 or float16"),
        ({"q": INPUTS["q"].to(torch.complex128)}, "q must be float32, float64, bfloat16 or float16"),
        ({"q": INPUTS["q"].int()}, "q must be float32, float64, bfloat16 or float16"),
        ({"q": INPUTS["q"][None, None]}, "q must be"),
        ({"log_decay": -INPUTS["log_decay"]}, "log_decay must be <= 0"),
        ({"step": -INPUTS["step"]}, "step must be >= 0"),
        ({"momentum": INPUTS["step"]}, "momentum must be absent"),
        ({"stepp": INPUTS["step"]}, r"'stepp' must be an input of gated_deltanet \(q, k, v, log_decay, step, cu_seqlens\) "
                                        r"but is none: did you mean step\?"),
        ({"cu_seqlens": torch.tensor([0, 9])}, "B must be 1 beside cu_seqlens"),
        ({"cu_seqlens": torch.tensor([0.0, 9.0])}, "cu_seqlens must be int64"),
        ({"state": {"state": torch.zeros(2, 2, 4, 3)}}, "state must be"),
        ({"state": {"state": torch.zeros(2, 2, 4, 4).char()}}, "state must be float32, float64, bfloat16 or"),
        ({"state": {"state.n": torch.zeros(2, 2, 4)}}, r"state must be .* but has 'state.n'"),
    ],
)
@pytest.mark.parametrize("grad", [False, True])
def test_what_regress_refuses(changes: dict[str, Any], text: str, grad: bool) -> None:
    inputs = {**cases.draw("gated_deltanet", grad=grad), **changes}
    with pytest.raises(ValueError, match=text):
        regress("gated_deltanet", **inputs)


@pytest.mark.parametrize("name, meant", [("g", "log_decay"), ("beta", "step"), ("log_deacy", "log_decay")])
def test_a_name_of_another_library_leads_to_ours(name: str, meant: str) -> None:
    inputs = cases.draw("gated_deltanet")
    with pytest.raises(ValueError, match=rf"'{name}' must be .* did you mean {meant}\?") as caught:
        regress("gated_deltanet", **inputs, **{name: inputs["step"]})
    assert "ridge" not in str(caught.value)


def test_sequences_that_fall() -> None:
    inputs = cases.draw("gated_deltanet", B=1)
    for bounds in ([0, 5, 4, 9], [0, 8], [1, 9], [0, 10]):
        with pytest.raises(ValueError, match="cu_seqlens must be from 0 to T = 9"):
            regress("gated_deltanet", **inputs, cu_seqlens=torch.tensor(bounds, dtype=torch.int32))


def test_names_are_those_of_the_caller() -> None:
    inputs = cases.draw(RELU)
    with pytest.raises(ValueError, match=r"features_w must be"):
        regress(RELU, **{**inputs, "features_w": inputs["features_w"][..., :2]})
    with pytest.raises(ValueError, match=r"features_w must be"):
        regress(RELU, **{**inputs, "features_w": None})


@pytest.mark.parametrize(
    "recipe, text",
    [
        ("gated_deltanot", "gated_deltanet"),
        ("gated_deltanet{stepp: one}", "stepp"),
        ("", "recipe"),
        ("a" * 5000, "4096"),
        ("uniform | linear | sgd(momentum: true, steps: 0)", "steps"),
    ],
)
def test_recipes_that_are_none(recipe: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        regress(recipe, **INPUTS)


def test_a_given_state_stays_as_it_is_where_a_call_fails() -> None:
    state = cases.reached("gated_deltanet")
    before = state["state"].clone()
    with pytest.raises(ValueError, match="log_decay"):
        regress("gated_deltanet", **{**INPUTS, "log_decay": -INPUTS["log_decay"]}, state=state)
    assert torch.equal(state["state"], before)


def test_nan_is_data() -> None:
    inputs = cases.draw("gated_deltanet")
    inputs["v"][0, 5, 1] = torch.nan
    y = regress("gated_deltanet", **inputs)
    bad = y.isnan().any(-1)
    assert bad[0, 5:, 1].all()
    bad[0, 5:, 1] = False
    assert not bad.any()


def test_lists_and_bits_that_do_not_fit() -> None:
    tensors = list(INPUTS.values())
    for given in (1, 1 << 40, -1):
        with pytest.raises(ValueError, match="as many tensors as its number has bits"):
            _library.forward("gated_deltanet", tensors, given, [], 0)
    with pytest.raises(ValueError, match="as many tensors as its number has bits"):
        _library.forward("gated_deltanet", tensors, 0b100010111, [], 1)


@pytest.mark.parametrize(
    "record, text",
    [
        ("", "memory must be a record of sizes in JSON"),
        ("[1, 2]", "memory must be a record of sizes in JSON"),
        ('{"H": 1', "memory must be a record of sizes in JSON"),
        ('{"Hh": 1}', "a size 'Hh'"),
        ('{"H": 1.5}', "H = 1.5"),
        ('{"H": 18446744073709551615}', "H = 18446744073709551615"),
        ('{"state": "int8"}', 'state = "int8"'),
        ('{"draft": "4"}', 'draft = "4"'),
        ('{"draft": 65}', "draft must be from 0 to 64"),
        (json.dumps(dict.fromkeys(_library.SIZES, -1)), "must be from"),
    ],
)
def test_records_of_memories_that_are_none(record: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        _library.decoder_bytes("gated_deltanet", record)


def test_what_a_record_leaves_out_has_its_default() -> None:
    token = cases.draw("gated_deltanet", T=1, B=1)
    rows = (token.pop(name) for name in "qkv")
    sizes = _library.sizes_of("gated_deltanet", *arrange("gated_deltanet", *rows, token))
    whole = _library.decoder_bytes("gated_deltanet", _library.record(sizes, torch.float32))
    assert sizes["Hq"] == sizes["Hk"] == sizes["Hv"] == sizes["H"]
    short = json.dumps({name: sizes[name] for name in ("H", "Dk", "Dv")})
    assert _library.decoder_bytes("gated_deltanet", short) == whole
