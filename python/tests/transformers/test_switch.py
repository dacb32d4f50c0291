"""What is rebound, what is given back, and what is counted."""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers", reason="the models are those of transformers")

import torch
import ttr.transformers
from transformer_cases import SEQUENCES, TOKENS, convolution, delta_rule, original
from transformer_models import FAMILIES, prompt, small_model
from ttr.transformers._functions import FUNCTIONS

NAMES = ("torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule", "causal_conv1d_fn")


def module_of(family: str) -> Any:
    return importlib.import_module(f"transformers.models.{family}.modeling_{family}")


def functions_of(family: str) -> dict[str, Any]:
    return {
        name: vars(module_of(family))[name]
        for name in FUNCTIONS
        if hasattr(module_of(family), name)
    }


def test_all_families_have_the_functions_with_these_parameters() -> None:
    for family in FAMILIES:
        found = functions_of(family)
        assert found, family
        for name, theirs in found.items():
            ours = inspect.signature(FUNCTIONS[name]).parameters
            assert tuple(inspect.signature(theirs).parameters) == tuple(ours), (family, name)


def test_accelerate_is_of_a_model_and_of_its_module() -> None:
    model = small_model("qwen3_next")
    before, others = functions_of("qwen3_next"), functions_of("mamba2")
    assert ttr.transformers.accelerate(model) is model
    served = functions_of("qwen3_next")
    assert all(served[name] is not before[name] for name in before)
    assert all(served[name].__wrapped__ is before[name] for name in before)
    assert functions_of("mamba2") == others
    ttr.transformers.accelerate(model)  # twice is once
    assert functions_of("qwen3_next") == served
    ttr.transformers.disable()
    assert functions_of("qwen3_next") == before


def test_a_model_without_them_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"^\[accelerate\] model must have layers"):
        ttr.transformers.accelerate(torch.nn.Linear(2, 2))


def test_a_block_gives_back_what_it_took() -> None:
    model, before = small_model("qwen3_next"), functions_of("qwen3_next")
    with pytest.raises(KeyError), ttr.transformers.accelerated(model):
        raise KeyError
    assert functions_of("qwen3_next") == before
    ttr.transformers.accelerate(model)
    served = functions_of("qwen3_next")
    with ttr.transformers.accelerated():
        assert functions_of("mamba2")["causal_conv1d_fn"].__wrapped__
    assert functions_of("qwen3_next") == served, "served before it, served behind it"
    ttr.transformers.disable()
    assert functions_of("qwen3_next") == before


def test_enable_serves_what_is_imported_later(tmp_path: Path, monkeypatch: Any) -> None:
    source = "def causal_conv1d_fn(hidden_states, weight, bias=None, activation=None, **kwargs):\n"
    (tmp_path / "modeling_later.py").write_text(source + "    return None\n")
    monkeypatch.syspath_prepend(tmp_path)
    ttr.transformers.enable()
    later: Any = importlib.import_module("modeling_later")
    try:
        assert later.causal_conv1d_fn(**convolution(5, torch.float32)) is not None
        assert functions_of("qwen3_next")["causal_conv1d_fn"].__wrapped__
        later = importlib.reload(later)
        assert later.causal_conv1d_fn(**convolution(5, torch.float32)) is not None
        ttr.transformers.disable()
        assert later.causal_conv1d_fn(**convolution(5, torch.float32)) is None
        assert not any("_Watch" in type(finder).__name__ for finder in sys.meta_path)
    finally:
        del sys.modules["modeling_later"]


