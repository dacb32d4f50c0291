"""What a regression knows beside y, in PyTorch: those of the library, wherever the tensors are."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch_cases as cases
import ttr
from torch_cases import Sizes
from ttr.torch import Decoder, regress, retrieve, step_
from ttr.torch._arguments import slice_tokens
from ttr.torch._recipes import info_of, text_of
from ttr.torch._reports import REPORTS

SIZES = Sizes(tokens=8, query_heads=4, key_dim=3, value_dim=2)
HAS = {
    "rls{ridge: 0.3}": ["leverage", "status"],
    "kernel_ridge{kernel: gaussian, bandwidth: 2}": ["leverage"],
    "softmax{pair_bias: input}": ["effective_pairs"],
    "local_linear": ["slope", "effective_pairs", "status"],
    "kalmanet": ["iterations", "residual"],
}


def test_every_report_of_the_library_is_known() -> None:
    with pytest.raises(ValueError) as caught:
        ttr.Layer("rls").forward(**{n: np.zeros((1, 1, 1, 1)) for n in "qkv"}, out={"none": np.zeros(1)})
    assert f"one of y, {', '.join(REPORTS)} but" in str(caught.value)


@pytest.mark.parametrize("recipe", HAS)
def test_they_are_those_of_the_definition(recipe: str) -> None:
    """Also from a state, beside which the answers are the call's; of the last token by retrieve."""
    inputs, state = cases.inputs(recipe, SIZES), cases.state(recipe, SIZES)
    y, final, found = regress(recipe, **inputs, state=state, reports=HAS[recipe], return_state=True)
    torch.testing.assert_close(y, regress(recipe, **inputs, state=state), rtol=1e-10, atol=1e-10)
    out = {name: np.empty(found[name].shape, REPORTS[name]) for name in HAS[recipe]}
    arrays = {name: x.numpy() for name, x in inputs.items()}
    ttr.Layer(recipe, engine="definition").forward(**arrays, state={n: x.numpy() for n, x in state.items()}, out=out)
    last = {n: x[:, -1:] for n, x in inputs.items() if n in ("q", "pair_bias", "step", "momentum")}
    last |= {n: inputs[n] for n in ("ridge", "bandwidth") if n in inputs}
    answers, known = retrieve(recipe, final, reports=HAS[recipe], **last)
    torch.testing.assert_close(answers, y[:, -1:], rtol=1e-10, atol=1e-10)
    for name, x in found.items():
        torch.testing.assert_close(x, torch.from_numpy(out[name]), rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(known[name], x[:, -1:], rtol=1e-9, atol=1e-9)
        assert x.any() or name == "status"


def test_leverage_is_the_slope_of_an_answer_by_its_value() -> None:
    """At a key of the fit, and so what autograd knows as well."""
    inputs = cases.inputs("rls{ridge: 0.3}", Sizes(batch=1, tokens=6))
    inputs["q"] = inputs["k"]
    inputs["v"].requires_grad_()
    y = regress("rls{ridge: 0.3}", **inputs)
    (slope,) = torch.autograd.grad(y[0, 5, 1, 0], inputs["v"])
    with torch.no_grad():
        _, found = regress("rls{ridge: 0.3}", **inputs, reports=["leverage"])
    assert found["leverage"][0, 5, 1].item() == pytest.approx(slope[0, 5, 1, 0].item(), rel=1e-10)


def test_narrow_and_packed_calls_have_them() -> None:
    inputs = cases.inputs("rls", Sizes(tokens=9, sequences=3), dtype=torch.bfloat16)
    y, found = regress("rls", **inputs, reports=("leverage",))
    assert y.dtype == torch.bfloat16 and found["leverage"].dtype == torch.float64
    wide = {n: x.float() if x.is_floating_point() else x for n, x in inputs.items()}
    want = regress("rls", **wide, reports=("leverage",))[1]
    assert torch.equal(found["leverage"], want["leverage"])


def test_refusals() -> None:
    inputs = cases.inputs("rls", SIZES)
    with pytest.raises(ValueError, match=r"\[regress\] reports must be of status, .* but has 'slopes'"):
        regress("rls", **inputs, reports=["slopes"])
    with pytest.raises(ValueError, match="reports must be a list of names but is 'leverage'"):
        regress("rls", **inputs, reports="leverage")
    with pytest.raises(ValueError, match="slope must be absent"):
        regress("rls", **inputs, reports=["slope"])
    with pytest.raises(RuntimeError, match="k must not require gradients, as a call with reports has none"):
        regress("rls", **{**inputs, "k": inputs["k"].requires_grad_()}, reports=["leverage"])
    token = {name: x[:, :1].detach() if x.dim() > 2 else x for name, x in inputs.items()}
    with pytest.raises(ValueError, match=r"reports must be absent here.*Decoder.step"):
        step_("rls", torch.zeros(8, dtype=torch.uint8), **token, reports=["leverage"])
    with pytest.raises(ValueError, match="slope must be absent"):
        Decoder("rls").step(**token, reports=["slope"])
    with pytest.raises(RuntimeError, match="k must not require gradients|requires_grad must be False"):
        Decoder("rls").step(**{**token, "k": token["k"].clone().requires_grad_()}, reports=["leverage"])


@pytest.mark.parametrize("recipe", [*HAS, "mesa{read: before}"])
@pytest.mark.parametrize("draft", [0, 2])
def test_a_decoder_has_those_of_the_whole(recipe: str, draft: int) -> None:
    """Its answers are, bit for bit, those of a decoder that is not asked."""
    names = HAS.get(recipe, ["leverage"])
    inputs = cases.inputs(recipe, SIZES)
    info = info_of(text_of(recipe))
    _, want = regress(recipe, **inputs, reports=names)
    decoder, silent = Decoder(recipe, draft=draft), Decoder(recipe, draft=draft)
    tokens = draft or 1
    for t in range(0, SIZES.tokens, tokens):
        part = slice_tokens(info, inputs, t, t + tokens)
        if "pair_bias" in part:  # has a column for every pair
            part["pair_bias"] = part["pair_bias"][..., : t + tokens]
        y, found = decoder.step(**part, reports=names)
        assert torch.equal(y, silent.step(**part))
        for name, x in found.items():
            torch.testing.assert_close(x, want[name][:, t : t + tokens], rtol=1e-9, atol=1e-9)
