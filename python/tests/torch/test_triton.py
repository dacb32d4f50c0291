"""The kernels of ttr.torch.triton in Triton's interpreter, on tensors that pass for those of a GPU,
against the definition and the passes of PyTorch's operators."""

from __future__ import annotations

import dataclasses
import sys
import warnings
from collections.abc import Iterator

import pytest
import torch
import torch_cases as cases
import torch_oracle as oracle
import ttr
from torch import Tensor
from torch_cases import Sizes
from ttr.torch.portable import in_place, kernels, regress

triton = pytest.importorskip("triton")
if not triton.knobs.runtime.interpret:
    pytest.skip("Triton compiles", allow_module_level=True)
from ttr.torch.triton import launches, local_calls  # noqa: E402

# What Triton's interpreter itself warns of.
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(autouse=True)
def launched(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of the kernels that a call launches."""
    monkeypatch.setattr(kernels, "_GPUS", ["cpu"])
    monkeypatch.setattr(kernels, "widest", lambda device: 128)
    kernels._module.cache_clear()
    names: list[str] = []
    launch = launches.launch

    def noted(kernel, grid, *arguments, **constants):
        names.append(kernel.__name__)
        launch(kernel, grid, *arguments, **constants)

    monkeypatch.setattr(launches, "launch", noted)
    yield names
    kernels._module.cache_clear()


SHAPES = {
    "chunks": Sizes(batch=2, tokens=70, query_heads=1, key_heads=1, value_heads=1, heads=1, key_dim=20,
                    value_dim=24),
    "grouped": Sizes(batch=1, tokens=20, query_heads=4, key_heads=1, value_heads=2, heads=2, key_dim=5,
                     value_dim=17),
    "shared": Sizes(batch=1, tokens=20, query_heads=1, key_heads=2, value_heads=1, heads=2, key_dim=5,
                    value_dim=17),
    "packed": Sizes(tokens=40, query_heads=1, key_heads=1, value_heads=1, heads=1, key_dim=16,
                    value_dim=3, sequences=4),
    "one token": Sizes(batch=1, tokens=1, key_dim=3, value_dim=2),
}  # fmt: skip
#: Every recipe over chunks, and every shape with a few of them.
CASES = [
    ("rls", "chunks"),
    ("rls", "packed"),
    ("rls", "one token"),
    ("weighted_rls", "chunks"),
    ("weighted_rls{read: before}", "packed"),
    ("weighted_rls", "grouped"),
    ("weighted_rls", "shared"),
    ("mesa", "chunks"),
    ("mesa{read: before, importance: none}", "packed"),
    ("mesa{decay: none}", "grouped"),
    ("feature_rls", "grouped"),
    ("linear_attention{importance: input, decay: scalar}", "chunks"),
    ("linear_attention", "shared"),
    ("mamba2{read: before}", "packed"),
    ("retnet", "grouped"),
    ("decoupled_lms{decay: channel}", "grouped"),
    ("mlstm{decay: channel}", "grouped"),
    ("mlstm", "grouped"),
    ("gated_deltanet", "chunks"),
    ("gated_deltanet{read: before}", "packed"),
    ("delta_product", "grouped"),
    ("comba", "shared"),
    ("deltanet", "one token"),
    ("gla", "chunks"),
    ("gla{importance: input}", "grouped"),
    ("rwkv6", "packed"),
    ("hgrn2", "grouped"),
    ("kda", "chunks"),
    ("kda{read: before}", "packed"),
    ("gated_deltanet2", "grouped"),
    ("rwkv7", "chunks"),
    ("rwkv7{read: before}", "packed"),
    ("leaky_lms", "shared"),
    ("decoupled_lms{decay: scalar}", "packed"),
]


def close(got: Tensor, want: Tensor, what: str, bound: float) -> None:
    scale = max(1.0, float(want.abs().max())) if want.numel() else 1.0
    torch.testing.assert_close(
        got.double() / scale, want.double() / scale, rtol=bound, atol=bound, msg=lambda m: f"{what}: {m}"
    )


def drawn(recipe: str, sizes: Sizes) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Inputs and a state in float32; half of a memory is left after some thirty tokens."""
    inputs, state = cases.inputs(recipe, sizes), cases.state(recipe, sizes)
    if "log_decay" in inputs:
        inputs["log_decay"] /= 15
    narrow = ({n: x.float() if x.is_floating_point() else x for n, x in t.items()} for t in (inputs, state))
    return tuple(narrow)


def leaves(tensors: dict[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    return {
        n: x.to(dtype).detach().clone().requires_grad_() if x.is_floating_point() else x
        for n, x in tensors.items()
    }


@pytest.mark.parametrize(("recipe", "shape"), CASES)
def test_agrees_with_the_definition(launched: list[str], recipe: str, shape: str) -> None:
    """Outputs, the final state, and the gradients of both."""
    given, held = drawn(recipe, SHAPES[shape])
    inputs, state = leaves(given, torch.float32), leaves(held, torch.float32)
    y, final = regress(recipe, **inputs, state=state, return_state=True)
    # In double that is of float32's numbers.
    wide, wide_state = leaves(given, torch.float64), leaves(held, torch.float64)
    want, last = oracle.definition(recipe, wide, wide_state)
    close(y, want, "y", 1e-4)  # 4 eps times the systems' condition
    for name, tensor in final.items():
        close(tensor, last[name], name, 1e-5)

    final = {n: x for n, x in final.items() if x.requires_grad}
    generator = torch.Generator().manual_seed(3)
    weights = [torch.randn(x.shape, generator=generator) for x in (y, *final.values())]
    wanted = {n: x for n, x in {**inputs, **state}.items() if x.requires_grad}
    got = torch.autograd.grad([y, *final.values()], [*wanted.values()], weights, allow_unused=True)
    doubled = {n: w.double() for n, w in zip(final, weights[1:])}
    gradients = oracle.gradients(recipe, wide, wide_state, weights[0].double(), doubled)
    for (name, x), gradient in zip(wanted.items(), got):
        gradient = torch.zeros_like(x) if gradient is None else gradient
        close(gradient, gradients[name], f"d{name}", 2e-4)
    assert "of_keys" in launched or "of_written" in launched


@pytest.mark.parametrize(("recipe", "tokens"), [("weighted_rls", 70), ("kda", 5)])
def test_narrow_types(launched: list[str], recipe: str, tokens: int) -> None:
    """Rows of bfloat16 are multiplied as they are."""
    sizes = Sizes(batch=1, tokens=tokens, query_heads=1, key_heads=1, value_heads=1, heads=1, key_dim=64,
                  value_dim=64)  # fmt: skip
    given, held = drawn(recipe, sizes)
    given = {n: x.bfloat16() if n in ("q", "k", "v") else x for n, x in given.items()}
    inputs = {n: x.requires_grad_() for n, x in given.items() if n != "ridge"}  # the state has it
    y = regress(recipe, **inputs, state=held)
    assert y.dtype == torch.bfloat16
    wide = leaves(given, torch.float64)
    state = leaves(held, torch.float64)
    want, last = oracle.definition(recipe, wide, state)
    close(y, want, "y", 1e-2)
    weight = torch.randn(y.shape, generator=torch.Generator().manual_seed(3)).bfloat16()
    got = torch.autograd.grad(y, [*inputs.values()], weight)
    nothing = {n: torch.zeros_like(x) for n, x in last.items()}
    gradients = oracle.gradients(recipe, wide, state, weight.double(), nothing)
    for name, gradient in zip(inputs, got):
        assert gradient.dtype == given[name].dtype
        close(gradient, gradients[name], f"d{name}", 1e-2)
    assert "of_keys" in launched or "of_written" in launched


@pytest.mark.parametrize("recipe", ["rls{ridge: 0}", "affine_rls", "weighted_rls", "mesa"])
def test_systems_that_are_singular_take_the_other_road(launched: list[str], recipe: str) -> None:
    """Also where a memory fades too much within a chunk, or entirely."""
    inputs = cases.inputs(recipe, Sizes(batch=1, tokens=20, key_dim=4), dtype=torch.float32)
    if "log_decay" in inputs:
        inputs["log_decay"][:, 5] = -torch.inf
    want, _ = oracle.definition(recipe, {n: x.double() for n, x in inputs.items()}, {})
    close(regress(recipe, **inputs), want, "y", 1e-3)
    assert "gram" in launched


def test_first_chunks_keep_their_digits(launched: list[str]) -> None:
    """Their pairs outgrow the ridge a thousand times."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 70, 1, 16, generator=generator) for _ in range(3))
    k = torch.nn.functional.normalize(k, dim=-1)
    want, _ = oracle.definition("rls", {"q": q.double(), "k": k.double(), "v": v.double()}, {})
    close(regress("rls", q, k, v)[:, 40:], want[:, 40:], "y", 2e-5)
    assert "refine" in launched


def test_no_tokens_and_what_is_not_finite(launched: list[str]) -> None:
    sizes = Sizes(batch=2, tokens=20, key_dim=4)
    inputs = cases.inputs("rls", sizes, dtype=torch.float32)
    inputs["k"][0, 7] = torch.nan
    y = regress("rls", **inputs)
    assert y[0, :7].isfinite().all() and y[0, 7:].isnan().all() and y[1].isfinite().all()
    empty = cases.inputs("rls", Sizes(tokens=0), dtype=torch.float32)
    state = cases.state("rls", Sizes(), dtype=torch.float32)
    y, final = regress("rls", **empty, state=state, return_state=True)
    assert y.shape == (2, 0, 2, 4)
    for name, tensor in final.items():
        assert torch.equal(tensor, state[name])


@pytest.mark.parametrize("recipe", ["mamba2", "gla", "kda"])
def test_what_is_not_finite_reaches_its_own_sequence_and_later_tokens(
    launched: list[str], recipe: str
) -> None:
    sizes = Sizes(batch=2, tokens=9, query_heads=1, key_heads=1, value_heads=1, heads=1, key_dim=4)
    inputs = cases.inputs(recipe, sizes, dtype=torch.float32)
    whole = regress(recipe, **inputs)
    for name in ("k", "v"):
        row = inputs[name][0, 5].clone()
        inputs[name][0, 5] = torch.nan
        y = regress(recipe, **inputs)
        inputs[name][0, 5] = row
        assert y[0, 5:].isnan().all()
        assert torch.equal(y[0, :5], whole[0, :5]) and torch.equal(y[1], whole[1])
    assert "read" in launched


@pytest.mark.parametrize("recipe", ["gla", "kda{read: before}", "rwkv7"])
def test_channels_that_fade_by_any_number_of_digits(launched: list[str], recipe: str) -> None:
    inputs = cases.inputs(recipe, Sizes(batch=1, tokens=40, key_dim=4), dtype=torch.float32)
    inputs["log_decay"][:, 7, :, 1], inputs["log_decay"][:, 12:17, :, 2] = -torch.inf, -60
    inputs["log_decay"].requires_grad_()
    wide = leaves({n: x.detach() for n, x in inputs.items()}, torch.float64)
    y = regress(recipe, **inputs)
    want, last = oracle.definition(recipe, wide, {})
    close(y, want, "y", 1e-5)
    gradient = torch.autograd.grad(y.sum(), inputs["log_decay"])[0]
    nothing = {n: torch.zeros_like(x) for n, x in last.items()}
    wanted = oracle.gradients(recipe, wide, {}, torch.ones_like(want), nothing)["log_decay"]
    close(gradient, wanted, "dlog_decay", 1e-5)
    assert "scores" in launched


def test_a_decay_of_zero_forgets_what_is_infinite(launched: list[str]) -> None:
    """Earlier chunks may have left it."""
    sizes = Sizes(batch=1, tokens=70, key_dim=4)
    recipe = "linear_attention{decay: scalar}"
    inputs = cases.inputs(recipe, sizes, dtype=torch.float32)
    inputs["log_decay"][:, 66] = -torch.inf
    state = {"state": torch.full((1, 2, 4, 4), torch.inf)}
    _, final = regress(recipe, **inputs, state=state, return_state=True)
    _, last = oracle.definition(recipe, {n: x.double() for n, x in inputs.items()}, {})
    close(final["state"], last["state"], "state", 1e-5)


def test_sums_in_double_take_the_other_road(launched: list[str]) -> None:
    regress("rls", **cases.inputs("rls", Sizes()))
    assert not launched


def test_why_there_are_no_kernels_is_said_once(
    launched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels._say.cache_clear()
    inputs = cases.inputs("rls", Sizes(batch=1, tokens=3, key_dim=4), dtype=torch.float32)
    wide = cases.inputs("rls", Sizes(batch=1, tokens=3, key_dim=4, value_dim=130), dtype=torch.float32)
    with pytest.warns(UserWarning, match="heads are 130 channels wide and cpu has kernels for at most 128"):
        regress("rls", **wide)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        regress("rls", **wide)
    monkeypatch.setitem(sys.modules, "ttr.torch.triton", None)
    with pytest.warns(UserWarning, match="Triton is not there"):
        y = regress("rls", **inputs)
    assert not launched and y.isfinite().all()


LOCAL = {"chunks": {"batch": 1, "key_dim": 5}, "grouped": {"tokens": 7}, "shared": {"tokens": 6}}  # a program a query


@pytest.mark.parametrize(("recipe", "shape"), [("local_linear", "grouped"), ("local_linear{read: before}", "chunks")])
def test_local_linear_regression(launched: list[str], recipe: str, shape: str) -> None:
    given, _ = drawn(recipe, dataclasses.replace(SHAPES[shape], **LOCAL[shape]))
    given = {n: x.bfloat16() if n in ("q", "k", "v") else x for n, x in given.items()}
    y, final = regress(recipe, **given, return_state=True)
    assert launched == ["linear"] and y.dtype == torch.bfloat16
    want, last = oracle.definition(recipe, leaves(given, torch.float64), {})
    close(y, want, "y", 1e-2)
    for name, tensor in last.items():
        close(final[name], tensor, name, 1e-6)
    inputs = {n: x.clone().requires_grad_() for n, x in given.items()}
    gradients = torch.autograd.grad(regress(recipe, **inputs).float().square().sum(), [*inputs.values()])
    assert launched[1:] == ["linear", "of_queries", "of_pairs"]
    assert all(g.dtype == x.dtype and g.isfinite().all() for g, x in zip(gradients, inputs.values()))


@pytest.mark.parametrize(
    ("recipe", "shape"),
    [("local_linear", "grouped"), ("local_linear{scale: 0.7, read: before}", "shared"), ("local_linear", "chunks")],
)
def test_gradients_of_local_linear_regression(
    launched: list[str], monkeypatch: pytest.MonkeyPatch, recipe: str, shape: str
) -> None:
    """Sums are float32 for narrow rows; float32 rows show how exact they are."""
    monkeypatch.setattr(local_calls, "takes", lambda call: True)
    given, _ = drawn(recipe, dataclasses.replace(SHAPES[shape], **LOCAL[shape]))
    inputs, wide = leaves(given, torch.float32), leaves(given, torch.float64)
    y = regress(recipe, **inputs)
    weight = torch.randn(y.shape, generator=torch.Generator().manual_seed(3))
    got = torch.autograd.grad(y, [*inputs.values()], weight)
    assert launched == ["linear", "of_queries", "of_pairs"]
    _, last = oracle.definition(recipe, wide, {})
    nothing = {n: torch.zeros_like(x) for n, x in last.items() if x.is_floating_point()}
    wanted = oracle.gradients(recipe, wide, {}, weight.double(), nothing)
    for name, gradient in zip(inputs, got):
        close(gradient, wanted[name], f"d{name}", 1e-4)


#: Every rule and what it is beside, in one token.
TOKENS = [
    ("linear_attention{importance: input, decay: scalar}", "grouped"),
    ("linear_attention{eta: 0.5}", "shared"),
    ("retnet", "grouped"),
    ("gla{normalise_qk: true}", "grouped"),
    ("hgrn2", "grouped"),
    ("hgrn2{importance: root_complement}", "shared"),
    ("rwkv6", "shared"),
    ("gated_deltanet", "grouped"),
    ("kda{read: before}", "shared"),
    ("nlms", "grouped"),
    ("longhorn{decay: 0.9}", "grouped"),
    ("efla{normalise_qk: true}", "shared"),
    ("comba", "grouped"),
    ("gated_deltanet2", "grouped"),
    ("rwkv7", "grouped"),
    ("leaky_lms", "grouped"),
    ("decoupled_lms", "shared"),
    ("delta_product", "grouped"),
    ("rls", "grouped"),
    ("rls{normalise_qk: true, decay: retention}", "shared"),
    ("weighted_rls{read: before}", "grouped"),
    ("mesa", "grouped"),
    ("mesa{decay: none}", "shared"),
]


@pytest.mark.parametrize(("recipe", "shape"), TOKENS)
def test_a_token_in_one_launch(launched: list[str], recipe: str, shape: str) -> None:
    """Two of them, from a state; the second one's answer has the first one's."""
    sizes = dataclasses.replace(SHAPES[shape], batch=2, tokens=2)
    given, state = drawn(recipe, sizes)
    want, last = oracle.definition(recipe, leaves(given, torch.float64), leaves(state, torch.float64))
    info = {s["keyword"]: s["shapes"][0] for s in ttr.input_specs(recipe)}
    for t in range(2):
        rows = {n: x.unflatten(1, (2, -1))[:, t] if info[n][1:2] in (["T"], ["T n"]) else x for n, x in given.items()}
        y = in_place.step(recipe, rows, state)
        close(y, want[:, t : t + 1], "y", 2e-5)
    for name, x in state.items():
        close(x, last[name], name, 1e-5)
    assert launched == 2 * (["solve"] if "state.a" in state else ["step"])


def test_a_token_of_a_call(launched: list[str]) -> None:
    """regress leaves the state that it goes on from alone."""
    given, state = drawn("gated_deltanet", Sizes(batch=1, tokens=1, key_dim=4))
    held = {n: x.clone() for n, x in state.items()}
    y, final = regress("gated_deltanet", **given, state=state, return_state=True)
    assert launched == ["step"] and torch.equal(state["state"], held["state"])
    want, last = oracle.definition("gated_deltanet", leaves(given, torch.float64), leaves(state, torch.float64))
    close(y, want, "y", 1e-5)
    close(final["state"], last["state"], "state", 1e-5)
    given["v"].requires_grad_()
    assert regress("gated_deltanet", **given, state=state).requires_grad


def test_the_operator_has_a_form_on_a_gpu() -> None:
    assert torch._C._dispatch_has_kernel_for_dispatch_key("ttr::step_state_", "CUDA")


def test_a_token_that_no_kernel_takes(launched: list[str]) -> None:
    """The portable form's, also of a state that does not lie as a kernel reads it."""
    sizes = Sizes(batch=1, tokens=1, key_dim=4)
    for recipe in ("mlstm", "momentum_deltanet", "rls{ridge: 0}"):
        given, state = drawn(recipe, sizes)
        want, last = oracle.definition(recipe, leaves(given, torch.float64), leaves(state, torch.float64))
        close(in_place.step(recipe, given, state), want, "y", 1e-4)
        for name, x in state.items():
            close(x, last[name], name, 1e-5)
    given, state = drawn("gla", sizes)
    want, last = oracle.definition("gla", leaves(given, torch.float64), leaves(state, torch.float64))
    state = {n: x.mT.contiguous().mT for n, x in state.items()}
    close(in_place.step("gla", given, state), want, "y", 1e-5)
    close(state["state"], last["state"], "state", 1e-5)
    assert "step" not in launched
    given, state = drawn("softmax", sizes)
    with pytest.raises(ValueError, match=r"\[step_\] state.k must keep its shape"):
        in_place.step("softmax", given, state)
    with pytest.raises(ValueError, match=r"\[step_\] q, k and v must be of one token but are of 2"):
        in_place.step("rls", *drawn("rls", dataclasses.replace(sizes, tokens=2)))
