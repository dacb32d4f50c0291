"""Which arrays are taken, and that they are not copied."""

from typing import Any

import numpy as np
import pytest
import ttr
from drawn import draw, worst_token
from oracle import definition

NAME = "gated_deltanet"


def strided(array: Any) -> Any:
    """The array's numbers, tokens outermost, with gaps between heads."""
    wide = np.full((array.shape[1], array.shape[0], array.shape[2], 3, *array.shape[3:]), np.nan)
    view = wide[:, :, :, 1].transpose(1, 0, 2, *range(3, array.ndim))
    view[...] = array
    return view


def test_any_strides_give_the_same_bits() -> None:
    inputs = draw(NAME)
    y, state = ttr.Layer(NAME).forward(**inputs)
    moved = {key: strided(array) for key, array in inputs.items()}
    assert not any(array.flags.c_contiguous for array in moved.values())
    again, last = ttr.Layer(NAME).forward(**moved)
    assert np.array_equal(y, again)
    assert np.array_equal(state["state"], last["state"])


@pytest.mark.parametrize(
    "change",
    [
        lambda a: np.asfortranarray(a),
        lambda a: a[:, ::-1][:, ::-1],
        lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
        lambda a: a[..., ::-1].copy()[..., ::-1],
        lambda a: a.astype(">f8"),
        lambda a: np.frombuffer(b"x" + a.tobytes(), np.uint8)[1:].view(np.float64).reshape(a.shape),
        lambda a: np.rec.fromarrays([np.zeros(a.shape, "i1"), a], names="x,y")["y"],
        lambda a: memoryview(np.ascontiguousarray(a)),
        lambda a: np.ctypeslib.as_ctypes(np.ascontiguousarray(a)),
        lambda a: a.tolist(),
    ],
    ids=["fortran", "reversed", "gaps", "backwards", "big-endian", "unaligned", "field", "memoryview", "ctypes", "list"],
)
def test_every_form_of_the_same_numbers(change: Any) -> None:
    inputs = draw(NAME)
    y, _ = ttr.Layer(NAME).forward(**inputs)
    again, _ = ttr.Layer(NAME).forward(**{key: change(a) for key, a in inputs.items()})
    assert np.array_equal(y, again)


def test_read_only_and_broadcast_inputs() -> None:
    inputs = draw(NAME)
    one = {key: array[:1, :1] for key, array in inputs.items()}
    wide = {key: np.broadcast_to(a, (2, 12, *a.shape[2:])) for key, a in one.items()}
    assert not any(array.flags.writeable for array in wide.values())
    y, _ = ttr.Layer(NAME).forward(**wide)
    full, _ = ttr.Layer(NAME).forward(**{key: a.copy() for key, a in wide.items()})
    assert np.array_equal(y, full)


def test_inputs_are_not_copied() -> None:
    """A gigabyte of keys that are one number takes no gigabyte."""
    import resource

    tokens, dim = 64, 1 << 21
    one = np.ones(1)
    k = np.lib.stride_tricks.as_strided(one, (1, tokens, 1, 1), (0, 0, 0, 8))
    v = np.broadcast_to(np.ones((1, 1, 1, dim)), (1, tokens, 1, dim))  # a gigabyte, if copied
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    state = ttr.Layer("linear_attention").memorize(k, v, threads=1)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert np.allclose(state["state"], tokens)
    assert grown < 512 << 20


@pytest.mark.parametrize("state_type", [np.float32, np.float64])
def test_types_mix_as_the_library_has_it(state_type: Any) -> None:
    inputs = draw(NAME, dtype=np.float32)
    inputs["log_decay"] = inputs["log_decay"].astype(np.float64)
    state = {"state": np.zeros((2, 2, 4, 4), state_type)}
    y, last = ttr.Layer(NAME).forward(**inputs, state=state)
    assert y.dtype == np.float32 and last["state"].dtype == state_type
    assert worst_token(y, definition(NAME, inputs)[0]) < 32 * 1.2e-7


def test_bfloat16_of_ml_dtypes() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    inputs = draw(NAME, dtype=np.float32)
    rounded = {key: inputs[key].astype(ml_dtypes.bfloat16) for key in ("q", "k", "v")}
    y, state = ttr.Layer(NAME).forward(**(inputs | rounded))
    assert y.dtype == ml_dtypes.bfloat16
    assert state["state"].dtype == np.float32
    expected, _ = definition(NAME, inputs | rounded)
    assert worst_token(y.astype(np.float32), expected) < 2 * 2.0**-8
    gradients, _ = ttr.Layer(NAME).backward(y, **(inputs | rounded))
    assert gradients["k"].dtype == ml_dtypes.bfloat16
    assert gradients["step"].dtype == np.float32


def test_tensors_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    inputs = draw(NAME, dtype=np.float32)
    y, _ = ttr.Layer(NAME).forward(**inputs)
    tensors = {key: torch.from_numpy(array) for key, array in inputs.items()}
    again, _ = ttr.Layer(NAME).forward(**tensors)
    assert isinstance(again, np.ndarray)
    assert np.array_equal(y, again)
    narrow = {key: tensors[key].bfloat16() for key in ("q", "k", "v")}
    answer, _ = ttr.Layer(NAME).forward(**(tensors | narrow))
    assert answer.dtype == np.float32  # NumPy has no name for bfloat16
    expected, _ = definition(NAME, inputs | {key: t.float().numpy() for key, t in narrow.items()})
    assert worst_token(answer, expected) < 32 * 1.2e-7
    with pytest.raises(ValueError, match="k must be detached"):
        ttr.Layer(NAME).forward(**(tensors | {"k": tensors["k"].clone().requires_grad_()}))
    with pytest.raises(ValueError, match="v must be"):
        ttr.Layer(NAME).forward(**(tensors | {"v": tensors["v"].to("meta")}))


def test_results_belong_to_the_caller() -> None:
    inputs = draw(NAME)
    y, state = ttr.Layer(NAME).forward(**inputs)
    kept = state["state"].copy()
    array = state.pop("state")
    del state
    y[...] = 0
    assert array.flags.writeable and np.array_equal(array, kept)


def test_float16_rows() -> None:
    """Answers are those of the widened rows, rounded; the state is float32."""
    inputs = {key: a.astype(np.float16) for key, a in draw("gated_deltanet", seed=21).items()}
    wide = {key: a.astype(np.float32) for key, a in inputs.items()}
    layer = ttr.Layer("gated_deltanet")
    y, state = layer.forward(**inputs)
    expected, last = layer.forward(**wide)
    assert y.dtype == np.float16
    assert np.array_equal(y, expected.astype(np.float16))
    assert state["state"].dtype == np.float32 and np.array_equal(state["state"], last["state"])
    gradients, _ = layer.backward(y, **inputs)
    assert all(gradients[key].dtype == np.float16 for key in inputs)
