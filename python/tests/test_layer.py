"""Layers against the definition, cut in parts, token by token, backwards."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import ttr
from drawn import NAMES, draw, held, part, sizes_of, worst_token
from oracle import condition, definition

# Rounding of a few dozen operations a number; measured, worst recipe: 6 without a system to solve.
STEPS = 32

#: Recipes whose state goes on from token to token.
CAUSAL = [name for name in NAMES if ttr.state_specs(name)]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", NAMES)
def test_forward_is_the_definition(name: str, dtype: Any) -> None:
    inputs = draw(name, dtype=dtype)
    y, state = ttr.Layer(name).forward(**inputs)
    expected, last = definition(name, inputs)
    limit = STEPS * float(np.finfo(dtype).eps) * condition(name, inputs)
    assert y.dtype == dtype
    assert worst_token(y, expected) < limit
    assert state.keys() == last.keys()
    for key, array in state.items():
        assert array.dtype == (np.int64 if last[key].dtype == np.int64 else dtype)
        assert np.allclose(array, last[key], rtol=limit, atol=limit * np.abs(last[key]).max())


@pytest.mark.parametrize("name", CAUSAL)
def test_parts_are_the_whole(name: str) -> None:
    inputs = draw(name, seed=1)
    layer = ttr.Layer(name)
    whole, last = layer.forward(**inputs)
    state: Any = None
    pieces = []
    for begin, end in ((0, 5), (5, 6), (6, 12)):
        y, state = layer.forward(**part(inputs, name, begin, end), state=state)
        pieces.append(y)
    limit = STEPS * float(np.finfo(np.float64).eps) * condition(name, inputs)
    assert worst_token(np.concatenate(pieces, axis=1), whole) < limit
    for key, array in held(state).items():
        assert np.allclose(array, last[key], rtol=limit, atol=limit * np.abs(last[key]).max())


@pytest.mark.parametrize("name", CAUSAL)
def test_steps_are_the_whole(name: str) -> None:
    inputs = draw(name, seed=2)
    layer = ttr.Layer(name)
    whole, _ = layer.forward(**inputs)
    state: dict[str, Any] = {}
    pieces = []
    for t in range(sizes_of(name)["T"]):
        kept = dict(state)
        pieces.append(layer.step(**part(inputs, name, t, t + 1), state=state))
        for key, array in kept.items():  # in place, unless it grows
            assert state[key] is array or state[key].shape != array.shape
    limit = STEPS * float(np.finfo(np.float64).eps) * condition(name, inputs)
    assert worst_token(np.concatenate(pieces, axis=1), whole) < limit


def test_a_given_state_is_read_only() -> None:
    inputs = draw("gated_deltanet")
    layer = ttr.Layer("gated_deltanet")
    _, state = layer.forward(**inputs)
    before = state["state"].copy()
    state["state"].setflags(write=False)
    _, after = layer.forward(**inputs, state=state)
    assert np.array_equal(state["state"], before)
    assert not np.shares_memory(after["state"], state["state"])
    assert not np.array_equal(after["state"], before)


@pytest.mark.parametrize("name", ["gated_deltanet", "rls", "lru", "softmax", "mlstm"])
def test_memorize_then_retrieve_is_forward(name: str) -> None:
    inputs = draw(name)
    layer = ttr.Layer(name)
    whole, last = layer.forward(**inputs)
    q = inputs.pop("q", None)
    state = layer.memorize(**inputs)
    for key, array in state.items():
        assert np.allclose(array, last[key], rtol=1e-9, atol=1e-12)
    if q is None:
        y = layer.retrieve(state=state, out={"y": np.empty_like(whole[:, -1:])})
    else:
        y = layer.retrieve(q[:, -1:], state=state)
    assert np.allclose(y, whole[:, -1:], rtol=1e-7, atol=1e-10)


def test_an_empty_state_is_the_start() -> None:
    for name in NAMES:
        inputs = draw(name)
        layer = ttr.Layer(name)
        if not ttr.state_specs(name):
            continue
        given = {key: array for key, array in inputs.items() if key != "q"}
        start = layer.initial_state(**given)
        y, _ = layer.forward(**inputs)
        again, _ = layer.forward(**inputs, state=start)
        none, _ = layer.forward(**inputs, state={})
        assert np.array_equal(y, none)
        assert worst_token(again, y) < STEPS * 2.3e-16 * condition(name, inputs), name


def test_packed_sequences_are_sequences() -> None:
    inputs = draw("gated_deltanet", B=1)
    bounds = np.array([0, 5, 5, 12], dtype=np.int32)  # widened
    layer = ttr.Layer("gated_deltanet")
    y, state = layer.forward(**inputs, cu_seqlens=bounds)
    assert state["state"].shape[0] == 3
    for n, (begin, end) in enumerate([(0, 5), (5, 5), (5, 12)]):
        alone, last = layer.forward(**part(inputs, "gated_deltanet", begin, end))
        assert np.allclose(y[:, begin:end], alone, rtol=1e-12, atol=1e-14)
        assert np.allclose(state["state"][n], last["state"][0], rtol=1e-12, atol=1e-14)


def test_heads_may_differ() -> None:
    inputs = draw("gated_deltanet", H=4, Hq=8, Hk=2, Hv=4)
    y, _ = ttr.Layer("gated_deltanet").forward(**inputs)
    assert y.shape == (2, 12, 8, 4)
    assert worst_token(y, definition("gated_deltanet", inputs)[0]) < STEPS * 2.3e-16


def test_no_token_is_no_work() -> None:
    inputs = draw("gated_deltanet", T=0)
    y, state = ttr.Layer("gated_deltanet").forward(**inputs)
    assert y.shape == (2, 0, 2, 4)
    assert not state["state"].any()


def converged(name: str) -> str:
    """Gradients are those of the solution: an iteration has to have reached it."""
    iterates = ttr.Recipe(name).option("optimizer") in ("conjugate_gradient", "chebyshev")
    return f"{name}{{steps: 200}}" if iterates else name


GRADIENTS = [converged(name) for name in NAMES if ttr.Layer(name).has_gradients]


#: The step of differences.
H = 1e-5


def numeric(loss: Callable[[Any], float], at: Any, indices: Iterable[tuple[int, ...]]) -> Any:
    """Central differences of fourth order at these entries of `at`; elsewhere 0."""
    gradient = np.zeros_like(at)
    for index in indices:
        for step, weight in ((1, 8), (-1, -8), (2, -1), (-2, 1)):
            moved = at.copy()
            moved[index] += step * H
            gradient[index] += weight * loss(moved) / (12 * H)
    return gradient


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_differences_of_the_definition(name: str) -> None:
    inputs = draw(name, T=4, B=1, seed=3)
    for key in inputs:  # away from the edge of the range, which a difference would cross
        if key == "log_decay":
            inputs[key] -= 0.1
    rng = np.random.default_rng(4)
    dy = rng.standard_normal(definition(name, inputs)[0].shape)
    gradients, start = ttr.Layer(name).backward(dy, **inputs)
    assert gradients.keys() == inputs.keys()
    assert {spec["name"] for spec in ttr.state_specs(name) if not spec["counts"]} == start.keys()
    # Rounding of the losses over the step, and the terms of fifth order.
    worst = condition(name, inputs)
    limit = STEPS * float(np.finfo(np.float64).eps) * worst / H + (worst * H) ** 4
    for key, array in inputs.items():

        def loss(moved: Any, key: str = key) -> float:
            return float((definition(name, inputs | {key: moved})[0] * dy).sum())

        expected = numeric(loss, array, np.ndindex(*array.shape))
        scale = max(float(np.abs(expected).max()), 1.0)
        assert gradients[key].dtype == np.float64
        assert np.abs(gradients[key] - expected).max() < limit * scale, key


def test_gradients_of_the_state_and_of_some_inputs() -> None:
    inputs = draw("gated_deltanet", T=5)
    layer = ttr.Layer("gated_deltanet")
    rng = np.random.default_rng(5)
    start = {"state": rng.standard_normal((2, 2, 4, 4))}
    dy = rng.standard_normal((2, 5, 2, 4))
    dlast = {"state": rng.standard_normal((2, 2, 4, 4))}
    gradients, dstart = layer.backward(
        dy, **inputs, state=start, dstate=dlast, wanted=["step", "q"]
    )
    assert set(gradients) == {"q", "step"}

    def loss(moved: Any) -> float:
        y, last = definition("gated_deltanet", inputs, {"state": moved})
        return float((y * dy).sum() + (last["state"] * dlast["state"]).sum())

    expected = numeric(loss, start["state"], np.ndindex(2, 2, 4, 4))
    assert np.abs(dstart["state"] - expected).max() < 1e-8
    with pytest.raises(ValueError, match="'w'"):
        layer.backward(dy, **inputs, wanted=["w"])


def test_status_and_reports() -> None:
    inputs = draw("rls{ridge: 0}")
    y, _, status = ttr.Layer("rls{ridge: 0}").forward(**inputs, return_status=True)
    assert status.shape == y.shape[:3] and status.dtype == np.int8
    assert (status[:, :3] == 1).all() and (status[:, 6:] == 0).all()
    out = {
        "y": np.empty_like(y),
        "iterations": np.empty(y.shape[:3], np.int64),
        "residual": np.empty(y.shape[:3]),
    }
    iterative = "mesa{optimizer: conjugate_gradient, steps: 30, tolerance: 1e-6}"
    answer, _ = ttr.Layer(iterative).forward(**draw(iterative), out=out)
    assert answer is out["y"]
    assert (out["iterations"] > 0).all()
    assert (out["residual"] < 1e-6).all()


def test_a_layer_travels() -> None:
    import copy
    import pickle

    layer = ttr.Layer("gated_deltanet", engine="definition")
    assert layer.engine == "definition"
    assert layer.recipe == ttr.Recipe("gated_deltanet")
    for again in (pickle.loads(pickle.dumps(layer)), copy.copy(layer), copy.deepcopy(layer)):
        assert again.engine == "definition" and again.recipe == layer.recipe
    assert "definition" in repr(layer)
    with pytest.raises(ValueError, match="engine"):
        ttr.Layer("gated_deltanet", engine="scan")


def test_counts_are_whole_numbers_of_any_width() -> None:
    inputs = draw("softmax")
    layer = ttr.Layer("softmax")
    _, state = layer.forward(**part(inputs, "softmax", 0, 6))
    y, _ = layer.forward(**part(inputs, "softmax", 6, 12), state=state)
    narrow = state | {"state.length": state["state.length"].astype(np.int32)}
    again, _ = layer.forward(**part(inputs, "softmax", 6, 12), state=narrow)
    assert np.array_equal(y, again)
    q = inputs["q"][:, 6:]
    assert np.array_equal(layer.retrieve(q, state=state), layer.retrieve(q, state=narrow))
    wrong = state | {"state.length": state["state.length"] * 0.5}
    with pytest.raises(ValueError, match="state.length must be int64"):
        layer.forward(**inputs, state=wrong)


@pytest.mark.parametrize("name", ["gated_deltanet", "rls", "softmax", "mlstm", "titans"])
def test_states_at_inner_tokens(name: str) -> None:
    inputs = draw(name, seed=12)
    tokens = sizes_of(name)["T"]
    whole, last = ttr.Layer(name).forward(**inputs)
    y, state, states = ttr.Layer(name).forward_at([2, 5], **inputs)
    assert np.allclose(y, whole, atol=1e-9)
    for key, array in held(last).items():
        assert np.allclose(held(state)[key], array, atol=1e-9)
    for t, there in zip([2, 5], states):
        _, expected = ttr.Layer(name).forward(**part(inputs, name, 0, t))
        for key, array in held(expected).items():
            assert np.allclose(held(there)[key], array, atol=1e-9)
    rest, _ = ttr.Layer(name).forward(**part(inputs, name, 5, tokens), state=states[1])
    assert np.array_equal(rest, y[:, 5:])
    with pytest.raises(ValueError, match="at must be rising from 1 to"):
        ttr.Layer(name).forward_at([5, 2], **inputs)
