"""What stands around a memory: short convolution, norms and gates, against their formulas in
PyTorch's operators in float64."""

from __future__ import annotations

from typing import Any, Callable

import pytest
import torch
import torch.nn.functional as F
import ttr.torch as tt
from torch import Tensor

OPS = torch.ops.ttr
B, T, H, D = 2, 7, 3, 5
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-6, torch.bfloat16: 1e-2}


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def rand(*shape: int, dtype: torch.dtype = torch.float64, grad: bool = False) -> Tensor:
    return torch.randn(*shape, dtype=dtype).requires_grad_(grad)


def close(actual: Tensor, expected: Tensor) -> None:
    """To the rounding of actual's dtype."""
    assert actual.shape == expected.shape
    bound = TOLERANCE[actual.dtype]
    torch.testing.assert_close(
        actual.detach().double(), expected.detach().double(), rtol=bound, atol=bound
    )


# ---- The formulas --------------------------------------------------------------------------------


def conv_formula(
    x: Tensor, w: Tensor, b: Tensor | None, s: Tensor | None, silu: bool
) -> tuple[Tensor, Tensor]:
    width = w.shape[-1]
    s = x.new_zeros(x.shape[0], width - 1, *x.shape[2:]) if s is None else s
    seen = torch.cat([s, x], 1)
    first = s.shape[1] - (width - 1)
    z = sum(w[..., j] * seen[:, first + j : first + j + x.shape[1]] for j in range(width))
    z = z if b is None else z + b
    return (F.silu(z) if silu else z), seen[:, x.shape[1] :]


def norm_formula(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    gate: Tensor | None = None,
    kind: str = "rms",
    eps: float = 1e-6,
    gate_kind: str = "silu",
    gate_first: bool = False,
) -> Tensor:
    g = None if gate is None else gate.sigmoid() * (gate if gate_kind == "silu" else 1)
    x = x * g if g is not None and gate_first else x
    if kind == "layer":
        x = x - x.mean(-1, keepdim=True)
    square = x.square().sum(-1, keepdim=True) / (1 if kind == "l2" else x.shape[-1])
    y = x / (square + eps).sqrt()
    y = y if weight is None else y * weight
    y = y if bias is None else y + bias
    return y if g is None or gate_first else y * g


def per_token(parameter: Tensor, x: Tensor) -> Tensor:
    return parameter.unsqueeze(-1) if parameter.dim() == 1 and x.dim() == 4 else parameter


def decay_formula(x: Tensor, a: Tensor, b: Tensor | None = None) -> Tensor:
    u = x if b is None else x + per_token(b, x)
    return -per_token(a, x).exp() * (u.exp() + 1).log()


def step_formula(x: Tensor, b: Tensor | None = None, low: float = 0.0, high: float = 1e9) -> Tensor:
    u = x if b is None else x + per_token(b, x)
    return (u.exp() + 1).log().clamp(low, high)


def skip_formula(
    y: Tensor, x: Tensor | None = None, d: Tensor | None = None, z: Tensor | None = None
) -> Tensor:
    y = y if d is None or x is None else y + per_token(d, y) * x
    return y if z is None else y * z * z.sigmoid()


# ---- Short convolution ---------------------------------------------------------------------------


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
    """Parameters that require them are read all the same."""
    state, x = torch.zeros(B, 3, D), torch.randn(B, 1, D)
    w = torch.nn.Parameter(torch.randn(D, 4))
    y = tt.short_conv_(state, x, w)
    assert not y.requires_grad and not state.requires_grad
    close(y, w.detach()[:, 3] * x)
    assert torch.equal(state[:, -1:], x)


# ---- Norms and gates -----------------------------------------------------------------------------


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


# ---- Gradients -----------------------------------------------------------------------------------


def conv_case() -> tuple[Callable[..., Any], Callable[..., Any], list[Tensor]]:
    return (
        lambda x, w, b, s: tt.short_conv(x, w, b, state=s, silu=True, return_state=True),
        lambda x, w, b, s: conv_formula(x, w, b, s, True),
        [rand(B, 4, H, D), rand(H, D, 3), rand(H, D), rand(B, 4, H, D)],
    )


def case(actual: Any, formula: Any, *shapes: tuple[int, ...], **options: Any) -> Any:
    return (
        lambda *t: actual(*t, **options),
        lambda *t: formula(*t, **options),
        [rand(*shape) for shape in shapes],
    )


ROWS = (B, 4, H, D)
CASES: dict[str, Callable[[], Any]] = {
    "short_conv": conv_case,
    "norm l2": lambda: case(tt.norm, norm_formula, ROWS, kind="l2"),
    "norm rms": lambda: case(tt.norm, norm_formula, ROWS, (D,), (D,), ROWS),
    "norm layer": lambda: case(tt.norm, norm_formula, ROWS, (H, D), (D,), ROWS, kind="layer", gate_first=True),
    "norm sigmoid": lambda: case(tt.norm, norm_formula, ROWS, (H, D), (H, D), ROWS, gate_kind="sigmoid"),
    "decay": lambda: case(tt.decay_gate, decay_formula, ROWS, (H,), (H, D)),
    "decay of heads": lambda: case(tt.decay_gate, decay_formula, (B, 4, H), (H,), (H,)),
    "step": lambda: case(tt.step_gate, step_formula, ROWS, (H, D), low=0.2, high=1.5),
    "skip": lambda: case(tt.skip_gate, skip_formula, ROWS, ROWS, (H,), ROWS),
    "skip of channels": lambda: case(tt.skip_gate, skip_formula, ROWS, ROWS, (H, D), ROWS),
}  # fmt: skip


