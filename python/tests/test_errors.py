"""Bad input: a ValueError that names the argument as it was written, and nothing done."""

from typing import Any

import numpy as np
import pytest
import ttr
from drawn import draw

NAME = "gated_deltanet"
Q = np.zeros((2, 12, 2, 4))


@pytest.mark.parametrize(
    "change, text",
    [
        ({"k": np.zeros((2, 12, 2, 5))}, r"k must be \[B,T,Hk,Dk\] = \[2,12,2,4\] but is \[2,12,2,5\]"),
        ({"k": np.zeros((2, 12, 8))}, r"k must be \[B,T,Hk,Dk\]"),
        ({"k": np.zeros((1, 1, 2, 12, 4))}, "k must be of at most 4 dimensions but is of 5"),
        ({"v": None}, "v must be .* but is absent"),
        ({"step": np.zeros((2, 11, 2))}, r"step must be \[B,T,H\] = \[2,12,2\]"),
        ({"log_decay": np.full((2, 12, 2), 0.5)}, "log_decay must be <= 0 but is 0.5"),
        ({"step": np.full((2, 12, 2), -1.0)}, "step must be >= 0 but is -1"),
        ({"q": Q.astype(np.complex64)}, "q must be float32, float64, bfloat16 or float16 but is complex64"),
        ({"q": Q.astype(np.int32)}, "q must be float32, float64, bfloat16 or float16 but is int32"),
        ({"q": Q.astype(np.complex64)}, "q must be .* but is complex64"),
        ({"q": Q > 0}, "q must be .* but is bool"),
        ({"q": "text"}, "q must be .* but is a str"),
        ({"q": object()}, "q must be"),
        ({"q": [[1.0], [1.0, 2.0]]}, "q must be an array of numbers but is a list"),
        ({"bonus": np.zeros((2, 4))}, "bonus must be absent, for .* does not take it"),
        ({"cu_seqlens": np.array([0, 12])}, "B must be 1 beside cu_seqlens"),
        ({"cu_seqlens": np.array([0.0, 12.0])}, "cu_seqlens must be int64 but is float64"),
        ({"state": {"foo": Q}}, "must be one of state but is 'foo'"),
        ({"state": {"state": Q}}, r"state must be"),
        ({"state": {"state": np.zeros((2, 2, 4, 4), np.int64)}}, "state must be"),
        ({"state": [Q]}, "state must be a dictionary"),
        ({"state": {3: Q}}, "name in state must be text but is 3"),
        ({"threads": 0}, "threads must be a number from 1, or None, but is 0"),
        ({"threads": "two"}, "threads must be"),
        ({"out": {"z": Q}}, "name in out must be one of y, .*, effective_pairs but is 'z'"),
        ({"out": {"y": Q[:, :3]}}, "y must be"),
        ({"out": {"y": Q.tolist()}}, "y must be an array that can be written but is a list"),
    ],
)
def test_forward_refuses(change: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        ttr.Layer(NAME).forward(**(draw(NAME) | change))


def test_a_name_that_no_input_has() -> None:
    inputs = draw(NAME)
    inputs["log_dekay"] = inputs.pop("log_decay")
    with pytest.raises(TypeError, match=r"'log_dekay'.*takes q, k, v, log_decay, step.*mean 'log_decay'"):
        ttr.Layer(NAME).forward(**inputs)


def test_features_are_named_as_they_are_written() -> None:
    name = "linear_attention{features: t2r}"
    inputs = draw(name)
    inputs["features_w"] = inputs["features_w"][..., :3]
    with pytest.raises(ValueError, match="features_w must be"):
        ttr.Layer(name).forward(**inputs)
    del inputs["features_w"]
    with pytest.raises(ValueError, match="features_w must be .* but is absent"):
        ttr.Layer(name).forward(**inputs)


@pytest.mark.parametrize("name, meant", [("g", "log_decay"), ("beta", "step"), ("log_deacy", "log_decay")])
def test_a_name_of_another_library_leads_to_ours(name: str, meant: str) -> None:
    inputs = draw(NAME)
    text = rf"there is no input '{name}'; this recipe takes q, k, v, .* \(did you mean '{meant}'\?\)"
    with pytest.raises(TypeError, match=text):
        ttr.Layer(NAME).forward(**inputs, **{name: inputs["step"]})
    token = {key: array[:, :1] for key, array in inputs.items()}
    decoder = ttr.Decoder(NAME, key_dim=4, value_dim=4, heads=2, batch=2)
    with pytest.raises(TypeError, match=text):
        decoder.step(**token, **{name: token["step"]})


def test_a_name_that_means_nothing_here_leads_nowhere() -> None:
    inputs = draw("linear_attention")
    with pytest.raises(TypeError, match=r"no input 'beta'; this recipe takes q, k, v, cu_seqlens$"):
        ttr.Layer("linear_attention").forward(**inputs, beta=inputs["q"])


def test_sequences_that_fall() -> None:
    inputs = draw(NAME, B=1)
    with pytest.raises(ValueError, match="cu_seqlens must be from 0 to T = 12 without falling"):
        ttr.Layer(NAME).forward(**inputs, cu_seqlens=np.array([0, 8, 5, 12]))


def test_what_is_written_must_be_writable_and_apart() -> None:
    inputs = draw(NAME)
    layer = ttr.Layer(NAME)
    y, _ = layer.forward(**inputs)
    fixed = y.copy()
    fixed.setflags(write=False)
    with pytest.raises(ValueError, match="y must be writable but is read-only"):
        layer.forward(**inputs, out={"y": fixed})
    with pytest.raises(ValueError, match="y must"):
        layer.forward(**inputs, out={"y": np.broadcast_to(y[:1], y.shape).copy()[::-1, :, :, ::-1]})
    with pytest.raises(ValueError, match="y must"):
        layer.forward(**inputs, out={"y": inputs["v"]})
    token = {key: array[:, :1] for key, array in inputs.items()}
    state = {"state": np.zeros((2, 2, 4, 4))}
    state["state"].setflags(write=False)
    with pytest.raises(ValueError, match="state must be writable but is read-only"):
        layer.step(**token, state=state)
    with pytest.raises(TypeError, match="state must be a dictionary"):
        layer.step(**token, state=None)  # type: ignore[arg-type]


def test_nothing_is_written_by_a_call_that_is_refused() -> None:
    inputs = draw(NAME)
    inputs["log_decay"][1, 11, 1] = 0.1
    layer = ttr.Layer(NAME)
    out = {"y": np.full((2, 12, 2, 4), 7.0), "status": np.full((2, 12, 2), 7, np.int8)}
    with pytest.raises(ValueError, match="log_decay"):
        layer.forward(**inputs, out=out)
    assert (out["y"] == 7).all() and (out["status"] == 7).all()
    state = {"state": np.full((2, 2, 4, 4), 7.0)}
    token = {key: array[:, 11:] for key, array in inputs.items()}
    with pytest.raises(ValueError, match="log_decay"):
        layer.step(**token, state=state)
    assert (state["state"] == 7).all()
    empty: dict[str, Any] = {}
    with pytest.raises(ValueError, match="log_decay"):
        layer.step(**token, state=empty)
    assert empty == {}


def test_more_than_one_token_is_no_step() -> None:
    with pytest.raises(ValueError, match=r"v must be one token \(T = 1\) but is T = 12"):
        ttr.Layer(NAME).step(**draw(NAME), state={})


def test_a_recipe_that_is_not_causal_has_no_state() -> None:
    name = "linear_attention{causal: false}"
    inputs = draw(name)
    y, state = ttr.Layer(name).forward(**inputs)
    assert state == {} and y.shape == (2, 12, 2, 4)
    with pytest.raises(ValueError, match="causal"):
        ttr.Decoder(name, key_dim=4, value_dim=4)
    with pytest.raises(ValueError, match="causal"):
        ttr.Memory(name)


def test_sizes_that_no_memory_holds() -> None:
    def row(size: int) -> np.ndarray:
        return np.lib.stride_tricks.as_strided(np.zeros(1), (1, 1, 1, size), (8, 8, 8, 8))

    with pytest.raises(ValueError, match="at most .* of memory"):
        ttr.Layer("linear_attention").memorize(row(1 << 20), row(1 << 20))
    k = row(1 << 38)  # a state of 2^76 numbers
    with pytest.raises(ValueError, match=r"nothing has 2\^62 bytes"):
        ttr.Layer("linear_attention").memorize(k, k)
    with pytest.raises(MemoryError, match="bytes"):  # a copy, as the last axis has no stride
        ttr.Layer("linear_attention").memorize(k, np.broadcast_to(np.zeros(1), k.shape))
