"""Decoders against whole sequences; copies and pickles go on bit for bit."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import ttr
from drawn import NAMES, draw, held, part, sizes_of, worst_token
from oracle import condition, definition

CAUSAL = [name for name in NAMES if ttr.state_specs(name)]


def decoder_of(name: str, **options: Any) -> ttr.Decoder:
    sizes = sizes_of(name)
    options = {"dtype": np.float64} | options
    return ttr.Decoder(
        name, key_dim=sizes["Dk"], value_dim=sizes["Dv"], heads=sizes["H"], batch=sizes["B"], **options
    )


@pytest.mark.parametrize("name", CAUSAL)
def test_steps_are_the_definition(name: str) -> None:
    inputs = draw(name, seed=6)
    expected, last = definition(name, inputs)
    decoder = decoder_of(name)
    tokens = range(sizes_of(name)["T"])
    y = np.concatenate([decoder.step(**part(inputs, name, t, t + 1)) for t in tokens], axis=1)
    limit = 32 * float(np.finfo(np.float64).eps) * condition(name, inputs)
    assert worst_token(y, expected) < limit
    state = decoder.state()
    assert state.keys() == last.keys()
    for key, array in held(state).items():
        assert np.allclose(array, last[key], rtol=limit, atol=limit * np.abs(last[key]).max())


@pytest.mark.parametrize("name", CAUSAL)
def test_a_prompt_then_tokens(name: str) -> None:
    inputs = draw(name, seed=7)
    layer = ttr.Layer(name)
    whole, _ = layer.forward(**inputs)
    _, state = layer.forward(**part(inputs, name, 0, 8))
    decoder = decoder_of(name)
    decoder.start(state)
    y = np.concatenate([decoder.step(**part(inputs, name, t, t + 1)) for t in range(8, 12)], axis=1)
    limit = 32 * float(np.finfo(np.float64).eps) * condition(name, inputs)
    assert worst_token(y, whole[:, 8:]) < limit
    decoder.start()
    assert decoder.state() == {}


@pytest.mark.parametrize("name", CAUSAL)
@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda d: pickle.loads(pickle.dumps(d))]
)
def test_copies_go_on_bit_for_bit(name: str, duplicate: Any) -> None:
    inputs = draw(name, seed=8)
    decoder = decoder_of(name)
    for t in range(6):
        decoder.step(**part(inputs, name, t, t + 1))
    again = duplicate(decoder)
    for t in range(6, 12):
        token = part(inputs, name, t, t + 1)
        assert np.array_equal(decoder.step(**token), again.step(**token))
    for key, array in decoder.state().items():
        assert np.array_equal(array, again.state()[key])
        assert not np.shares_memory(array, again.state()[key])


def test_a_saved_factor_goes_on_bit_for_bit() -> None:
    inputs = draw("rls", seed=9)
    decoder = decoder_of("rls")
    for t in range(6):
        decoder.memorize(**{key: a for key, a in part(inputs, "rls", t, t + 1).items() if key != "q"})
    saved, auxiliary = decoder.state(), decoder.auxiliary
    assert auxiliary is not None
    again = decoder_of("rls")
    again.start(saved)
    again.set_auxiliary(auxiliary)
    token = part(inputs, "rls", 6, 7)
    assert np.array_equal(decoder.step(**token), again.step(**token))
    with pytest.raises(ValueError, match="numbers must be"):
        again.set_auxiliary(auxiliary[..., :1])


def test_retrieve_reads_any_number_of_queries() -> None:
    inputs = draw("gated_deltanet")
    decoder = decoder_of("gated_deltanet")
    for t in range(5):
        given = part(inputs, "gated_deltanet", t, t + 1)
        given.pop("q")
        decoder.memorize(**given)
    y = decoder.retrieve(inputs["q"])
    expected = ttr.Layer("gated_deltanet").retrieve(inputs["q"], state=decoder.state())
    assert np.array_equal(y, expected)
    assert y.shape == (2, 12, 2, 4)


def test_a_state_is_not_what_later_steps_write() -> None:
    inputs = draw("gated_deltanet")
    decoder = decoder_of("gated_deltanet")
    decoder.step(**part(inputs, "gated_deltanet", 0, 1))
    state = decoder.state()
    before = state["state"].copy()
    decoder.step(**part(inputs, "gated_deltanet", 1, 2))
    assert np.array_equal(state["state"], before)


def test_outputs_of_the_caller() -> None:
    inputs = part(draw("gated_deltanet", dtype=np.float32), "gated_deltanet", 0, 1)
    decoder = decoder_of("gated_deltanet", dtype="float32")
    out = np.empty((2, 1, 2, 4), np.float32)
    assert decoder.step(**inputs, out={"y": out}) is out
    assert decoder.state()["state"].dtype == np.float32


def test_bad_decoders() -> None:
    with pytest.raises(ValueError, match="dtype must be float32, float64, bfloat16 or float16 but is int8"):
        decoder_of("gated_deltanet", dtype=np.int8)
    with pytest.raises(ValueError, match="Dk must be from 1"):
        ttr.Decoder("gated_deltanet", key_dim=0, value_dim=4)
    decoder = decoder_of("gated_deltanet")
    many = {name: array for name, array in draw("gated_deltanet").items() if name != "q"}
    with pytest.raises(ValueError, match="one token"):
        decoder.memorize(**many)
    with pytest.raises(ValueError, match="draft must be from 0 to 64 but is 65"):
        decoder_of("gated_deltanet", draft=65)
    with pytest.raises(ValueError, match="'foo'"):
        decoder.start({"foo": np.zeros(3)})
    assert "float64" in repr(decoder)


@pytest.mark.parametrize("name", CAUSAL)
def test_a_draft_that_is_taken_back_leaves_no_trace(name: str) -> None:
    inputs, wrong = draw(name, seed=10), draw(name, seed=11)
    constants = {key: inputs[key] for key in inputs if part(inputs, name, 0, 1)[key] is inputs[key]}
    plain, drafts = (decoder_of(name, draft=3) for _ in range(2))
    plain.step(**part(inputs, name, 0, 1))
    drafts.step(**part(inputs, name, 0, 1))
    for t in range(1, 9):
        drafts.step(**{**part(wrong, name, t, t + 3), **constants})
        assert drafts.pending >= 3
        drafts.roll_back(3)
        token = part(inputs, name, t, t + 1)
        assert np.array_equal(drafts.step(**token), plain.step(**token))
    with pytest.raises(ValueError, match="roll_back|RollBack"):
        drafts.roll_back(drafts.pending + 1)
    assert pickle.loads(pickle.dumps(drafts)).pending == 0


@pytest.mark.parametrize("recipe, report", [("rls", "leverage"), ("local_linear", "effective_pairs")])
def test_reports_of_tokens_are_those_of_the_whole(recipe: str, report: str) -> None:
    inputs = {name: x.astype(np.float64) for name, x in draw(recipe, seed=12).items()}
    heads = ttr.Layer(recipe).forward(**inputs)[0].shape[:3]
    want = np.empty(heads)
    ttr.Layer(recipe, engine="definition").forward(**inputs, out={report: want})
    decoder = decoder_of(recipe, dtype="float64")
    for t in range(heads[1]):
        got = np.empty((heads[0], 1, heads[2]))
        decoder.step(**part(inputs, recipe, t, t + 1), out={report: got})
        assert np.abs(got - want[:, t : t + 1]).max() <= 1e-9 * np.abs(want).max()
