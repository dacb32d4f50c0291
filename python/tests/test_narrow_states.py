"""Decoders and pools whose states lie in two bytes a number."""

import copy
import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import ttr
from drawn import draw, part, sizes_of

LAYERS = ["deltanet", "gated_deltanet", "kda", "retnet", "mamba2", "mlstm"]
NARROW = {"bfloat16": 2**-8, "float16": 2**-11}


def sizes(name: str) -> dict[str, Any]:
    all_sizes = sizes_of(name)
    return {"key_dim": all_sizes["Dk"], "value_dim": all_sizes["Dv"], "heads": all_sizes["H"]}


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("name", LAYERS)
def test_a_decoder_is_near_that_in_float32(name: str, dtype: str) -> None:
    inputs = {key: a.astype(np.float32) for key, a in draw(name, seed=3).items()}
    batch = sizes_of(name)["B"]
    wide = ttr.Decoder(name, batch=batch, **sizes(name))
    narrow = ttr.Decoder(name, batch=batch, dtype=dtype, window=2, **sizes(name))
    largest = 0.0
    for t in range(8):
        token = part(inputs, name, t, t + 1)
        y = wide.step(**token)
        largest = max(largest, float(np.abs(y).max()))
        assert np.abs(narrow.step(**token) - y).max() <= 8 * NARROW[dtype] * largest
        copied = copy.deepcopy(narrow)
    assert copied.state().keys() == narrow.state().keys()
    for key, entry in narrow.state().items():
        assert entry.dtype == wide.state()[key].dtype  # float32, and counts
        assert np.array_equal(copied.state()[key], entry)
    loaded = pickle.loads(pickle.dumps(narrow)).state()["state"]
    numpy_type = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float16
    assert np.array_equal(loaded, narrow.state()["state"].astype(numpy_type).astype(np.float32))


def test_slots_are_smaller() -> None:
    large = {"key_dim": 128, "value_dim": 128, "heads": 4}
    wide = ttr.StatePool("gated_deltanet", slots=2, **large)
    narrow = ttr.StatePool("gated_deltanet", slots=2, dtype="bfloat16", **large)
    assert len(narrow.dump(0)) < 0.65 * len(wide.dump(0))  # what waits stays float32
    longest = ttr.StatePool("gated_deltanet", slots=2, dtype="bfloat16", window=1, **large)
    assert len(longest.dump(0)) < 0.55 * len(wide.dump(0))


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, "bfloat16", np.float16])
def test_slots_answer_as_decoders(dtype: Any) -> None:
    name = "kda"
    inputs = {key: a.astype(np.float32) for key, a in draw(name, seed=5).items()}
    pool = ttr.StatePool(name, slots=3, dtype=dtype, window=3, **sizes(name))
    alone = ttr.Decoder(name, batch=2, dtype=dtype, window=3, **sizes(name))
    for t in range(8):
        token = part(inputs, name, t, t + 1)
        assert np.array_equal(pool.step([2, 0], **token), alone.step(**token))


@pytest.mark.parametrize("name", ["rls", "hgrn", "titans"])
def test_layers_whose_writes_cannot_wait_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="whose writes cannot wait"):
        ttr.Decoder(name, dtype="bfloat16", **sizes(name))
