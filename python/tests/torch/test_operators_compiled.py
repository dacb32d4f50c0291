"""opcheck, torch.compile, torch.export, meta tensors, autocast."""

from __future__ import annotations

from typing import Any

import operator_cases as cases
import pytest
import torch
import ttr.torch
from torch import Tensor
from ttr.torch import regress

GIVEN = (1 | 2 | 4) | 1 << 4 | 1 << 8
OPS = torch.ops.ttr


def checked(operator: Any, *args: Any, **options: Any) -> None:
    torch.library.opcheck(operator, args, options)


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # opcheck of PyTorch 2.15 reads it
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("saves", [False, True])
def test_opcheck_forward(grad: bool, saves: bool) -> None:
    inputs = list(cases.draw("gated_deltanet", dtype=torch.float32, grad=grad).values())
    checked(OPS.forward.default, "gated_deltanet", inputs, GIVEN, [], 0, wants_final=True, saves=saves)
    start = list(cases.reached("gated_deltanet", dtype=torch.float32).values())
    start = [t.requires_grad_(grad) for t in start]
    checked(OPS.forward.default, "gated_deltanet", inputs, GIVEN, start, 1, wants_final=True, saves=saves)
    checked(OPS.forward.default, "gated_deltanet", inputs, GIVEN, start, 1, wants_final=False, saves=saves)


@pytest.mark.parametrize("name", ["mesa", "lru", "softmax", "ttt_mlp", "mlstm", "delta_product"])
def test_opcheck_of_other_families(name: str) -> None:
    from ttr.torch import _arguments

    inputs = cases.draw(name, dtype=torch.float32, optional=True)
    q, k, v = (inputs.pop(n, None) for n in "qkv")
    tensors, given = _arguments.arrange(name, q, k, v, inputs)
    checked(OPS.forward.default, name, tensors, given, [], 0)


def test_opcheck_backward_and_steps() -> None:
    inputs = list(cases.draw("gated_deltanet", dtype=torch.float32).values())
    y, _, saved = OPS.forward("gated_deltanet", inputs, GIVEN, [], 0, saves=True)
    dy = torch.ones_like(y)
    checked(OPS.backward.default, "gated_deltanet", inputs, GIVEN, [], 0, dy, [], 0, saved, 31)
    token = [t[:, :1] for t in inputs]
    size = ttr.torch.decoder_bytes("gated_deltanet", *token[:3], log_decay=token[3], step=token[4])
    memory = torch.zeros(size, dtype=torch.uint8)
    checked(OPS.step_.default, "gated_deltanet", memory, token, GIVEN)
    state = list(cases.reached("gated_deltanet", dtype=torch.float32).values())
    checked(OPS.step_state_.default, "gated_deltanet", state, token, GIVEN)
    sizes = OPS.dims("gated_deltanet", token, GIVEN)
    checked(OPS.decoder_start_.default, "gated_deltanet", memory, sizes, state)


@pytest.mark.parametrize("name", cases.NAMES)
def test_shapes_without_data(name: str) -> None:
    inputs = cases.draw(name, dtype=torch.float32)
    y, state = regress(name, **inputs, return_state=True)
    meta = {n: t.to("meta") for n, t in inputs.items()}
    fake_y, fake_state = regress(name, **meta, return_state=True)
    assert fake_y.shape == y.shape and fake_y.dtype == y.dtype and fake_y.is_meta
    for entry, tensor in state.items():
        assert fake_state[entry].shape == tensor.shape and fake_state[entry].dtype == tensor.dtype


class Mixer(torch.nn.Module):
    """A layer between projections, as a model has it."""

    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.project = torch.nn.Linear(width, 3 * width)
        self.gates = torch.nn.Linear(width, 2 * heads)
        self.out = torch.nn.Linear(width, width)

    def forward(self, x: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        q, k, v = (t.unflatten(-1, (self.heads, -1)) for t in self.project(x).chunk(3, -1))
        g, b = self.gates(x).chunk(2, -1)
        y, final = regress(
            "gated_deltanet{normalise_qk: true}",
            q,
            k,
            v,
            log_decay=-torch.nn.functional.softplus(g.float()),
            step=b.float().sigmoid(),
            state=None if state is None else {"state": state},
            return_state=True,
        )
        return self.out(y.flatten(-2)), final["state"]


def run(mixer: Any, x: Tensor, state: Tensor | None, module: Mixer) -> list[Tensor]:
    module.zero_grad()
    y, final = mixer(x, state)
    (y.square().sum() + final.sum()).backward()
    return [y.detach(), final.detach(), *(p.grad.clone() for p in module.parameters() if p.grad is not None)]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compile_has_no_graph_break(backend: str) -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
    module = Mixer()
    compiled = torch.compile(module, fullgraph=True, backend=backend)
    x = torch.randn(2, 9, 16)
    _, state = module(x)
    for given in (None, state.detach()):
        expected = run(module, x, given, module)
        for a, b in zip(run(compiled, x, given, module), expected):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x)[0], module(x)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compile_for_sizes_that_change() -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
    module = Mixer()
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager", dynamic=True)
    for batch, tokens in [(2, 9), (3, 70), (2, 33)]:
        x = torch.randn(batch, tokens, 16)
        expected = run(module, x, None, module)
        for a, b in zip(run(compiled, x, None, module), expected):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compile_of_a_step() -> None:
    torch._dynamo.reset()

    def token(memory: Tensor, q: Tensor, k: Tensor, v: Tensor, g: Tensor, b: Tensor) -> Tensor:
        return ttr.torch.step_("gated_deltanet", memory, q, k, v, log_decay=g, step=b) * 2

    inputs = [t[:, :1] for t in cases.draw("gated_deltanet", dtype=torch.float32).values()]
    size = ttr.torch.decoder_bytes("gated_deltanet", *inputs[:3], log_decay=inputs[3], step=inputs[4])
    memories = [torch.zeros(size, dtype=torch.uint8) for _ in range(2)]
    compiled = torch.compile(token, fullgraph=True, backend="aot_eager")
    for _ in range(3):
        assert torch.equal(compiled(memories[0], *inputs), token(memories[1], *inputs))
    assert torch.equal(*memories)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_export() -> None:
    torch.manual_seed(0)
    module = Mixer()
    x = torch.randn(2, 9, 16)
    tokens = torch.export.Dim("tokens", min=2, max=4096)
    with torch.no_grad():
        program = torch.export.export(module, (x,), dynamic_shapes={"x": {1: tokens}})
        assert "ttr.forward" in str(program.graph)
        for length in (9, 40):
            x = torch.randn(2, length, 16)
            torch.testing.assert_close(program.module()(x)[0], module(x)[0])


def test_autocast() -> None:
    """Projections give bfloat16, gates stay as they are computed, states stay float32."""
    torch.manual_seed(0)
    module = Mixer()
    x = torch.randn(2, 9, 16)
    expected = run(module, x, None, module)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, state = module(x)
    assert y.dtype == torch.bfloat16 and state.dtype == torch.float32
    module.zero_grad()
    (y.float().square().sum() + state.sum()).backward()
    assert (y - expected[0]).abs().max() < 0.05 * expected[0].abs().max()
    for p, gradient in zip(module.parameters(), expected[2:]):
        assert p.grad is not None and p.grad.dtype == torch.float32
        assert (p.grad - gradient).abs().max() < 0.1 * gradient.abs().max()
