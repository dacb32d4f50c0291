"""The operators themselves, and all that is updated in place: no derivative gets lost without a word."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import operator_cases as cases
import pytest
import torch
import ttr.torch as tt
import ttr.torch.functional as ttf
from around_cases import OPS, rand
from torch import Tensor
from torch.autograd import forward_ad
from ttr.torch import _library, portable
from ttr.torch._arguments import arrange

#: PyTorch compiles rules of its own for forward mode, by what it calls deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
RECIPE = "gated_deltanet"
FORWARD = "derivatives are made in forward mode.*reverse mode"
IN_PLACE = r"requires_grad must be False, as \w+ updates in place, .* or torch.no_grad\(\)"


def arranged(**options: Any) -> tuple[list[Tensor], int]:
    inputs = cases.draw(RECIPE, **options)
    return arrange(RECIPE, *(inputs.pop(name) for name in "qkv"), inputs)


def by_first(
    call: Callable[[list[Tensor], int], Any], **options: Any
) -> tuple[Callable[[Tensor], Any], Tensor]:
    """`call` of a list of inputs and its number, as a function of the first input."""
    (first, *others), given = arranged(**options)
    return lambda x: call([x, *others], given), first


SEQUENCE, TOKEN, STATE = arranged(), arranged(T=1), cases.reached(RECIPE)["state"]
SIZES = _library.record(_library.sizes_of(RECIPE, *TOKEN), torch.float64)
NAMED, PAIR = cases.draw(RECIPE, T=1), cases.draw("softmax", T=1)
X, FILTER, ROWS = rand(1, 3, 2, 4), rand(2, 4, 3), rand(1, 2, 2, 4)
DY = OPS.forward(RECIPE, *SEQUENCE, [], 0)[0]
NORM = (None, None, None, "rms", 1e-6, "silu", False)
CHANNELS, TAPS, HEADS = rand(1, 4, 3), rand(4, 3), rand(2)
MEMORY, CHANNEL, KEY, DECAY = rand(1, 3, 4), rand(1, 3), rand(1, 4), -rand(3, 4).exp()


def started(start: Tensor) -> Tensor:
    """A decoder's memory that begins at `start`."""
    memory = torch.zeros(OPS.decoder_bytes(RECIPE, SIZES), dtype=torch.uint8)
    OPS.decoder_start_(RECIPE, memory, SIZES, [start])
    return memory


def selective(x: Tensor) -> Tensor:
    return ttf.selective_state_update(MEMORY.clone(), x, CHANNEL.exp(), DECAY, KEY, KEY)


Case = tuple[Callable[[Tensor], Any], Tensor]
FUNCTIONAL: dict[str, Case] = {
    "forward": by_first(lambda i, n: OPS.forward(RECIPE, i, n, [], 0)),
    "forward, a state": (lambda s: OPS.forward(RECIPE, *SEQUENCE, [s], 1), STATE),
    "backward": by_first(lambda i, n: OPS.backward(RECIPE, i, n, [], 0, DY, [], 0, [], 7)),
    "short_conv": (lambda x: OPS.short_conv(x, FILTER, None, None, None, False), X),
    "norm": (lambda x: OPS.norm(x, *NORM), X),
    "norm_backward": (lambda x: OPS.norm_backward(X, x, *NORM, 1), X),
    "decay_gate": (lambda x: OPS.decay_gate(x, HEADS, None), X),
    "step_gate": (lambda x: OPS.step_gate(x, None, 0.0, 9.0), X),
    "skip_gate": (lambda x: OPS.skip_gate(x, None, None, X), X),
}
WRITTEN: dict[str, Case] = {
    "ops.step_": by_first(lambda i, n: OPS.step_(RECIPE, started(STATE), i, n), T=1),
    "ops.step_state_": by_first(lambda i, n: OPS.step_state_(RECIPE, [STATE.clone()], i, n), T=1),
    "ops.step_state_, a state": (lambda s: OPS.step_state_(RECIPE, [s], *TOKEN), STATE),
    "ops.decoder_start_": (started, STATE),
    "ops.short_conv_": (lambda s: OPS.short_conv_(s, X, FILTER, None, False), ROWS),
    "short_conv_": (lambda w: tt.short_conv_(ROWS.clone(), X, w), FILTER),
    "short_conv_, a state": (lambda s: tt.short_conv_(s, X, FILTER), ROWS),
    "step_": (lambda s: tt.step_(RECIPE, {"state": s}, **NAMED), STATE),
    "Decoder.start": (lambda s: tt.Decoder(RECIPE).start({"state": s}), STATE),
    "Decoder.step": (lambda q: tt.Decoder(RECIPE).step(**{**NAMED, "q": q}), NAMED["q"]),
    "Decoder.step, pairs": (lambda q: tt.Decoder("softmax").step(**{**PAIR, "q": q}), PAIR["q"]),
    "causal_conv1d_update": (
        lambda x: ttf.causal_conv1d_update(x, CHANNELS.clone(), TAPS),
        rand(1, 4),
    ),
    "selective_state_update": (selective, rand(1, 3)),
}