def grads_of(function: Callable[..., Any], tensors: list[Tensor]) -> list[Tensor | None]:
    """Of a sum of all outputs with weights of no pattern."""
    outputs = function(*tensors)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    loss = sum((y * torch.linspace(-1, 2, y.numel()).reshape(y.shape)).sum() for y in outputs)
    wanted = [t for t in tensors if t.requires_grad]
    found = iter(torch.autograd.grad(loss, wanted))
    return [next(found) if t.requires_grad else None for t in tensors]


@pytest.mark.parametrize("name", CASES)
def test_gradients(name: str) -> None:
    """Against central differences, and against autograd of the formula."""
    actual, formula, tensors = CASES[name]()
    tensors = [t.requires_grad_() for t in tensors]
    assert torch.autograd.gradcheck(actual, tensors)
    for a, b in zip(grads_of(actual, tensors), grads_of(formula, tensors)):
        close(a, b)


@pytest.mark.parametrize("name", CASES)
def test_gradients_of_each_alone(name: str) -> None:
    actual, formula, tensors = CASES[name]()
    for i in range(len(tensors)):
        for j, tensor in enumerate(tensors):
            tensor.requires_grad_(i == j)
        close(grads_of(actual, tensors)[i], grads_of(formula, tensors)[i])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", CASES)
def test_gradients_have_the_dtypes_of_their_tensors(name: str, dtype: torch.dtype) -> None:
    actual, formula, tensors = CASES[name]()
    tensors = [t.to(dtype).requires_grad_() for t in tensors]
    exact = [t.detach().double().requires_grad_() for t in tensors]
    for a, b in zip(grads_of(actual, tensors), grads_of(formula, exact)):
        assert a.dtype == dtype
        size = b.abs().max().item()
        torch.testing.assert_close(a.double(), b, rtol=0, atol=3 * TOLERANCE[dtype] * size)


def test_gradient_through_the_final_state_alone() -> None:
    x, w, s = rand(B, 2, H, D, grad=True), rand(H, D, 4, grad=True), rand(B, 3, H, D, grad=True)
    _, final = tt.short_conv(x, w, state=s, return_state=True)
    dx, dw, ds = torch.autograd.grad(final.square().sum(), (x, w, s))
    assert torch.equal(dx, 2 * x) and (dw == 0).all()
    assert torch.equal(ds, 2 * s * torch.tensor([0.0, 0.0, 1.0])[:, None, None])


def test_gradients_of_packed_sequences() -> None:
    x, w = rand(1, 9, H, D, grad=True), rand(H, D, 3, grad=True)
    bounds = torch.tensor([0, 4, 9])
    packed = grads_of(lambda x, w: tt.short_conv(x, w, cu_seqlens=bounds), [x, w])
    apart = grads_of(
        lambda x, w: torch.cat(
            [conv_formula(x[:, a:b], w, None, None, False)[0] for a, b in ((0, 4), (4, 9))], 1
        ),
        [x, w],
    )
    for a, b in zip(packed, apart):
        close(a, b)


def test_gradients_of_gradients_are_refused() -> None:
    x = rand(B, T, H, D, grad=True)
    for y in (tt.norm(x), tt.step_gate(x), tt.skip_gate(x, z=x.detach())):
        (dx,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        with pytest.raises(RuntimeError, match="gradients of gradients"):
            dx.sum().backward()


# ---- Strides, threads, sizes ---------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_any_strides(name: str) -> None:
    """Tensors whose axes lie in the reverse order, and gradients that are one number."""
    actual, _, tensors = CASES[name]()
    tensors = [t.requires_grad_() for t in tensors]
    turned = [t.detach().permute(*reversed(range(t.dim()))).contiguous() for t in tensors]
    turned = [t.permute(*reversed(range(t.dim()))).requires_grad_() for t in turned]
    assert any(not t.is_contiguous() for t in turned)
    outputs, same = actual(*tensors), actual(*turned)
    outputs, same = (y if isinstance(y, tuple) else (y,) for y in (outputs, same))
    for a, b in zip(outputs, same):
        assert torch.equal(a, b)
    for of, given in ((outputs, tensors), (same, turned)):
        sum(y.sum() for y in of).backward()
        assert all(t.grad is not None for t in given)
    for a, b in zip(tensors, turned):
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


# ---- Errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (lambda: tt.short_conv(rand(B, T, H, D), rand(H, D, 9)), "weight"),
        (lambda: tt.short_conv(rand(B, T, H, D), rand(H, D)), "weight"),
        (lambda: tt.short_conv(rand(B, T, H, D), rand(H, D, 4), rand(D)), "bias"),
        (lambda: tt.short_conv(rand(T, D), rand(H, D, 4)), "x"),
        (lambda: tt.short_conv(rand(B, T, H, D).half(), rand(H, D, 4)), "x .*float16"),
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
            lambda: OPS.norm_backward(
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


# ---- The compiler --------------------------------------------------------------------------------


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
    tt.short_conv_(state, x, w)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
