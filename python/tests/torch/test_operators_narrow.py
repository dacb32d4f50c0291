"""Decoders and pools whose states lie in bfloat16 or float16, beside each other and beside float32."""

from __future__ import annotations

import copy
from typing import Any

import operator_cases as cases
import pytest
import torch
import ttr
from ttr.torch import Decoder, StatePool

LAYERS = ["deltanet", "gated_deltanet", "kda", "gla", "mlstm"]
ROUNDING = {torch.bfloat16: 2**-8, torch.float16: 2**-11}


def token(name: str, inputs: dict[str, Any], t: int) -> dict[str, Any]:
    """Token t, in float32."""
    sizes = cases.sizes_of(name)
    assert sizes["T n"] == sizes["T"], "one row a token"
    per_token = {s["keyword"] for s in ttr.input_specs(name) if "T" in s["shapes"][0]}
    return {
        key: (x[:, t : t + 1] if key in per_token or key in "qkv" else x).float() for key, x in inputs.items()
    }


def pool_of(name: str, dtype: torch.dtype) -> StatePool:
    sizes = cases.sizes_of(name)
    heads = {"heads": sizes["H"], "query_heads": sizes["Hq"]}
    others = {"key_heads": sizes["Hk"], "value_heads": sizes["Hv"]}
    return StatePool(
        name, sizes["B"], key_dim=sizes["Dk"], value_dim=sizes["Dv"], dtype=dtype, **heads, **others
    )


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("name", LAYERS)
def test_decoders_and_slots_agree(name: str, dtype: torch.dtype) -> None:
    inputs = cases.draw(name)
    wide, narrow = Decoder(name), Decoder(name, dtype=dtype)
    pool = pool_of(name, dtype)
    slots = torch.arange(cases.sizes_of(name)["B"])
    largest = torch.zeros(())
    for t in range(cases.sizes_of(name)["T"]):
        inputs_of = token(name, inputs, t)
        y = wide.step(**inputs_of)
        largest = torch.maximum(largest, y.abs().max())
        answer = narrow.step(**inputs_of)
        assert (answer - y).abs().max() <= 32 * ROUNDING[dtype] * largest
        assert torch.equal(pool.step_(slots, **inputs_of), answer)
        narrow = copy.deepcopy(narrow)
    state = narrow.state()
    assert state.keys() == wide.state().keys()
    for key, entry in wide.state().items():
        assert state[key].dtype == entry.dtype
    again = Decoder(name, dtype=dtype)
    again.start(state)
    y = again.step(**token(name, inputs, 0))
    assert (y - narrow.step(**token(name, inputs, 0))).abs().max() <= 32 * ROUNDING[dtype] * largest


def test_a_draft_goes_back() -> None:
    name = "gated_deltanet"
    inputs = cases.draw(name)
    plain, drafts = (Decoder(name, draft=3, dtype=torch.bfloat16) for _ in range(2))
    for t in range(2):
        first, second = token(name, inputs, t), token(name, inputs, t + 1)
        drafts.step(**second)
        drafts.roll_back(1)
        assert torch.equal(drafts.step(**first), plain.step(**first))


def test_what_is_refused() -> None:
    for made in (Decoder, lambda *a, **k: StatePool(*a, slots=1, key_dim=4, value_dim=4, **k)):
        with pytest.raises(ValueError, match="dtype must be float32, float64, bfloat16 or float16"):
            made("gated_deltanet", dtype=torch.int8)
    with pytest.raises(ValueError, match="whose writes cannot wait"):
        StatePool("rls", slots=1, key_dim=4, value_dim=4, dtype=torch.bfloat16)
    decoder = Decoder("rls", dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="whose writes cannot wait"):
        decoder.step(**token("rls", cases.draw("rls"), 0))
