"""Memories: pairs in, values out, files, copies."""

import copy
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ttr
from drawn import NAMES, draw, held

CAUSAL = [name for name in NAMES if ttr.state_specs(name)]


def taught(name: str, pairs: int = 5) -> tuple[ttr.Memory, Any]:
    """A memory of one head that has read some pairs, and the inputs of those and one more."""
    inputs = draw(name, B=1, H=1, Hq=1, Hk=1, Hv=1, T=pairs + 1, seed=10)
    memory = ttr.Memory(name, key_dim=4, value_dim=4)
    for spec in ttr.input_specs(name):
        keyword = spec["keyword"]
        if keyword in inputs and "T" not in spec["shapes"][0] and "T n" not in spec["shapes"][0]:
            memory.set_gate(keyword, inputs[keyword])
    for t in range(pairs):
        memory.memorize(**pair(name, inputs, t))
    return memory, inputs


def pair(name: str, inputs: Any, t: int) -> dict[str, Any]:
    """Token t as the arguments of memorize."""
    result = {"key": None}
    for spec in ttr.input_specs(name):
        keyword, axes = spec["keyword"], spec["shapes"][0]
        if keyword not in inputs or keyword == "q" or not {"T", "T n"} & set(axes):
            continue
        n = inputs[keyword].shape[1] // inputs["v"].shape[1] if axes[1] == "T" else 1
        steps = inputs["v"].shape[1] // 6 if axes[1] == "T n" else max(n, 1)
        rows = inputs[keyword][0, t * steps : (t + 1) * steps]
        result[{"k": "key", "v": "value"}.get(keyword, keyword)] = rows
    return result


@pytest.mark.parametrize("name", CAUSAL)
def test_a_memory_is_the_layer(name: str) -> None:
    memory, inputs = taught(name)
    assert memory.count == 5
    layer = ttr.Layer(name, engine="definition")
    given: dict[str, Any] = {}
    for spec in ttr.input_specs(name):
        array = inputs.get(spec["keyword"])
        if array is None or spec["keyword"] == "q":
            continue
        tokens = {"T", "T n"} & set(spec["shapes"][0])
        given[spec["keyword"]] = array[:, : array.shape[1] // 6 * 5] if tokens else array
    state = layer.memorize(**given)
    for key, array in held(memory.state).items():
        assert np.allclose(array, state[key], rtol=1e-8, atol=1e-10), key
    query = inputs["q"][0, -1] if "q" in inputs else None
    answer = memory.retrieve(query)
    assert answer.dtype == np.float64 and answer.size == 4
    assert np.array_equal(answer, memory.retrieve(query))  # reading changes nothing


@pytest.mark.parametrize("name", CAUSAL)
def test_files_and_copies_go_on_bit_for_bit(name: str, tmp_path: Path) -> None:
    memory, inputs = taught(name)
    path = tmp_path / "memory.safetensors"
    memory.extra = {"column": "co2"}
    memory.save(path)
    copies = [
        ttr.Memory.load(path),
        ttr.Memory.load(str(path)),
        copy.copy(memory),
        copy.deepcopy(memory),
        pickle.loads(pickle.dumps(memory)),
    ]
    for again in copies:
        assert again.extra == {"column": "co2"}
        assert again.count == 5
    memory.memorize(**pair(name, inputs, 5))
    query = inputs["q"][0, -1] if "q" in inputs else None
    expected = memory.retrieve(query)
    for again in copies:
        again.memorize(**pair(name, inputs, 5))
        assert np.array_equal(again.retrieve(query), expected)
        assert again.recipe == memory.recipe and again.heads == 1


def test_recursive_least_squares_learn_a_sine() -> None:
    memory = ttr.Memory("weighted_rls{decay: 0.99}", key_dim=2)
    lags, forecast = np.zeros(2), np.zeros(1)
    for t in range(200):
        forecast = memory.retrieve(lags)
        value = np.sin(0.1 * t)
        memory.memorize(lags, value)
        lags = np.array([value, lags[0]])
    assert forecast.shape == (1,)
    assert abs(forecast[0] - np.sin(0.1 * 199)) < 1e-3
    assert memory.loss([0.0, 0.0], 3.0) == pytest.approx(4.5)
    assert 1 < memory.condition() < 1e6


def test_texts_change_while_another_thread_saves(tmp_path: Path) -> None:
    memory = ttr.Memory("rls", key_dim=2)
    stop = threading.Event()

    def save() -> None:
        while not stop.is_set():
            memory.save(tmp_path / "m")
            pickle.dumps(memory)

    saver = threading.Thread(target=save)
    saver.start()
    try:
        for i in range(3000):
            memory.extra = {f"name {j}": "text" * (i % 50) for j in range(10)}
    finally:
        stop.set()
        saver.join()
    memory.save(tmp_path / "m")
    assert ttr.Memory.load(tmp_path / "m").extra == memory.extra


def test_shapes_of_answers() -> None:
    memory = ttr.Memory("deltanet", key_dim=3, value_dim=2, heads=2)
    memory.set_gate("step", [0.5, 1.0])
    memory.memorize(np.eye(2, 3), np.ones((2, 2), np.float32))
    answer, status = memory.retrieve(np.eye(2, 3), return_status=True)
    assert np.array_equal(answer, [[0.5, 0.5], [1, 1]])
    assert status == 0
    single = ttr.Memory("deltanet", key_dim=1)
    single.memorize(1.0, 2.0, step=1)
    assert np.array_equal(single.retrieve(1.0), [2.0])
    assert np.array_equal(single.retrieve([[1.0]]), [[2.0]])


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda m: m.memorize(np.zeros(3), 1.0), r"key must be \[H,Dk\] = \[1, 2\] but is 3 numbers"),
        (lambda m: m.memorize(np.zeros(2), [1.0, 2.0]), "value must be"),
        (lambda m: m.memorize(np.zeros(2), 1.0, stepp=1.0), "gate must be .* but is 'stepp'"),
        (lambda m: m.memorize(np.zeros(2), 1.0, step=-1.0), "step must be >= 0"),
        (lambda m: m.memorize(np.zeros(2), 1.0), "gate 'step' must be .* but is absent"),
        (lambda m: m.memorize("text", 1.0, step=1.0), "key must be .* but is a str"),
        (lambda m: m.set_gate("bonus", 1.0), "gate must be .* but is 'bonus'"),
        (lambda m: m.retrieve(np.zeros(5)), "query must be"),
    ],
)
def test_bad_pairs_are_not_written(call: Any, text: str) -> None:
    memory = ttr.Memory("deltanet", key_dim=2)
    with pytest.raises(ValueError, match=text):
        call(memory)
    assert memory.count == 0 and memory.state == {}


def test_bad_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="absent"):
        ttr.Memory.load(tmp_path / "absent")
    (tmp_path / "broken").write_bytes(b"\x10\0\0\0\0\0\0\0{")
    with pytest.raises(ValueError, match="broken"):
        ttr.Memory.load(tmp_path / "broken")
    with pytest.raises(OSError, match="nowhere"):
        ttr.Memory("deltanet").save(tmp_path / "nowhere" / "file")
    with pytest.raises(ValueError, match="key_dim"):
        ttr.Memory("deltanet", key_dim=0)
