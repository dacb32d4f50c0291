"""Every way to call short convolution, norms and gates: strides, threads, wrong arguments, the compiler."""

from __future__ import annotations

from typing import Any, Callable

import pytest
import torch
import ttr.torch as tt
from around_cases import CASES, OPS, ROWS, B, D, H, T, close, grads_of, rand
from torch import Tensor
from ttr.torch import _library


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("name", CASES)
def test_any_strides(name: str) -> None:
    """Tensors whose axes lie in the reverse order, and gradients that are one number."""
    actual, _, tensors = CASES[name]()
    tensors = [t.requires_grad_() for t in tensors]
    strided = [t.detach().permute(*reversed(range(t.dim()))).contiguous() for t in tensors]
    strided = [t.permute(*reversed(range(t.dim()))).requires_grad_() for t in strided]
    assert any(not t.is_contiguous() for t in strided)
    outputs, same = actual(*tensors), actual(*strided)
    outputs, same = (y if isinstance(y, tuple) else (y,) for y in (outputs, same))
    for a, b in zip(outputs, same):
        assert torch.equal(a, b)
    for of, given in ((outputs, tensors), (same, strided)):
        sum(y.sum() for y in of).backward()
        assert all(t.grad is not None for t in given)
    for a, b in zip(tensors, strided):
        assert torch.equal(a.grad, b.grad)


def test_threads_change_no_bit() -> None:
    x, w = rand(4, 130, 3, 40, dtype=torch.float32, grad=True), rand(3, 40, 4, dtype=torch.float32)
    weight = rand(40, dtype=torch.float32, grad=True)
    threads, found = torch.get_num_threads(), []
    try:
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            y = tt.norm(tt.short_conv(x, w, silu=True), weight)
            found.append((y, *torch.autograd.grad(y.square().sum() + y.sum(), (x, weight))))
    finally:
        torch.set_num_threads(threads)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other))


