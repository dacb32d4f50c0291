"""Token by token: Decoder, step_ on its memory and on a state."""

from __future__ import annotations

import json
import copy
import io
import pickle
import subprocess
import sys
from typing import Any

import operator_cases as cases
import pytest
import torch
import ttr
from drawn import held
from torch import Tensor
from ttr.torch import Decoder, decoder_bytes, regress, step_

CAUSAL = [n for n in cases.NAMES if ttr.Recipe(n).option("causal") == "true"]


def token(name: str, inputs: dict[str, Any], t: int) -> dict[str, Any]:
    sizes = cases.sizes_of(name)
    steps = sizes["T n"] // sizes["T"]
    cut: dict[str, Any] = {}
    for spec in ttr.input_specs(name):
        if spec["keyword"] not in inputs:
            continue
        axes = spec["shapes"][0]
        n = {"T": 1, "T n": steps}.get(axes[1] if len(axes) > 1 else "", 0)
        tensor = inputs[spec["keyword"]]
        cut[spec["keyword"]] = tensor[:, t * n : (t + 1) * n] if n else tensor
    return cut


@pytest.mark.parametrize("name", CAUSAL)
def test_a_decoder_goes_on_from_a_prompt(name: str) -> None:
    inputs = cases.draw(name, T=9)
    whole, last = regress(name, **inputs, return_state=True)
    decoder = Decoder(name)
    assert decoder.state() == {}
    steps = cases.sizes_of(name)["T n"] // cases.sizes_of(name)["T"]
    prompt = {
        s["keyword"]: inputs[s["keyword"]][:, : 4 * {"T": 1, "T n": steps}[s["shapes"][0][1]]]
        if len(s["shapes"][0]) > 1 and s["shapes"][0][1] in ("T", "T n")
        else inputs[s["keyword"]]
        for s in ttr.input_specs(name)
        if s["keyword"] in inputs
    }
    y, state = regress(name, **prompt, return_state=True)
    decoder.start(state)
    answers = [y, *(decoder.step(**token(name, inputs, t)) for t in range(4, 9))]
    torch.testing.assert_close(torch.cat(answers, 1), whole, rtol=1e-8, atol=1e-8)
    for entry, tensor in held(decoder.state()).items():
        torch.testing.assert_close(tensor, last[entry], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", ["gated_deltanet", "mesa", "mamba", "mlstm", "softmax"])
def test_from_the_recipes_start(name: str) -> None:
    inputs = cases.draw(name, dtype=torch.float32)
    expected, _ = cases.definition(name, inputs)
    decoder = Decoder(name)
    y = torch.cat([decoder.step(**token(name, inputs, t)) for t in range(9)], 1)
    assert cases.worst(y, expected) < 1e-5
    decoder.start(None)
    again = torch.cat([decoder.step(**token(name, inputs, t)) for t in range(9)], 1)
    torch.testing.assert_close(again, y)


@pytest.mark.parametrize("name", ["gated_deltanet", "mesa", "delta_product", "softmax"])
def test_copies_go_on_bit_for_bit(name: str) -> None:
    inputs = cases.draw(name, dtype=torch.float32, Dk=8, Dv=8)
    decoder = Decoder(name)
    for t in range(4):
        decoder.step(**token(name, inputs, t))
    buffer = io.BytesIO()
    torch.save(decoder, buffer)
    buffer.seek(0)
    copies: list[Any] = [
        copy.deepcopy(decoder),
        pickle.loads(pickle.dumps(decoder)),
        torch.load(buffer, weights_only=False),
        copy.copy(decoder),
    ]
    last = [[d.step(**token(name, inputs, t)) for t in range(4, 9)] for d in (decoder, *copies)]
    for other in last[1:]:
        assert all(torch.equal(a, b) for a, b in zip(other, last[0]))


class Module(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.decoder = Decoder("gated_deltanet")


def test_modules_with_a_decoder_are_copied() -> None:
    inputs = cases.draw("gated_deltanet", dtype=torch.float32)
    module = Module()
    module.decoder.step(**token("gated_deltanet", inputs, 0))
    other = copy.deepcopy(module)
    a, b = (m.decoder.step(**token("gated_deltanet", inputs, 1)) for m in (module, other))
    assert torch.equal(a, b)


@pytest.mark.parametrize("name", ["gated_deltanet", "mesa", "lru", "cosformer"])
def test_step_on_a_state_and_on_memory(name: str) -> None:
    name = "linear_attention{features: cosformer}" if name == "cosformer" else name
    inputs = cases.draw(name)
    expected, last = regress(name, **inputs, return_state=True)
    _, state = regress(name, **token(name, inputs, 0), return_state=True)
    size = decoder_bytes(name, **token(name, inputs, 0))
    memory = torch.zeros(size, dtype=torch.uint8)
    step_(name, memory, **token(name, inputs, 0))
    places = {entry: tensor.data_ptr() for entry, tensor in state.items()}
    for t in range(1, 9):
        y = step_(name, state, **token(name, inputs, t))
        torch.testing.assert_close(y, expected[:, t : t + 1], rtol=1e-8, atol=1e-8)
        y = step_(name, memory, **token(name, inputs, t))
        torch.testing.assert_close(y, expected[:, t : t + 1], rtol=1e-8, atol=1e-8)
    for entry, tensor in state.items():
        assert tensor.data_ptr() == places[entry]
        torch.testing.assert_close(tensor, last[entry], rtol=1e-8, atol=1e-8)


def test_a_backward_that_saved_the_state_finds_out() -> None:
    inputs = cases.draw("gated_deltanet", T=1)
    state = cases.reached("gated_deltanet")
    given = inputs | {"v": inputs["v"].clone().requires_grad_()}
    y = regress("gated_deltanet", **given, state=state)
    step_("gated_deltanet", state, **inputs)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    with torch.inference_mode():
        there = {name: t.clone() for name, t in state.items()}  # of which nobody counts versions
        assert step_("gated_deltanet", there, **inputs).shape == y.shape


def test_memory_may_be_moved_between_steps() -> None:
    inputs = cases.draw("gated_deltanet", dtype=torch.float32)
    size = decoder_bytes("gated_deltanet", **token("gated_deltanet", inputs, 0))
    kept = moved = torch.zeros(size, dtype=torch.uint8)
    moved = moved.clone()
    for t in range(9):
        a = step_("gated_deltanet", kept, **token("gated_deltanet", inputs, t))
        moved = moved.clone()
        assert torch.equal(a, step_("gated_deltanet", moved, **token("gated_deltanet", inputs, t)))


def test_what_a_step_refuses() -> None:
    name = "gated_deltanet"
    inputs = token(name, cases.draw(name), 0)
    size = decoder_bytes(name, **inputs)
    memory = torch.zeros(size, dtype=torch.uint8)
    step_(name, memory, **inputs)
    before = memory.clone()
    many = cases.draw(name)
    for bad, text in [
        ({"memory": memory[:-1]}, "memory must be at least"),
        ({"memory": memory.float()}, "memory must be a contiguous tensor of uint8"),
        ({"memory": torch.zeros(size + 64, dtype=torch.uint8)[1:]}, "memory must be at a multiple"),
        ({"memory": torch.ones_like(memory)}, "memory must be zeros, or left by a decoder"),
        ({"k": inputs["k"][..., :2]}, "k must be"),
        ({"log_decay": -inputs["log_decay"]}, "log_decay must be <= 0"),
        ({"step": None}, "step must be"),
    ]:
        with pytest.raises(ValueError, match=text):
            step_(name, **{"memory": memory, **inputs, **bad})
    with pytest.raises(ValueError, match="one token"):
        step_(name, memory, **many)
    with pytest.raises(ValueError, match="memory must be zeros, or left by a decoder"):
        step_("deltanet", memory, **{n: inputs[n] for n in ("q", "k", "v", "step")})
    with pytest.raises(ValueError, match="state must be given"):
        step_(name, {}, **inputs)
    with pytest.raises(RuntimeError, match="requires_grad must be False"):
        step_(name, memory, **{**inputs, "q": inputs["q"].clone().requires_grad_()})
    assert torch.equal(memory, before)
    assert decoder_bytes("softmax", **token("softmax", cases.draw("softmax"), 0)) == 0


def test_a_state_that_wants_a_gradient_is_refused() -> None:
    state = {n: t.requires_grad_() for n, t in cases.reached("gated_deltanet").items()}
    before = state["state"].detach().clone()
    with pytest.raises(RuntimeError, match="requires_grad must be False"):
        step_("gated_deltanet", state, **cases.draw("gated_deltanet", T=1))
    assert torch.equal(state["state"], before)


def test_the_parts_are_there_without_an_import() -> None:
    program = "import ttr.torch as t; t.portable.regress; t.functional.chunk_gla; t.nn.Cache; t.distributed"
    subprocess.run([sys.executable, "-c", program], check=True)
    with pytest.raises(AttributeError, match="no attribute 'portabel'"):
        getattr(ttr.torch, "portabel")


@pytest.mark.parametrize("name", ["gated_deltanet", "rls", "softmax"])
def test_a_wide_state_stays_wide_beside_narrow_tokens(name: str) -> None:
    state = cases.reached(name)
    inputs = cases.draw(name, dtype=torch.float32)
    y, final = regress(name, **inputs, state=state, return_state=True)
    fresh, used = Decoder(name), Decoder(name)
    used.step(**token(name, inputs, 0))
    for decoder in (fresh, used):
        decoder.start(state)
        for t in range(y.shape[1]):
            answer = decoder.step(**token(name, inputs, t))
            torch.testing.assert_close(answer, y[:, t : t + 1])
        after = decoder.state()
        for entry, tensor in final.items():
            assert after[entry].dtype == tensor.dtype
        if name != "softmax":
            torch.testing.assert_close(after["state"], final["state"], rtol=1e-10, atol=1e-10)


def test_goes_on_from_what_an_earlier_version_kept() -> None:
    """Sizes in the order of their names, and no drafts."""
    inputs = cases.draw("gated_deltanet")
    decoder, loaded = Decoder("gated_deltanet"), Decoder("gated_deltanet")
    decoder.step(**token("gated_deltanet", inputs, 0))
    held = decoder.__getstate__()
    sizes = json.loads(held.pop("record"))
    assert sizes.pop("state") == "float64"
    dims = [sizes[name] for name in ("B", "T", "Hq", "Hk", "Hv", "H", "Dk", "Dv", "F", "hidden", "N")]
    kept = {name: held[name] for name in ("recipe", "memory", "float64", "state")}
    loaded.__setstate__({**kept, "dims": dims})
    second = token("gated_deltanet", inputs, 1)
    assert torch.equal(loaded.step(**second), decoder.step(**second))
    assert torch.equal(loaded.state()["state"], decoder.state()["state"])
