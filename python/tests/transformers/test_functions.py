"""Each function beside the original and a float64 run of it."""

from __future__ import annotations

import inspect

import pytest

pytest.importorskip("transformers", reason="the functions are those of transformers")

import torch
from transformer_cases import SEQUENCES, TOKENS, exact, gradients, no_further, original, results
from ttr.transformers._functions import FUNCTIONS

#: How much further from float64 than the original a result may be, where both are but rounding.
FACTOR, SLACK = 1.25, 2e-7
DTYPES = [torch.float32, torch.bfloat16]


def test_parameters_are_those_of_the_originals() -> None:
    for family, name, _ in [*SEQUENCES.values(), *TOKENS.values()]:
        theirs = inspect.signature(original(family, name)).parameters
        assert tuple(inspect.signature(FUNCTIONS[name]).parameters) == tuple(theirs)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("tokens", [1, 2, 63, 130])
@pytest.mark.parametrize("case", SEQUENCES)
def test_a_sequence(case: str, tokens: int, dtype: torch.dtype) -> None:
    family, name, make = SEQUENCES[case]
    given, theirs = make(tokens, dtype), original(family, name)
    found, want = results(FUNCTIONS[name], given), results(theirs, given)
    assert {n: t.dtype for n, t in found.items() if n != "output 0"} == {
        n: torch.float32 for n in want if n != "output 0"
    }
    no_further(found, want, exact(results, theirs, given), FACTOR, SLACK)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", TOKENS)
def test_a_token(case: str, dtype: torch.dtype) -> None:
    family, name, make = TOKENS[case]
    given, theirs = make(1, dtype), original(family, name)
    found, want = results(FUNCTIONS[name], given), results(theirs, given)
    assert found["output 0"].dtype == want["output 0"].dtype
    no_further(found, want, exact(results, theirs, given), FACTOR, SLACK)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", SEQUENCES)
def test_gradients(case: str, dtype: torch.dtype) -> None:
    family, name, make = SEQUENCES[case]
    given, theirs = make(70, dtype), original(family, name)
    found, want = gradients(FUNCTIONS[name], given), gradients(theirs, given)
    no_further(found, want, exact(gradients, theirs, given), FACTOR, SLACK)