@pytest.mark.parametrize("shape", [(0, T, H, D), (B, 0, H, D)])
def test_nothing_to_do(shape: tuple[int, ...]) -> None:
    x, w = rand(*shape, grad=True), rand(H, D, 4, grad=True)
    y, final = tt.short_conv(x, w, return_state=True)
    assert y.shape == shape and final.shape == (shape[0], 3, H, D) and (final == 0).all()
    z = tt.skip_gate(tt.norm(y), z=tt.step_gate(x)) + tt.decay_gate(x, w[:, 0, 0])
    dx, dw = torch.autograd.grad(z.sum(), (x, w))
    assert dx.shape == shape and (dw == 0).all()


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (lambda: tt.short_conv(rand(B, T, H, D), rand(H, D, 9)), "weight"),
        (lambda: tt.short_conv(rand(B, T, H, D), rand(H, D)), "weight"),
        (lambda: tt.short_conv(rand(B, T, H, D), rand(H, D, 4), rand(D)), "bias"),
        (lambda: tt.short_conv(rand(T, D), rand(H, D, 4)), "x"),
        (lambda: tt.short_conv(rand(B, T, H, D).int(), rand(H, D, 4)), "x .*another dtype"),
        (lambda: tt.short_conv(rand(B, T, D), rand(D, 4), state=rand(B, 2, D)), "state"),
        (lambda: tt.short_conv(rand(B, T, D), rand(D, 4), cu_seqlens=torch.tensor([0, T])), "B "),
        (lambda: tt.short_conv(rand(1, T, D), rand(D, 4), cu_seqlens=torch.tensor([0, 3])), "cu_s"),
        (lambda: tt.short_conv(rand(1, T, D), rand(D, 4), cu_seqlens=torch.tensor(0)), "cu_seqlens"),
        (lambda: tt.short_conv_(rand(1, 3, D).expand(B, 3, D), rand(B, 1, D), rand(D, 4)), "state"),
        (lambda: tt.norm(rand(B, T, H, D), kind="max"), "kind must be l2, rms or layer"),
        (lambda: tt.norm(rand(B, T, H, D), gate_kind="relu"), "gate_kind must be silu or sigmoid"),
        (lambda: tt.norm(rand(B, T, H, D), eps=-1.0), "eps"),
        (lambda: tt.norm(rand(B, T, H, D), rand(H)), "weight"),
        (lambda: tt.norm(rand(B, T, H, D), gate=rand(B, T, D, H)), "gate"),
        (lambda: tt.decay_gate(rand(B, T, H), rand(H, D)), "a "),
        (lambda: tt.decay_gate(rand(B, T, H), rand(H), rand(D)), "bias"),
        (lambda: tt.decay_gate(rand(T, H), rand(H)), "x "),
        (lambda: tt.step_gate(rand(B, T, H), low=2.0, high=1.0), "low"),
        (lambda: tt.skip_gate(rand(B, T, H, D), rand(B, T, H, D)), "d "),
        (lambda: tt.skip_gate(rand(B, T, H, D), z=rand(B, T, H)), "z "),
        (lambda: tt.skip_gate(rand(B, T, H)), "y "),
        (
            lambda: _library.operator("norm_backward")(
                rand(B, T, H, D), rand(B, T, H, D), None, None, None, "rms", 1e-6, "silu", False, 2
            ),
            "weight must be given where its gradient is wanted",
        ),
    ],
)  # fmt: skip
def test_errors_name_the_argument(bad: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        bad()


def test_shapes_without_data() -> None:
    x = rand(B, T, H, D).to("meta")
    y, final = tt.short_conv(x, rand(H, D, 4).to("meta"), return_state=True)
    assert y.is_meta and y.shape == x.shape and final.shape == (B, 3, H, D)
    assert tt.decay_gate(x.bfloat16(), rand(H).to("meta")).dtype == torch.float32


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # opcheck of PyTorch 2.15 reads it
@pytest.mark.parametrize("grad", [False, True])
def test_opcheck(grad: bool) -> None:
    x, gate, s = (rand(B, n, H, D, dtype=torch.float32, grad=grad) for n in (T, T, 3))
    w = rand(H, D, 4, dtype=torch.float32, grad=grad)
    p = rand(H, D, dtype=torch.float32, grad=grad)
    check = torch.library.opcheck
    check(OPS.short_conv.default, (x, w, p, s, None, True))
    check(OPS.short_conv.default, (x, w, None, None, None, False))
    bounds = torch.tensor([0, 3, T])
    row = x[:1].detach().requires_grad_(grad)
    check(OPS.short_conv.default, (row, w, None, None, bounds, False))
    check(OPS.norm.default, (x, p, None, gate, "rms", 1e-6, "silu", False))
    check(OPS.decay_gate.default, (x, p, p))
    check(OPS.step_gate.default, (x, p, 0.0, float("inf")))
    check(OPS.skip_gate.default, (x, gate, p, gate))


def test_opcheck_backward_and_in_place() -> None:
    x, dy, s = (rand(B, n, H, D, dtype=torch.float32) for n in (T, T, 3))
    w, p = rand(H, D, 4, dtype=torch.float32), rand(H, D, dtype=torch.float32)
    check = torch.library.opcheck
    check(OPS.short_conv_backward.default, (dy, s, x, w, p, s.clone(), None, True, 15))
    check(OPS.norm_backward.default, (dy, x, p, p, None, "rms", 1e-6, "silu", False, 7))
    check(OPS.decay_gate_backward.default, (dy, x, p, p, 7))
    check(OPS.step_gate_backward.default, (dy, x, p, 0.0, 1.0, 3))
    check(OPS.skip_gate_backward.default, (dy, x, x, p, x, 15))
    check(OPS.short_conv_.default, (s.transpose(2, 3).contiguous().transpose(2, 3), x, w, p, True))


def mixer(x: Tensor, w: Tensor, p: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """Everything in a row, as a layer has it."""
    u, final = tt.short_conv(x, w, p, state=s, silu=True, return_state=True)
    u = tt.norm(u, p, gate=x) * tt.step_gate(x, p, low=0.1)
    return tt.skip_gate(u, x, p, u) * tt.decay_gate(x, p).exp(), final


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compile_has_no_graph_break(backend: str) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(mixer, fullgraph=True, backend=backend)
    tensors = [rand(*shape, grad=True) for shape in (ROWS, (H, D, 4), (H, D), (B, 3, H, D))]
    for a, b in zip(grads_of(compiled, tensors), grads_of(mixer, tensors)):
        close(a, b)
    with torch.no_grad():
        for a, b in zip(compiled(*tensors), mixer(*tensors)):
            close(a, b)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compile_in_place() -> None:
    torch._dynamo.reset()

    def step(cache: Tensor, x: Tensor, w: Tensor) -> Tensor:
        return tt.short_conv_(cache.transpose(1, 2), x, w) * 2

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    cache, x, w = rand(B, D, 3), rand(B, 1, D), rand(D, 4)
    same = cache.clone()
    close(compiled(cache, x, w), step(same, x, w))
    assert torch.equal(cache, same)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compile_of_the_names_of_causal_conv1d() -> None:
    from ttr.torch import functional as ttf

    torch._dynamo.reset()

    def run(x: Tensor, token: Tensor, cache: Tensor, w: Tensor) -> Tensor:
        y = ttf.causal_conv1d_fn(x.transpose(1, 2), w, activation="silu")
        return y[..., -1] + ttf.causal_conv1d_update(token, cache, w)

    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    x, token, cache, w = rand(B, T, D), rand(B, D), rand(B, D, 4), rand(D, 4)
    same = cache.clone()
    close(compiled(x, token, cache, w), run(x, token, same, w))
    assert torch.equal(cache, same)


def test_a_state_written_in_place_is_not_differentiated_through() -> None:
    state, x, w = rand(B, 3, D), rand(B, T, D), rand(D, 4, grad=True)
    y = tt.short_conv(x, w, state=state)
    with torch.no_grad():
        tt.short_conv_(state, x, w)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
