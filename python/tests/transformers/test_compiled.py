"""Served models under torch.compile and torch.export."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("transformers", reason="the models are those of transformers")

import torch
import ttr.transformers
from transformer_cases import SEQUENCES, TOKENS, original, results
from transformer_models import cache_of, prompt, small_model


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def served(case: tuple) -> tuple:
    family, name, make = case
    theirs = original(family, name)
    ttr.transformers.accelerate(small_model(family))
    return original(family, name), theirs, make


@pytest.mark.parametrize("case", SEQUENCES)
def test_functions_are_one_graph(case: str) -> None:
    ours, _, make = served(SEQUENCES[case])
    given = make(20, torch.float32)
    want = results(ours, given)
    ttr.transformers.report(clear=True)
    compiled = torch.compile(ours, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(results(compiled, given), want)
    assert not ttr.transformers.report(), "nothing is counted in a graph"


@pytest.mark.parametrize("case", TOKENS)
def test_tokens_are_one_graph(case: str) -> None:
    ours, _, make = served(TOKENS[case])
    given = make(1, torch.float32)
    want = results(ours, given)
    compiled = torch.compile(ours, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(results(compiled, given), want)


def test_what_ours_does_not_take_is_one_graph_of_the_original() -> None:
    ours, theirs, make = served(SEQUENCES["convolution"])
    given = make(20, torch.float32) | {"activation": "gelu"}
    compiled = torch.compile(ours, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(results(compiled, given), results(theirs, given))


@pytest.mark.parametrize("family", ["olmo_hybrid", "mamba2"])
def test_a_model(family: str) -> None:
    """Prefill, then tokens in the cache."""
    model, ids = small_model(family), prompt(20)
    ttr.transformers.accelerate(model)
    with torch.no_grad():
        want = model(ids, use_cache=True)
        token = model(prompt(1), use_cache=True, **cache_of(want))[0]
        model.forward = torch.compile(model.forward, backend="aot_eager")
        found = model(ids, use_cache=True)
        torch.testing.assert_close(found[0], want[0], rtol=1e-4, atol=1e-4)
        again = model(prompt(1), use_cache=True, **cache_of(found))[0]
    torch.testing.assert_close(again, token, rtol=1e-4, atol=1e-4)


def test_a_graph_is_made_anew_when_ours_come_and_go() -> None:
    model, ids = small_model("olmo_hybrid"), prompt(20)
    compiled = torch.compile(model, backend="aot_eager")
    with torch.no_grad():
        want = compiled(ids, use_cache=False)[0]
        with ttr.transformers.accelerated(model):
            found = compiled(ids, use_cache=False)[0]
        assert not torch.equal(found, want), "another graph"
        torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-4)
        assert torch.equal(compiled(ids, use_cache=False)[0], want)


def test_what_is_exported_is_the_original() -> None:
    """A program that leaves this process needs nothing of ttr."""
    model = small_model("lfm2")
    ttr.transformers.accelerate(model)
    program = torch.export.export(model, (prompt(9),), {"use_cache": False})
    assert "ops.ttr" not in str(program)
    with torch.no_grad():
        found, want = (
            program.module()(prompt(9), use_cache=False),
            model(prompt(9), use_cache=False),
        )
    torch.testing.assert_close(found[0], want[0], rtol=1e-4, atol=1e-4)
