"""What stands around a memory: short convolution, norms and gates, against their formulas."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import ttr.torch as tt
from around_cases import (
    TOLERANCE,
    B,
    D,
    H,
    T,
    close,
    conv_formula,
    decay_formula,
    norm_formula,
    rand,
    skip_formula,
    step_formula,
)
from torch import Tensor


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("width", [1, 2, 4, 8])
@pytest.mark.parametrize("silu", [False, True])
@pytest.mark.parametrize("given", [False, True])
def test_short_conv(dtype: torch.dtype, width: int, silu: bool, given: bool) -> None:
    x, w = rand(B, T, H, D, dtype=dtype), rand(H, D, width, dtype=dtype)
    b = rand(H, D, dtype=dtype) if given else None
    s = rand(B, width + 1, H, D, dtype=dtype) if given else None
    before = None if s is None else s.clone()
    y, final = tt.short_conv(x, w, b, state=s, silu=silu, return_state=True)
    args = [None if t is None else t.double() for t in (x, w, b, s)]
    want, want_final = conv_formula(*args, silu)  # type: ignore[arg-type]
    assert y.dtype == dtype and final.dtype == dtype
    close(y, want)
    assert torch.equal(final.double(), want_final)
    assert s is None or torch.equal(s, before)
    assert torch.equal(tt.short_conv(x, w, b, state=s, silu=silu), y)


def test_short_conv_of_channels_without_heads() -> None:
    x, w, b, s = rand(B, T, D), rand(D, 4), rand(D), rand(B, 3, D)
    y, final = tt.short_conv(x, w, b, state=s, return_state=True)
    heads = [t.unsqueeze(-2) for t in (x, b, s)]
    want, want_final = conv_formula(heads[0], w.unsqueeze(0), heads[1], heads[2], False)
    close(y, want.squeeze(2))
    close(final, want_final.squeeze(2))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_short_conv_of_packed_sequences(dtype: torch.dtype) -> None:
    ends = [0, 1, 1, 7, 12]
    x, w, s = rand(1, 12, H, D), rand(H, D, 4), rand(4, 3, H, D)
    bounds = torch.tensor(ends, dtype=dtype)
    for state in (None, s):
        y, final = tt.short_conv(x, w, state=state, cu_seqlens=bounds, return_state=True)
        for n, (begin, end) in enumerate(zip(ends, ends[1:])):
            row = None if state is None else state[n : n + 1]
            want, want_final = conv_formula(x[:, begin:end], w, None, row, False)
            close(y[:, begin:end], want)
            close(final[n : n + 1], want_final)


def test_short_conv_goes_on_bit_for_bit() -> None:
    x, w, b = (rand(*s, dtype=torch.float32) for s in ((B, T, H, D), (H, D, 4), (H, D)))
    whole, final = tt.short_conv(x, w, b, silu=True, return_state=True)
    head, middle = tt.short_conv(x[:, :3], w, b, silu=True, return_state=True)
    tail, last = tt.short_conv(x[:, 3:], w, b, state=middle, silu=True, return_state=True)
    assert torch.equal(torch.cat([head, tail], 1), whole) and torch.equal(last, final)


@pytest.mark.parametrize("rows", [3, 6])
@pytest.mark.parametrize("heads", [False, True])
def test_short_conv_in_place(rows: int, heads: bool) -> None:
    """A cache whose tokens lie side by side is updated where it lies."""
    shape = (H, D) if heads else (D,)
    x, w, b = rand(B, T, *shape), rand(*shape, 4), rand(*shape)
    cache = rand(B, *shape, rows)
    state = cache.movedim(-1, 1)
    whole, final = tt.short_conv(x, w, b, state=state, silu=True, return_state=True)
    address, version = cache.data_ptr(), cache._version
    for t in range(T):
        y = tt.short_conv_(state, x[:, t : t + 1], w, b, silu=True)
        assert torch.equal(y, whole[:, t : t + 1]) and not y.requires_grad
    assert cache.data_ptr() == address and cache._version > version
    assert torch.equal(cache.movedim(-1, 1), final)


def test_short_conv_in_place_has_no_gradients() -> None:
    """Parameters that require them are read all the same where none is meant."""
    state, x = torch.zeros(B, 3, D), torch.randn(B, 1, D)
    w = torch.nn.Parameter(torch.randn(D, 4))
    with torch.no_grad():
        y = tt.short_conv_(state, x, w)
    assert not y.requires_grad and not state.requires_grad
    close(y, w.detach()[:, 3] * x)
    assert torch.equal(state[:, -1:], x)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("kind", ["l2", "rms", "layer"])
@pytest.mark.parametrize("gate_kind", ["silu", "sigmoid"])
@pytest.mark.parametrize("gate_first", [False, True])
def test_norm(dtype: torch.dtype, kind: Any, gate_kind: Any, gate_first: bool) -> None:
    options = {"kind": kind, "eps": 1e-3, "gate_kind": gate_kind, "gate_first": gate_first}
    x, gate = rand(B, T, H, D, dtype=dtype), rand(B, T, H, D, dtype=dtype)
    for weight in (None, rand(D, dtype=dtype), rand(H, D, dtype=dtype)):
        for g in (None, gate):
            args = (x, weight, weight, g)
            y = tt.norm(*args, **options)
            assert y.dtype == dtype
            close(y, norm_formula(*(None if t is None else t.double() for t in args), **options))
    assert torch.equal(
        tt.norm(x[:, :, 0], weight[0], None, gate[:, :, 0], **options),
        tt.norm(x[:, :, :1], weight[0], None, gate[:, :, :1], **options).squeeze(2),
    )


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    "shapes", [((B, T, H), (H,)), ((B, T, H, D), (H,)), ((B, T, H, D), (H, D))]
)
def test_decay_and_step(dtype: torch.dtype, shapes: tuple[tuple[int, ...], ...]) -> None:
    x, a, b = (rand(*shapes[i], dtype=dtype) for i in (0, 1, 1))
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    for bias in (None, b):
        exact = [None if t is None else t.double() for t in (x, a, bias)]
        log_decay = tt.decay_gate(x, a, bias)
        step = tt.step_gate(x, bias, low=0.2, high=1.5)
        assert log_decay.dtype == wide and step.dtype == wide
        close(log_decay, decay_formula(*exact))  # type: ignore[arg-type]
        close(step, step_formula(exact[0], exact[2], 0.2, 1.5))  # type: ignore[arg-type]
    close(tt.step_gate(x), step_formula(x.double()))


def test_softplus_of_large_numbers() -> None:
    x = torch.tensor([[[-800.0, -40.0, 0.0, 30.0, 800.0]]], dtype=torch.float64)
    step = tt.step_gate(x)[0, 0]
    assert step[0] == 0 and step[4] == 800
    close(step, torch.logaddexp(x[0, 0], torch.zeros(5, dtype=torch.float64)))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shape", [(H,), (H, D)])
def test_skip(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    y, x, z = (rand(B, T, H, D, dtype=dtype) for _ in range(3))
    d = rand(*shape, dtype=dtype)
    for args in ((y, x, d, z), (y, x, d, None), (y, None, None, z)):
        out = tt.skip_gate(*args)
        assert out.dtype == dtype
        close(out, skip_formula(*(None if t is None else t.double() for t in args)))


def test_dtypes_are_each_by_itself() -> None:
    x = rand(B, T, H, D, dtype=torch.bfloat16)
    w, b, s = rand(H, D, 4), rand(H, D, dtype=torch.float32), rand(B, 3, H, D)
    y, final = tt.short_conv(x, w, b, state=s, return_state=True)
    assert y.dtype == torch.bfloat16 and final.dtype == torch.float64
    close(y, conv_formula(x.double(), w, b.double(), s, False)[0])
    close(tt.norm(x, w[..., 0], b), norm_formula(x.double(), w[..., 0], b.double()))
    close(tt.skip_gate(b.expand(B, T, H, D), x, b), skip_formula(b.double().expand(B, T, H, D), x.double(), b.double()))  # fmt: skip


def test_float16_is_that_of_float32_rounded() -> None:
    """Outputs, states in place and gradients."""
    x, w, b = (rand(*s).half().requires_grad_() for s in ((B, T, H, D), (H, D, 4), (H, D)))
    wide = [t.detach().float().requires_grad_() for t in (x, w, b)]

    def everything(x: Tensor, w: Tensor, b: Tensor) -> list[Tensor]:
        y, final = tt.short_conv(x, w, b, silu=True, return_state=True)
        n = tt.norm(y, b, gate=x)
        return [y, final, n, tt.skip_gate(n, x, b, x), tt.decay_gate(x, b), tt.step_gate(x, b)]

    found, exact = everything(x, w, b), everything(*wide)
    halves = [t.dtype == torch.float16 for t in found]
    assert halves == [True] * 4 + [False] * 2
    assert torch.equal(found[0], exact[0].half()) and torch.equal(found[4], exact[4])
    for a, e in zip(found[2:4], exact[2:4]):
        torch.testing.assert_close(a.float(), e, rtol=4e-3, atol=4e-3)
    dy = rand(B, T, H, D).half()
    grads = torch.autograd.grad(found[0], (x, w, b), dy)
    for a, e in zip(grads, torch.autograd.grad(exact[0], wide, dy.float())):
        assert torch.equal(a, e.half())
    state = rand(B, 3, H, D).half()
    kept = state.float()
    with torch.no_grad():
        y = tt.short_conv_(state, x[:, :1], w, b)
        assert torch.equal(y, tt.short_conv_(kept, wide[0][:, :1], *wide[1:]).half())
    assert torch.equal(state, kept.half())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("sizes", [(2, 3, 70, 37), (1, 130, 1, 65), (3, 1, 33, 2)])
def test_transposed_rows_are_copied_whole(
    sizes: tuple[int, ...], axis: int, dtype: torch.dtype
) -> None:
    """Another axis lies side by side than the last: any of the other three, of any size."""
    x = torch.randn(sizes).to(dtype)
    lying = x.transpose(axis, -1).contiguous().transpose(axis, -1)
    assert torch.equal(tt.norm(lying, kind="l2"), tt.norm(x, kind="l2"))
    assert torch.equal(tt.norm(lying[..., 1:], kind="l2"), tt.norm(x[..., 1:], kind="l2"))
