"""Packed sequences: none leaks into its neighbour. The originals refuse them on a CPU.

Bit for bit, from four tokens on: a call of three or fewer goes by the engines' way for tokens.
"""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("transformers", reason="the models are those of transformers")

import torch
import ttr.transformers
from torch import Tensor
from transformer_cases import SEQUENCES, original
from transformer_models import FAMILIES, prompt, small_model
from ttr.transformers._functions import FUNCTIONS

LENGTHS = [5, 64, 4, 67]
BOUNDS = torch.tensor([0, 5, 69, 73, 140], dtype=torch.int32)
NUMBERS = torch.repeat_interleave(torch.arange(4), torch.tensor(LENGTHS)).unsqueeze(0)
WAYS = {
    "cu_seqlens": {"cu_seqlens": BOUNDS},
    "cu_seq_lens_q": {"cu_seq_lens_q": BOUNDS, "cu_seq_lens_k": BOUNDS, "max_length_q": 70},
    "seq_idx": {"seq_idx": NUMBERS.int()},
}
#: Axes of tokens, of those that have one.
AXES = {
    "gated delta rule": dict.fromkeys(["query", "key", "value", "g", "beta"], 1),
    "KDA": dict.fromkeys(["query", "key", "value", "g", "beta"], 1),
    "Mamba-2": dict.fromkeys(["hidden_states", "dt", "B", "C"], 1),
    "convolution": {"hidden_states": 2},
}
STATES = ("initial_state", "initial_states")


def outputs(result: Any) -> tuple[Tensor, Tensor | None]:
    return result if isinstance(result, tuple) else (result, None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", AXES)
def test_functions_bit_for_bit(case: str, way: str, dtype: torch.dtype) -> None:
    _, name, make = SEQUENCES[case]
    given = {n: t for n, t in make(140, dtype, batch=1).items() if n not in STATES}
    axis = 2 if case == "convolution" else 1
    together, states = outputs(FUNCTIONS[name](**given, **WAYS[way]))
    finals = []
    for begin, end in zip(BOUNDS.tolist(), BOUNDS.tolist()[1:]):
        one = given | {n: given[n].narrow(a, begin, end - begin) for n, a in AXES[case].items()}
        alone, state = outputs(FUNCTIONS[name](**one))
        assert torch.equal(together.narrow(axis, begin, end - begin), alone)
        finals.append(state)
    if case in ("gated delta rule", "KDA"):
        assert states is not None and torch.equal(states, torch.cat(finals))
    elif case == "Mamba-2":
        assert states is not None and torch.equal(states, finals[-1])


@pytest.mark.parametrize("case", AXES)
def test_gradients_bit_for_bit(case: str) -> None:
    _, name, make = SEQUENCES[case]
    given = {n: t for n, t in make(140, torch.float32, batch=1).items() if n not in STATES}
    leaves = {n: given[n].detach().requires_grad_() for n in AXES[case]}
    axis = 2 if case == "convolution" else 1
    together, _ = outputs(FUNCTIONS[name](**given | leaves, **WAYS["cu_seqlens"]))
    draw = torch.randn(together.shape, generator=torch.Generator().manual_seed(0))
    want = torch.autograd.grad(together, list(leaves.values()), draw)
    for begin, end in zip(BOUNDS.tolist(), BOUNDS.tolist()[1:]):
        spans = {n: (a, begin, end - begin) for n, a in AXES[case].items()}
        one = {n: given[n].narrow(*span).detach().requires_grad_() for n, span in spans.items()}
        alone, _ = outputs(FUNCTIONS[name](**given | one))
        found = torch.autograd.grad(
            alone, list(one.values()), draw.narrow(axis, begin, end - begin)
        )
        for slope, whole, span in zip(found, want, spans.values(), strict=True):
            assert torch.equal(slope, whole.narrow(*span))


def packed(ids: list[Tensor]) -> dict[str, Any]:
    """What a collator makes of sequences."""
    places = torch.cat([torch.arange(x.shape[1]) for x in ids]).unsqueeze(0)
    bounds = {"cu_seq_lens_q": BOUNDS, "cu_seq_lens_k": BOUNDS}
    bounds |= {"max_length_q": max(LENGTHS), "max_length_k": max(LENGTHS)}
    return {
        "input_ids": torch.cat(ids, 1),
        "position_ids": places,
        "seq_idx": NUMBERS.int(),
        **bounds,
    }


#: Families whose layers receive no bounds of packed sequences, or whose attention leaks between them.
WITHOUT_BOUNDS = ["mamba", "falcon_mamba", "jamba", "zamba", "granitemoehybrid", "glm5_next"]
WITHOUT_BOUNDS += ["inkling", "inkling2"]  # the second in 5.23


@pytest.mark.parametrize("family", [family for family in FAMILIES if family not in WITHOUT_BOUNDS])
def test_models(family: str) -> None:
    """Without their heads: that of Mamba-2 tells its layers nothing."""
    model = small_model(family).base_model
    ids = [prompt(length, batch=1, seed=length) for length in LENGTHS]
    with ttr.transformers.accelerated(model), torch.no_grad():
        together = model(**packed(ids), use_cache=False)[0]
        alone = torch.cat([model(x, use_cache=False)[0] for x in ids], 1)
    torch.testing.assert_close(together, alone, rtol=1e-3, atol=1e-4)


def test_the_original_refuses_in_its_words() -> None:
    _, name, make = SEQUENCES["gated delta rule"]
    with pytest.raises(ValueError, match="packed sequences"):
        original("qwen3_next", name)(**make(140, torch.float32, batch=1), **WAYS["cu_seqlens"])


def test_a_scan_that_is_not_told_refuses() -> None:
    """These mixers tell their convolution of packed sequences, and not their scan."""
    model = small_model("zamba")
    ids = [prompt(length, batch=1, seed=length) for length in LENGTHS]
    ttr.transformers.accelerate(model)
    with pytest.raises(ValueError, match="packed sequences"), torch.no_grad():
        model(**packed(ids), use_cache=False)
    (row,) = [row for row in ttr.transformers.report() if row.reason]
    assert row.function == "causal_conv1d_fn" and "does not pass" in str(row.reason)