@pytest.mark.parametrize("name", [*FUNCTIONAL, *WRITTEN])
def test_a_tangent_is_refused(name: str) -> None:
    call, x = {**FUNCTIONAL, **WRITTEN}[name]
    with pytest.raises(RuntimeError, match=FORWARD):
        torch.func.jvp(lambda x: call(x.clone()), (x,), (torch.ones_like(x),))
    for grad, text in ((False, FORWARD), (True, f"{FORWARD}|{IN_PLACE}")):
        with forward_ad.dual_level(), pytest.raises(RuntimeError, match=text):
            call(forward_ad.make_dual(x.clone().requires_grad_(grad), torch.ones_like(x)))


@pytest.mark.parametrize("name", list(WRITTEN))
def test_what_is_updated_in_place_refuses_what_wants_a_gradient(name: str) -> None:
    call, x = WRITTEN[name]
    x = x.clone().requires_grad_()
    before = x.detach().clone()
    with pytest.raises(RuntimeError, match=IN_PLACE):
        call(x)
    assert torch.equal(x, before)
    with torch.no_grad():
        call(x.clone())


def test_operators_in_place_count_their_changes() -> None:
    """A backward pass that has saved what they write finds out."""
    held = STATE.clone()
    q = cases.draw(RECIPE)["q"].requires_grad_()
    y = tt.regress(RECIPE, **{**cases.draw(RECIPE), "q": q}, state={"state": held})
    OPS.step_state_(RECIPE, [held], *TOKEN)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_room_for_pairs_keeps_derivatives() -> None:
    pairs = cases.reached("softmax")

    def larger(v: Tensor) -> Tensor:
        return tt.reserve_pairs("softmax", {**pairs, "state.v": v}, 100)["state.v"]

    v = pairs["state.v"]
    _, tangent = torch.func.jvp(larger, (v,), (torch.ones_like(v),))
    assert tangent.sum() == v.numel()
    assert (torch.autograd.grad(larger(v.requires_grad_()).sum(), v)[0] == 1).all()


@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_portable_attention_in_forward_mode(name: str) -> None:
    inputs = cases.draw("softmax")
    x = inputs.pop(name)
    step = 1e-6 * torch.ones_like(x)

    def call(x: Tensor) -> Any:
        return portable.regress("softmax", **inputs, **{name: x})

    _, tangent = torch.func.jvp(call, (x,), (step,))
    torch.testing.assert_close(tangent, (call(x + step) - call(x - step)) / 2, rtol=1e-6, atol=1e-12)


def test_distances_refuse_a_tangent() -> None:
    inputs = cases.draw("nadaraya_watson")
    q = inputs.pop("q")
    with pytest.raises(RuntimeError, match=FORWARD):
        torch.func.jvp(lambda q: portable.regress("nadaraya_watson", q, **inputs), (q,), (q,))