def test_other_parameters_go_to_the_original(tmp_path: Path, monkeypatch: Any) -> None:
    source = "def causal_conv1d_fn(hidden_states, kernel):\n    return 'theirs'\n"
    (tmp_path / "modeling_other.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    ttr.transformers.enable()
    try:
        other: Any = importlib.import_module("modeling_other")
        assert other.causal_conv1d_fn(None, kernel=None) == "theirs"
    finally:
        del sys.modules["modeling_other"]
    (row,) = ttr.transformers.report()
    assert row.reason == "its parameters are (hidden_states, kernel)"


def test_who_rebinds_a_function_after_us_keeps_it(monkeypatch: Any) -> None:
    module, before = module_of("qwen3_next"), functions_of("qwen3_next")
    ttr.transformers.accelerate(small_model("qwen3_next"))
    mine = lambda *args, **kwargs: None
    monkeypatch.setattr(module, "causal_conv1d_fn", mine)
    ttr.transformers.disable()
    assert module.causal_conv1d_fn is mine
    monkeypatch.undo()
    module.causal_conv1d_fn = before["causal_conv1d_fn"]
    assert functions_of("qwen3_next") == before


def test_a_report_counts() -> None:
    model = small_model("qwen3_next")
    ttr.transformers.accelerate(model)
    assert str(ttr.transformers.report()) == "no calls yet"
    with torch.no_grad():
        model(prompt(9))
        model.half()(prompt(9))
    rows = ttr.transformers.report(clear=True)
    chunk = [row for row in rows if row.function == "torch_chunk_gated_delta_rule"]
    assert [(row.calls, row.reason) for row in chunk] == [(3, None), (3, "float16")]
    assert "3  original: float16" in str(rows) and "3  ttr" in str(rows)
    assert not ttr.transformers.report()


def served(family: str, name: str) -> Any:
    ttr.transformers.accelerate(small_model(family))
    return functions_of(family)[name]


def last_reason() -> str | None:
    (row,) = ttr.transformers.report(clear=True)
    return row.reason


def test_reasons_for_the_original() -> None:
    family, name, _ = SEQUENCES["convolution"]
    function, given = served(family, name), convolution(9, torch.float32)
    theirs = original(family, name).__wrapped__
    for changes, reason in (
        ({"activation": "gelu"}, "activation gelu"),
        ({"hidden_states": given["hidden_states"].half(), "activation": None}, "float16"),
        ({"weight": torch.randn(40, 9)}, "[short_conv] weight"),
    ):
        found, want = function(**given | changes), theirs(**given | changes)
        torch.testing.assert_close(found, want)
        assert str(last_reason()).startswith(reason)
    meta = {n: t.to("meta") if isinstance(t, torch.Tensor) else t for n, t in given.items()}
    assert function(**meta).is_meta
    assert last_reason() == "not on the CPU"


def test_a_decay_above_one_is_the_original_s() -> None:
    family, name, _ = SEQUENCES["gated delta rule"]
    function, given = served(family, name), delta_rule(9, torch.float32)
    given["g"] = -given["g"]
    torch.testing.assert_close(function(**given), original(family, name).__wrapped__(**given))
    assert "log_decay" in str(last_reason())


def test_errors_are_those_of_the_original() -> None:
    family, name, _ = SEQUENCES["gated delta rule"]
    function, given = served(family, name), delta_rule(9, torch.float32)
    given["key"] = given["key"][:, :4]
    with pytest.raises(Exception) as theirs:
        original(family, name).__wrapped__(**given)
    with pytest.raises(type(theirs.value)) as found:
        function(**given)
    assert str(found.value) == str(theirs.value)
    assert last_reason() is not None


def test_gradients_of_a_token_are_the_original_s() -> None:
    for case in ("Mamba-2", "Mamba", "convolution"):
        family, name, make = TOKENS[case]
        function, given = served(family, name), make(1, torch.float32)
        x = given["hidden_states"] = given["hidden_states"].detach().requires_grad_()
        function(**given).sum().backward()
        assert x.grad is not None
        assert last_reason() == "gradients of what is updated in place"


def test_two_states_of_other_layouts_and_types() -> None:
    """Behind a beam search a state is contiguous; some caches hold bfloat16."""
    for case in ("Mamba-2", "Mamba"):
        family, name, make = TOKENS[case]
        function, theirs = FUNCTIONS[name], original(family, name).__wrapped__
        for change in (torch.Tensor.contiguous, lambda t: t.bfloat16()):
            given = make(1, torch.float32)
            ours, want = change(given["state"]).clone(), change(given["state"]).clone()
            y = function(**given | {"state": ours})
            torch.testing.assert_close(y, theirs(**given | {"state": want}), rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(ours, want)


def test_a_token_is_written_once_whatever_its_skip_is() -> None:
    """A weight that only broadcasts is refused nowhere behind the write."""
    family, name, make = TOKENS["Mamba-2"]
    function, given = served(family, name), make(1, torch.float32) | {"D": torch.rand(1, 24)}
    want = {n: t.clone() if n == "state" else t for n, t in given.items()}
    y = function(**given)
    torch.testing.assert_close(y, original(family, name).__wrapped__(**want))
    torch.testing.assert_close(given["state"], want["state"])
