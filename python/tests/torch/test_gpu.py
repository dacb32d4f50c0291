"""On a GPU, where there is one: the portable forms and modules. Where `fla` is installed, narrow types run
on its kernels."""

from __future__ import annotations

import copy

import pytest
import torch
import torch_cases as cases
import torch_oracle as oracle
import ttr
import ttr.torch
from nn_cases import CAUSAL, layer, tokens, tolerance
from portable_cases import ALL, SHAPES
from torch import Tensor
from torch_cases import Sizes
from ttr.torch import _gpu_runs
from ttr.torch.nn import LanguageModel

if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)

# Warnings are those of PyTorch's compiler and of the GPU library.
pytestmark = pytest.mark.filterwarnings("default")

GPU = "cuda"


def on_gpu(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: x.to(GPU) for name, x in tensors.items()}


def close(got: Tensor, want: Tensor, what: str, bound: float = 1e-9) -> None:
    assert got.is_cuda, what
    torch.testing.assert_close(
        got.cpu().double(), want.double(), rtol=bound, atol=bound, msg=lambda m: f"{what}: {m}"
    )


@pytest.mark.parametrize("recipe", ALL)
@pytest.mark.parametrize("shape", SHAPES)
def test_agrees_with_the_definition(recipe: str, shape: str) -> None:
    inputs = cases.inputs(recipe, SHAPES[shape])
    want, last = oracle.definition(recipe, inputs, {})
    y, final = ttr.torch.regress(recipe, **on_gpu(inputs), return_state=True)
    close(y, want, "y")
    assert set(final) == set(last)
    last = cases.without_padding(last)
    for name, tensor in cases.without_padding(final).items():
        close(tensor, last[name], name)


@pytest.mark.parametrize("recipe", [name for name in ALL if "intention" not in name])
def test_gradients_are_those_of_the_cpu(recipe: str) -> None:
    sizes = Sizes(batch=1, tokens=70, key_heads=1, key_dim=4, value_dim=3)
    gradients = []
    for device in ("cpu", GPU):
        inputs = {
            name: x.to(device).requires_grad_(x.is_floating_point())
            for name, x in cases.inputs(recipe, sizes).items()
        }
        y = ttr.torch.portable.regress(recipe, **inputs)
        weights = torch.linspace(-1, 2, y.numel(), dtype=y.dtype, device=device).view_as(y)
        leaves = [x for x in inputs.values() if x.requires_grad]
        gradients.append(torch.autograd.grad(y, leaves, weights, allow_unused=True))
    for want, got in zip(*gradients):
        assert (want is None) == (got is None)
        if want is not None:
            scale = max(1.0, float(want.abs().max()))
            close(got / scale, want / scale, recipe, 1e-8)


