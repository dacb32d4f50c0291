"""Pools against decoders of single streams."""

import threading
from typing import Any

import numpy as np
import pytest
import ttr
from drawn import draw, part, sizes_of

LAYERS = ["deltanet", "gated_deltanet", "kda", "retnet", "mamba2", "hgrn", "mlstm", "rls", "titans"]
SLOTS = 5


def pool_of(name: str, **options: Any) -> ttr.StatePool:
    sizes = sizes_of(name)
    options = {"slots": SLOTS, "dtype": np.float64} | options
    return ttr.StatePool(
        name, key_dim=sizes["Dk"], value_dim=sizes["Dv"], heads=sizes["H"], **options
    )


def decoder_of(name: str, **options: Any) -> ttr.Decoder:
    sizes = sizes_of(name)
    return ttr.Decoder(
        name, key_dim=sizes["Dk"], value_dim=sizes["Dv"], heads=sizes["H"], dtype=np.float64, **options
    )


def rows(name: str, inputs: dict[str, Any], wanted: list[int]) -> dict[str, Any]:
    """Rows of the batch; constants as they are."""
    per_batch = {s["keyword"] for s in ttr.input_specs(name) if s["shapes"][0][0] == "B"}
    return {key: a[wanted] if key in per_batch else a for key, a in inputs.items()}


@pytest.mark.parametrize("name", LAYERS)
def test_slots_answer_as_decoders(name: str) -> None:
    inputs = draw(name, seed=3)
    pool, alone = pool_of(name), [decoder_of(name) for _ in range(sizes_of(name)["B"])]
    slot_of = [4, 1]
    for t in range(8):
        token = part(inputs, name, t, t + 1)
        order = [1, 0] if t % 3 == 0 else [0, 1] if t % 3 == 1 else [1]
        y = pool.step([slot_of[s] for s in order], **rows(name, token, order))
        for row, s in enumerate(order):
            assert np.array_equal(y[row : row + 1], alone[s].step(**rows(name, token, [s])))
    pool.copy(4, 0)
    state = alone[0].state()
    assert state.keys() == pool.state(0).keys()
    for key, array in pool.state(4).items():
        assert np.array_equal(array, state[key])
        assert np.array_equal(array, pool.state(0)[key])
    pool.free(4)
    assert pool.state(4) == {}
    pool.load(4, pool.dump(0))
    assert pool.dump(4) == pool.dump(0)


def test_drafts_are_taken_back() -> None:
    inputs = draw("gated_deltanet", seed=4)
    pool, alone = pool_of("gated_deltanet", draft=3), decoder_of("gated_deltanet", draft=3)
    one = rows("gated_deltanet", inputs, [0])
    for t in range(0, 9, 3):
        pool.step([2], **part(one, "gated_deltanet", t, t + 3))
        assert pool.pending(2) >= 3
        pool.roll_back(2, 2)
        alone.step(**part(one, "gated_deltanet", t, t + 1))
    token = part(one, "gated_deltanet", 9, 10)
    assert np.array_equal(pool.step(np.array([2], np.int32), **token), alone.step(**token))


def test_a_prompt_is_packed() -> None:
    inputs = draw("kda", seed=5)
    pool = pool_of("kda")
    flat = {key: a.reshape(1, -1, *a.shape[2:]) for key, a in inputs.items()}
    tokens = sizes_of("kda")["T"]
    y = pool.step([3, -1], cu_seqlens=np.array([0, tokens, 2 * tokens]), **flat)
    expected, last = ttr.Layer("kda").forward(**rows("kda", inputs, [0]))
    assert np.allclose(y[:, :tokens], expected, atol=1e-12)
    assert not y[:, tokens:].any()
    assert np.allclose(pool.state(3)["state"], last["state"], atol=1e-12)
    pool.start(0, last)
    assert np.array_equal(pool.state(0)["state"], last["state"])


def test_threads_on_disjoint_slots() -> None:
    inputs = draw("gated_deltanet", seed=6)
    pool, apart = pool_of("gated_deltanet"), pool_of("gated_deltanet")

    def run(on: ttr.StatePool, slot: int) -> None:
        one = rows("gated_deltanet", inputs, [slot % 2])
        for t in range(10):
            on.step([slot], **part(one, "gated_deltanet", t, t + 1))

    threads = [threading.Thread(target=run, args=(pool, slot)) for slot in range(SLOTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for slot in range(SLOTS):
        run(apart, slot)
        assert np.array_equal(pool.state(slot)["state"], apart.state(slot)["state"])


def test_errors() -> None:
    inputs = draw("deltanet", seed=7)
    token = part(inputs, "deltanet", 0, 1)
    pool = pool_of("deltanet")
    for slots, message in [
        ([0, 5], "from -1 to 4 but is 5"),
        ([3, 3], "different ones but is twice 3"),
        ([0], "2, one for each sequence"),
        ([0.5, 1], "integers, one for each sequence"),
        (7, "integers, one for each sequence"),
    ]:
        with pytest.raises(ValueError, match=message):
            pool.step(slots, **token)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="keeps its pairs grows"):
        pool_of("softmax")
    with pytest.raises(ValueError, match="draft"):
        pool_of("rls", draft=2)
    with pytest.raises(ValueError, match="bytes of a slot"):
        pool.load(0, b"")
    pool.step([0, 1], **token)
    with pytest.raises(ValueError, match="same layer and sizes"):
        pool_of("deltanet{scale: 0.5}").load(0, pool.dump(0))
    with pytest.raises(ValueError, match="from 0 to 4"):
        pool.state(-1)
    assert repr(pool) == f"StatePool({str(pool.recipe)!r}, slots=5)"
