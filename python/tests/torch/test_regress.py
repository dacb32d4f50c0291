"""The operators on a CPU: values and gradients against the definition, and every way to call them."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import numpy as np
import pytest
import torch
import torch_oracle
import ttr
import ttr.torch
from drawn import draw
from torch import Tensor

RECIPES = list(ttr.zoo())
#: Those whose gradients are an engine's, and some of their options.
WITH_GRADIENTS = [name for name in RECIPES if ttr.Layer(name).has_gradients]
GATED = "gated_deltanet{normalise_qk: true}"


def drawn(recipe: str, dtype: torch.dtype = torch.float64, **sizes: int) -> dict[str, Tensor]:
    """Required inputs; sizes by their axes, T=9."""
    arrays = draw(recipe, **{"T": 9, **sizes})
    return {name: torch.from_numpy(array).to(dtype) for name, array in arrays.items()}


def wanting(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    return {
        name: t.detach().clone().requires_grad_() if t.is_floating_point() else t
        for name, t in inputs.items()
    }


@pytest.mark.parametrize("recipe", RECIPES)
def test_agrees_with_the_definition(recipe: str) -> None:
    inputs = drawn(recipe)
    y, state = ttr.torch.regress(recipe, **inputs, return_state=True)
    expected, final = torch_oracle.definition(recipe, inputs, {})
    torch.testing.assert_close(y, expected, rtol=1e-9, atol=1e-9)
    assert set(state) == set(final)
    for name, tensor in state.items():
        torch.testing.assert_close(tensor, final[name], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("recipe", WITH_GRADIENTS)
def test_gradients_are_those_of_differences(recipe: str) -> None:
    inputs = wanting(drawn(recipe, T=3, B=1, Dk=2, Dv=2))
    names = [name for name, t in inputs.items() if t.requires_grad]

    def run(*tensors: Tensor) -> Any:
        given = {**inputs, **dict(zip(names, tensors))}
        y, state = ttr.torch.regress(recipe, **given, return_state=True)
        return y, *(t for t in state.values() if t.is_floating_point())

    # Only one side of a bound (a log decay of at most 0) has slopes: inputs lie away from it.
    assert torch.autograd.gradcheck(run, [inputs[name] for name in names], atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("recipe", ["gated_deltanet", "gla", "rls", "mesa", "mamba", "hgrn"])
def test_the_initial_state_has_a_gradient(recipe: str) -> None:
    inputs = drawn(recipe, T=5)
    _, start = ttr.torch.regress(recipe, **inputs, return_state=True)
    start = wanting(start)
    given = wanting(inputs)
    y, final = ttr.torch.regress(recipe, **given, state=start, return_state=True)
    dy = torch.randn_like(y)
    dfinal = {n: torch.randn_like(t) for n, t in final.items() if t.is_floating_point()}
    loss = (y * dy).sum() + sum((final[n] * d).sum() for n, d in dfinal.items())
    loss.backward()
    plain = {name: t.detach() for name, t in given.items()}
    held = {name: t.detach() for name, t in start.items()}
    expected = torch_oracle.gradients(recipe, plain, held, dy, dfinal)
    for name, tensor in {**given, **start}.items():
        if tensor.requires_grad:
            torch.testing.assert_close(tensor.grad, expected[name], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("recipe", ["gated_deltanet", "linear_attention", "rls", "lru", "softmax"])
def test_a_sequence_may_be_cut(recipe: str) -> None:
    inputs = drawn(recipe, T=11)
    whole, last = ttr.torch.regress(recipe, **inputs, return_state=True)

    def part(begin: int, end: int) -> dict[str, Tensor]:
        tokens = {s["keyword"] for s in ttr.input_specs(recipe) if "T" in s["shapes"][0]}
        return {n: t[:, begin:end] if n in tokens or n in "qkv" else t for n, t in inputs.items()}

    first, state = ttr.torch.regress(recipe, **part(0, 4), return_state=True)
    held = {name: t.clone() for name, t in state.items()}
    rest, final = ttr.torch.regress(recipe, **part(4, 11), state=state, return_state=True)
    torch.testing.assert_close(torch.cat([first, rest], 1), whole, rtol=1e-9, atol=1e-9)
    for name in final:
        torch.testing.assert_close(final[name], last[name], rtol=1e-9, atol=1e-9)
        assert torch.equal(state[name], held[name]), "the given state is not written"


def test_packed_sequences_are_their_sequences_alone() -> None:
    inputs = drawn(GATED, torch.float32, B=1, T=70)
    cuts = torch.tensor([0, 5, 5, 70], dtype=torch.int32)
    packed = ttr.torch.regress(GATED, **inputs, cu_seqlens=cuts)
    for begin, end in ((0, 5), (5, 70)):
        alone = ttr.torch.regress(GATED, **{n: t[:, begin:end] for n, t in inputs.items()})
        assert torch.equal(packed[:, begin:end], alone)
    numbers = torch.tensor([[0] * 5 + [2] * 65])
    assert torch.equal(
        ttr.torch.cu_seqlens_of(numbers), torch.tensor([0, 5, 70], dtype=torch.int64)
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_narrower_types(dtype: torch.dtype) -> None:
    inputs = drawn(GATED, T=40)
    gates = {"log_decay": inputs["log_decay"].float(), "step": inputs["step"].float()}
    rows = {name: inputs[name].to(dtype) for name in "qkv"}
    y = ttr.torch.regress(GATED, **rows, **gates)
    wide = {name: t.double() for name, t in {**rows, **gates}.items()}
    expected, _ = torch_oracle.definition(GATED, wide, {})
    assert y.dtype == dtype
    tolerance = 2e-2 if dtype == torch.bfloat16 else 2e-5
    torch.testing.assert_close(y.double(), expected, rtol=tolerance, atol=tolerance)
    given = wanting({**rows, **gates})
    ttr.torch.regress(GATED, **given).sum().backward()
    for name, tensor in given.items():
        assert tensor.grad is not None and tensor.grad.dtype == tensor.dtype, name


def test_strides_and_broadcast_gradients() -> None:
    inputs = drawn(GATED, T=8)
    y = ttr.torch.regress(GATED, **inputs)
    strided = {}
    for name, tensor in inputs.items():
        spread = torch.zeros(*tensor.shape[:-1], 2 * tensor.shape[-1], dtype=tensor.dtype)
        spread[..., ::2] = tensor
        strided[name] = spread[..., ::2]
    assert torch.equal(ttr.torch.regress(GATED, **strided), y)
    turned = {n: t.transpose(1, 2).contiguous().transpose(1, 2) for n, t in inputs.items()}
    assert torch.equal(ttr.torch.regress(GATED, **turned), y)
    one, two = wanting(inputs), wanting(strided)
    ttr.torch.regress(GATED, **one).sum().backward()
    ttr.torch.regress(GATED, **two).backward(torch.ones_like(y))
    for name in one:
        assert torch.equal(one[name].grad, two[name].grad), name  # type: ignore[arg-type]


@pytest.mark.parametrize("tokens", [0, 1])
def test_no_token_and_one(tokens: int) -> None:
    inputs = wanting(drawn(GATED, T=tokens))
    y, state = ttr.torch.regress(GATED, **inputs, return_state=True)
    assert y.shape == (2, tokens, 2, 4)
    (y.sum() + state["state"].sum()).backward()
    assert all(t.grad is not None and t.grad.shape == t.shape for t in inputs.values())
    empty = drawn(GATED, B=0)
    assert ttr.torch.regress(GATED, **empty).shape == (0, 9, 2, 4)


def test_only_what_requires_gradients_gets_one() -> None:
    inputs = drawn(GATED)
    everything = wanting(inputs)
    ttr.torch.regress(GATED, **everything).square().sum().backward()
    for name in inputs:
        some = {**inputs, name: inputs[name].clone().requires_grad_()}
        ttr.torch.regress(GATED, **some).square().sum().backward()
        torch.testing.assert_close(some[name].grad, everything[name].grad, rtol=1e-12, atol=1e-12)
    with torch.no_grad():
        assert not ttr.torch.regress(GATED, **everything).requires_grad
    with torch.inference_mode():
        y = ttr.torch.regress(GATED, **inputs)
        assert y.is_inference()
    torch.testing.assert_close(y.clone(), ttr.torch.regress(GATED, **inputs))


def test_hooks_may_move_what_is_saved() -> None:
    def pack(tensor: Tensor) -> Any:
        stream = io.BytesIO()
        torch.save(tensor, stream)
        return stream.getvalue()

    def unpack(held: Any) -> Tensor:
        moved = torch.load(io.BytesIO(held))
        if moved.dtype != torch.uint8:
            return moved
        room = torch.empty(moved.numel() + 1, dtype=torch.uint8)
        room[1:] = moved  # at an odd address
        return room[1:]

    one, two = wanting(drawn(GATED, T=130)), wanting(drawn(GATED, T=130))
    ttr.torch.regress(GATED, **one).square().sum().backward()
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        y = ttr.torch.regress(GATED, **two)
    y.square().sum().backward()
    for name in one:
        assert torch.equal(one[name].grad, two[name].grad), name  # type: ignore[arg-type]


def test_backward_runs_twice_and_gradients_of_gradients_are_refused() -> None:
    inputs = wanting(drawn(GATED))
    y = ttr.torch.regress(GATED, **inputs).sum()
    first = torch.autograd.grad(y, inputs["v"], retain_graph=True)[0]
    assert torch.equal(first, torch.autograd.grad(y, inputs["v"])[0])
    y = ttr.torch.regress(GATED, **inputs).square().sum()
    (dv,) = torch.autograd.grad(y, inputs["v"], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        dv.sum().backward()


def test_any_number_of_threads_gives_the_same_bits() -> None:
    inputs = wanting(drawn(GATED, torch.float32, T=300, Dk=32, Dv=32))
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            for t in inputs.values():
                t.grad = None
            y = ttr.torch.regress(GATED, **inputs)
            y.square().sum().backward()
            results.append([y.detach(), *(t.grad for t in inputs.values())])
    finally:
        torch.set_num_threads(before)
    for one, two in zip(*results):
        assert torch.equal(one, two)


@pytest.mark.parametrize("recipe", ["gated_deltanet", "rls", "mamba2", "hgrn", "softmax"])
def test_a_decoder_goes_on_bit_for_bit(recipe: str) -> None:
    inputs = drawn(recipe, T=12)
    whole = ttr.torch.regress(recipe, **inputs)
    decoder = ttr.torch.Decoder(recipe)
    answers = []
    for t in range(12):
        token = {n: x[:, t : t + 1] if x.dim() > 2 else x for n, x in inputs.items()}
        answers.append(decoder.step(**token))
        if t == 5:
            others = [copy.deepcopy(decoder), pickle.loads(pickle.dumps(decoder))]
        elif t > 5:
            for other in others:
                assert torch.equal(other.step(**token), answers[-1])
    torch.testing.assert_close(torch.cat(answers, 1), whole, rtol=1e-8, atol=1e-8)


def test_a_state_is_updated_in_place() -> None:
    inputs = drawn(GATED, torch.float32, T=6)
    whole, final = ttr.torch.regress(GATED, **inputs, return_state=True)
    turned = torch.zeros(2, 2, 4, 4).transpose(0, 1)  # any strides but a contiguous last axis
    state = {"state": turned}
    for t in range(6):
        token = {n: x[:, t : t + 1] for n, x in inputs.items()}
        y = ttr.torch.step_(GATED, state, **token)
        torch.testing.assert_close(y, whole[:, t : t + 1], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(turned, final["state"], rtol=1e-5, atol=1e-5)
    with pytest.raises(RuntimeError, match="requires_grad"):
        ttr.torch.step_(GATED, state, **wanting(token))


def refused(message: str, call: Any) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_bad_input_is_refused_by_name() -> None:
    inputs = drawn(GATED)

    def run(**changes: Any) -> Any:
        return lambda: ttr.torch.regress(GATED, **{**inputs, **changes})

    refused("k must be", run(k=inputs["k"][..., :3]))
    refused("step", run(step=None))
    refused("log_decay", run(log_decay=-inputs["log_decay"]))
    refused("q", run(q=inputs["q"].to(torch.complex128)))
    refused("cu_seqlens", run(cu_seqlens=torch.tensor([0, 5, 3, 9])))
    refused("state", run(state={"state": torch.zeros(2, 2, 4, 5, dtype=torch.float64)}))
    refused("state.a", run(state={"state.a": torch.zeros(2, 2, 4, 4, dtype=torch.float64)}))
    refused("no_such_layer", lambda: ttr.torch.regress("no_such_layer", **inputs))
    refused(
        "features_w",
        lambda: ttr.torch.regress("feature_rls", **drawn("rls"), features_w=torch.zeros(2, 3)),
    )
    with pytest.raises((TypeError, ValueError), match="log_decy"):
        ttr.torch.regress(GATED, **inputs, log_decy=inputs["log_decay"])
    many = wanting(drawn("softmax", T=400))
    refused("central", lambda: ttr.torch.regress("softmax", **many))


def test_memory_of_another_recipe_is_refused() -> None:
    inputs = drawn(GATED, torch.float32)
    token = {n: x[:, :1] for n, x in inputs.items()}
    memory = torch.zeros(ttr.torch.decoder_bytes(GATED, **token), dtype=torch.uint8)
    ttr.torch.step_(GATED, memory, **token)
    held = memory.clone()
    refused("memory", lambda: ttr.torch.step_("kda", memory, **drawn("kda", torch.float32, T=1)))
    assert torch.equal(memory, held)


def test_one_operator_under_compile_and_export() -> None:
    inputs = drawn(GATED, torch.float32, T=20)

    def loss(**given: Tensor) -> Tensor:
        return (ttr.torch.regress(GATED, **given) * 2).square().sum()

    eager, compiled = wanting(inputs), wanting(inputs)
    loss(**eager).backward()
    torch.compile(loss, fullgraph=True, backend="aot_eager")(**compiled).backward()
    for name in eager:
        torch.testing.assert_close(eager[name].grad, compiled[name].grad)

    class Module(torch.nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
            return ttr.torch.regress(GATED, q, k, v, log_decay=g, step=beta) + 1

    rows = tuple(inputs[name] for name in ("q", "k", "v", "log_decay", "step"))
    with torch.no_grad():
        exported = torch.export.export(Module(), rows)
        assert torch.equal(exported.module()(*rows), Module()(*rows))


def test_opcheck() -> None:
    from ttr.torch import _library

    inputs = list(drawn(GATED, torch.float32, T=20).values())
    given = sum(_library.BITS[name] for name in drawn(GATED))
    order = sorted(drawn(GATED), key=lambda name: _library.BITS[name])
    tensors = [dict(zip(drawn(GATED), inputs))[name] for name in order]
    for arguments in (
        (GATED, tensors, given, [], 0, True, False),
        (GATED, tensors, given, [], 0, False, True),
        (GATED, tensors, given, [torch.zeros(2, 2, 4, 4)], 1, True, True),
    ):
        torch.library.opcheck(torch.ops.ttr.forward.default, arguments)


def test_autocast_keeps_types() -> None:
    inputs = drawn(GATED, torch.float32)
    rows = {n: t.bfloat16() if n in "qkv" else t for n, t in inputs.items()}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert ttr.torch.regress(GATED, **inputs).dtype == torch.float32
        assert ttr.torch.regress(GATED, **rows).dtype == torch.bfloat16


def test_recipes_as_values() -> None:
    inputs = drawn(GATED)
    recipe = ttr.Recipe(GATED)
    y = ttr.torch.regress(GATED, **inputs)
    assert torch.equal(ttr.torch.regress(recipe, **inputs), y)
    assert torch.equal(ttr.torch.regress(recipe.to_dict(), **inputs), y)
    assert np.array_equal(
        ttr.Layer(recipe).forward(**{n: t.numpy() for n, t in inputs.items()})[0], y.numpy()
    )