@pytest.mark.parametrize(
    "recipe",
    [
        "gated_deltanet",
        "kda",
        "mesa",
        "mamba2",
        "lru",
        "rwkv7",
        "ttt_mlp",
        "titans",
        "softmax",
        "decayed_softmax",
        "local_linear",
        "kernel_ridge",
        "kernel_rls",
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_narrow_types(recipe: str, dtype: torch.dtype) -> None:
    inputs = cases.inputs(recipe, Sizes(tokens=100), dtype=torch.float32)
    inputs = {n: x.to(dtype) if n in ("q", "k", "v") else x for n, x in inputs.items()}
    want, _ = oracle.definition(recipe, {n: x.double() for n, x in inputs.items()}, {})
    y = ttr.torch.regress(recipe, **on_gpu(inputs))
    assert y.dtype == inputs["v"].dtype
    close(y, want, "y", 1e-4 if dtype == torch.float32 else 2e-2)


def test_what_has_no_form_there_says_so() -> None:
    name = "quasi_newton{preconditioner: low_rank}"
    inputs = on_gpu(cases.inputs(name, Sizes()))
    with pytest.raises(ValueError, match="has no form on cuda"):
        ttr.torch.regress(name, **inputs)


def test_tensors_of_two_devices() -> None:
    inputs = on_gpu(cases.inputs("gated_deltanet", Sizes()))
    with pytest.raises(ValueError, match="log_decay must be on cuda"):
        ttr.torch.regress("gated_deltanet", **{**inputs, "log_decay": inputs["log_decay"].cpu()})
    with pytest.raises(ValueError, match="v must be on cuda:0 but is on cpu"):
        ttr.torch.regress("gated_deltanet", **{**inputs, "v": inputs["v"].cpu()})
    state = {"state": torch.zeros(2, 2, 5, 4)}
    with pytest.raises(ValueError, match="state.* must be on cuda:0 but is on cpu"):
        ttr.torch.regress("gated_deltanet", **inputs, state=state)


@pytest.mark.parametrize("name", ttr.zoo())
def test_modules(name: str) -> None:
    """Numbers and gradients are those of the CPU."""
    # Before an iteration has converged, its two gradients differ by what is left of it.
    converged = name + "{steps: 100}" if name == "kalmanet" else name
    module, x = layer(converged), tokens()
    there = copy.deepcopy(module).to(GPU)
    y, y_there = module(x), there(x.to(GPU))
    close(y_there.detach(), y.detach(), name, tolerance(name) * 10)
    y.square().mean().backward()
    y_there.square().mean().backward()
    for (key, ours), theirs in zip(module.named_parameters(), there.parameters()):
        assert (ours.grad is None) == (theirs.grad is None), key
        if ours.grad is not None:
            close(theirs.grad, ours.grad, key, 1e-6)


@pytest.mark.parametrize("name", CAUSAL)
def test_decoding_is_the_whole(name: str) -> None:
    module, x = layer(name).to(GPU), tokens().to(GPU)
    with torch.no_grad():
        whole = module(x)
        cache = module.new_cache()
        parts = [module(part, cache=cache) for part in x.split([3, 1, 2, 1], 1)]
    close(torch.cat(parts, 1), whole.cpu(), name, tolerance(name) * 10)


def test_a_language_model() -> None:
    torch.manual_seed(0)
    model = LanguageModel(["rls", "gated_deltanet"], 11, hidden_size=8, num_heads=2, num_layers=2)
    model = model.double()
    there = copy.deepcopy(model).to(GPU)
    words = torch.randint(0, 11, (2, 24), generator=torch.Generator().manual_seed(3))
    losses = []
    optimizer = torch.optim.AdamW(there.parameters(), lr=1e-2)
    for _ in range(10):
        loss = there.loss(words.to(GPU))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[0] == pytest.approx(float(model.loss(words).detach()), rel=1e-9)
    assert losses[-1] < losses[0]
    model.load_state_dict(there.state_dict())
    more = [m.generate(w, 5, temperature=0) for m, w in ((model, words), (there, words.to(GPU)))]
    assert torch.equal(more[0], more[1].cpu())
    with torch.autocast(GPU, torch.bfloat16):
        assert there.float().loss(words.to(GPU)).isfinite()


@pytest.mark.parametrize("width", [16, 48, 64, 100, 128])
@pytest.mark.parametrize(
    "recipe",
    ["rls", "weighted_rls", "mesa", "linear_attention", "mamba2", "mlstm", "gated_deltanet", "comba", "gla", "kda",
     "gated_deltanet2", "rwkv7", "decoupled_lms"],
)
def test_kernels(recipe: str, width: int) -> None:
    """Outputs and gradients in float32 and bfloat16 beside those in float64, over several chunks."""
    found = _gpu_runs.values([recipe], tokens=300, width=width)[recipe]
    assert max(found["float32"]) < 1e-3
    assert max(found["bfloat16"]) < 2e-2


@pytest.mark.parametrize("recipe", ["gated_deltanet", "kda", "rls", "mesa"])
def test_a_token_in_a_cuda_graph(recipe: str) -> None:
    """Three tokens that are the same: two by a graph, one by the compiler."""
    inputs = cases.inputs(recipe, Sizes(batch=2, tokens=1, key_dim=4, value_dim=3), dtype=torch.float32)
    held = cases.state(recipe, Sizes(batch=2, tokens=1, key_dim=4, value_dim=3), dtype=torch.float32)
    want: dict[str, Tensor] = {n: x.clone() for n, x in held.items()}
    for _ in range(2):
        y = ttr.torch.step_(recipe, want, **inputs)
    there, state = on_gpu(inputs), on_gpu(held)
    ttr.torch.step_(recipe, {n: x.clone() for n, x in state.items()}, **there)  # compiles
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # notes its launches, and runs none
        answer = ttr.torch.step_(recipe, state, **there)
    for _ in range(2):
        graph.replay()
    close(answer, y, "y", 1e-4)
    for name, x in state.items():
        close(x, want[name], name, 1e-4)
    step = torch.compile(lambda **given: ttr.torch.step_(recipe, state, **given), fullgraph=True)
    close(step(**there), ttr.torch.step_(recipe, want, **inputs), "compiled", 1e-4)


@pytest.mark.parametrize("recipe", ["gated_deltanet", "hgrn"])
def test_compiled(recipe: str) -> None:
    inputs = on_gpu(cases.inputs(recipe, Sizes(batch=1, tokens=70, key_dim=4, value_dim=3)))
    names = list(inputs)

    def call(*given: Tensor) -> Tensor:
        return ttr.torch.portable.regress(recipe, **dict(zip(names, given)))

    leaves = [x.requires_grad_() for x in inputs.values()]
    torch._dynamo.reset()
    y, want = torch.compile(call, fullgraph=True)(*leaves), call(*leaves)
    torch.testing.assert_close(y, want)
    got = torch.autograd.grad(y.square().sum(), leaves, allow_unused=True)
    wanted = torch.autograd.grad(want.square().sum(), leaves, allow_unused=True)
    for ours, theirs in zip(got, wanted):
        torch.testing.assert_close(ours, theirs)
