"""Which calls go to the GPU library's kernels, with a library of that name that is written here."""

from __future__ import annotations

import sys
import types

import pytest
import torch
import torch_cases as cases
import ttr.torch.functional as ttf
from torch_cases import Sizes
from ttr.torch import portable
from ttr.torch.portable import gpu_library

MODULES = {
    "simple_gla": "chunk_simple_gla",
    "gla": "chunk_gla",
    "delta_rule": "chunk_delta_rule",
    "gated_delta_rule": "chunk_gated_delta_rule",
    "kda": "chunk_kda",
}
SIZES = Sizes(batch=1, tokens=40, key_dim=8, value_dim=6)


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A library whose kernels are ours in float32, for tensors that pass for those of a GPU."""
    names: list[str] = []
    monkeypatch.setitem(sys.modules, "fla", types.ModuleType("fla"))
    monkeypatch.setitem(sys.modules, "fla.ops", types.ModuleType("fla.ops"))
    for module, name in MODULES.items():
        made = types.ModuleType(f"fla.ops.{module}")
        setattr(made, name, _recording(names, name))
        monkeypatch.setitem(sys.modules, f"fla.ops.{module}", made)
    monkeypatch.setattr(gpu_library, "_on_gpu", lambda call: True)
    gpu_library._kernel.cache_clear()
    yield names
    gpu_library._kernel.cache_clear()


def _recording(names: list[str], name: str):
    def kernel(q, k, v, *, scale, initial_state, output_final_state, **options):
        names.append(name)
        wide = {
            key: x.float() if torch.is_floating_point(x) else x
            for key, x in options.items()
            if torch.is_tensor(x)
        }
        rest = {key: x for key, x in options.items() if not torch.is_tensor(x)}
        o, final = getattr(ttf, name)(
            q.float(),
            k.float(),
            v.float(),
            scale=scale,
            initial_state=initial_state,
            output_final_state=output_final_state,
            **wide,
            **rest,
        )
        return o.to(q.dtype), final

    return kernel


@pytest.mark.parametrize(
    ("recipe", "name"),
    {
        "mamba2": "chunk_simple_gla",
        "gla{scale: 0.5}": "chunk_gla",
        "deltanet{normalise_qk: true}": "chunk_delta_rule",
        "gated_deltanet{normalise_qk: true, scale: rsqrt_dk}": "chunk_gated_delta_rule",
        "kda{normalise_qk: true}": "chunk_kda",
    }.items(),
)
@pytest.mark.parametrize("sizes", [SIZES, Sizes(tokens=40, key_dim=8, value_dim=6, sequences=3)])
def test_a_recipe_that_it_has(
    called: list[str], monkeypatch, recipe: str, name: str, sizes: Sizes
) -> None:
    inputs = {
        n: x.bfloat16() if x.is_floating_point() else x
        for n, x in cases.inputs(recipe, sizes).items()
    }
    state = {"state": torch.randn(sizes.sequences or 1, 2, 8, 6)}
    y, final = portable.regress(recipe, **inputs, state=state, return_state=True)
    assert called == [name]
    monkeypatch.setattr(gpu_library, "_on_gpu", lambda call: False)
    want, last = portable.regress(recipe, **inputs, state=state, return_state=True)
    assert called == [name]
    torch.testing.assert_close(y, want, rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(final["state"], last["state"], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "recipe",
    [
        "gla{read: before}",
        "gated_deltanet{step: longhorn}",
        "delta_product",
        "mamba2{output_norm: l2}",
        "mlstm",
        "mesa",
    ],
)
def test_a_recipe_that_it_has_not(called: list[str], recipe: str) -> None:
    portable.regress(recipe, **{n: x.bfloat16() for n, x in cases.inputs(recipe, SIZES).items()})
    assert not called


def test_types_and_heads_that_it_has_not(called: list[str]) -> None:
    portable.regress("gla", **cases.inputs("gla", SIZES))
    sizes = Sizes(batch=1, tokens=4, query_heads=4, key_heads=1, value_heads=2)
    portable.regress("gla", **{n: x.bfloat16() for n, x in cases.inputs("gla", sizes).items()})
    assert not called


class _Opaque(torch.autograd.Function):
    """As the library's kernels: autograd sees nothing of what their backward pass does."""

    @staticmethod
    def forward(ctx, q, k, v):
        ctx.save_for_backward(q, k, v)
        return q * k * v

    @staticmethod
    def backward(ctx, g):
        q, k, v = (t.detach() for t in ctx.saved_tensors)
        g = g.detach()
        return g * k * v, g * q * v, g * q * k


def test_gradients_of_gradients_are_refused(called: list[str], monkeypatch) -> None:
    def kernel(q, k, v, **options):
        return _Opaque.apply(q, k, v), torch.zeros(1)

    monkeypatch.setattr(sys.modules["fla.ops.delta_rule"], "chunk_delta_rule", kernel)
    x = torch.randn(1, 5, 2, 4, dtype=torch.bfloat16)
    q, k, v = (x.clone().requires_grad_() for _ in range(3))
    beta = torch.rand(1, 5, 2, dtype=torch.bfloat16)
    y = portable.regress("deltanet", q, k, v, step=beta)
    loss = y.pow(3).sum() + k.pow(3).sum()
    of_q, of_k = torch.autograd.grad(loss, (q, k), create_graph=True)
    for first in (of_q, of_k):
        with pytest.raises(RuntimeError, match="gradients of gradients must not be asked for"):
            torch.autograd.grad((first + k).pow(2).sum(), k, retain_graph=True)
