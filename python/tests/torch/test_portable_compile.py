"""The portable forms and the functions under torch.compile."""

from __future__ import annotations

import pytest
import torch
import torch_cases as cases
import ttr.torch.functional as ttf
from torch import Tensor
from torch_cases import Sizes
from ttr.torch.portable import regress

SIZES = Sizes(batch=1, tokens=70, key_dim=4, value_dim=3)


def same_as_compiled(recipe: str, fullgraph: bool) -> None:
    inputs = cases.inputs(recipe, SIZES)
    names = list(inputs)

    def call(*tensors: Tensor) -> Tensor:
        return regress(recipe, **dict(zip(names, tensors)))

    torch._dynamo.reset()
    compiled = torch.compile(call, fullgraph=fullgraph, backend="aot_eager")
    leaves = [x.clone().requires_grad_() for x in inputs.values()]
    y, want = compiled(*leaves), call(*leaves)
    torch.testing.assert_close(y, want)
    got = torch.autograd.grad(y.square().sum(), leaves, allow_unused=True)
    wanted = torch.autograd.grad(want.square().sum(), leaves, allow_unused=True)
    for ours, theirs in zip(got, wanted):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(
    "recipe",
    [
        "gated_deltanet",
        "kda",
        "rwkv7",
        "mlstm",
        "gateloop",
        "hgrn",
        "ttt_mlp",
        "softmax",
        "decayed_softmax",
        "window_softmax",
        "nadaraya_watson",
    ],
)
def test_one_graph(recipe: str) -> None:
    same_as_compiled(recipe, fullgraph=True)


# PyTorch's own, where its tracer goes on after a break in the graph.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("recipe", ["mesa", "batch_gd", "local_linear", "kernel_ridge"])
def test_what_solves_systems_is_left_as_it_is(recipe: str) -> None:
    same_as_compiled(recipe, fullgraph=False)


def test_functions_are_one_graph() -> None:
    x = cases.inputs("gated_deltanet", SIZES)

    def call(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
        return ttf.chunk_gated_delta_rule(q, k, v, g, beta, use_qk_l2norm_in_kernel=True)[0]

    tensors = [x[name] for name in ("q", "k", "v", "log_decay", "step")]
    torch._dynamo.reset()
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*tensors), call(*tensors))
