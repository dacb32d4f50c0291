"""The kernels of the widely used GPU library, where they are installed and have the recipe.

A table of recipes; whatever is not in it goes the portable road. Nothing is imported before a call
with tensors on a GPU asks.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from .._derivatives import once, refuse_tangents
from .inputs import Call
from .recipe import query_scale

#: The options beside scale and normalise_qk that make a recipe, the module, its function, and the
#: function's names of the inputs.
_TABLE: tuple[tuple[Mapping[str, str], str, str, Mapping[str, str]], ...] = (
    (
        {"optimizer": "gradient", "decay": "scalar"},
        "simple_gla",
        "chunk_simple_gla",
        {"log_decay": "g"},
    ),
    ({"optimizer": "gradient", "decay": "channel"}, "gla", "chunk_gla", {"log_decay": "g"}),
    ({"optimizer": "sgd", "decay": "none"}, "delta_rule", "chunk_delta_rule", {"step": "beta"}),
    (
        {"optimizer": "sgd", "decay": "scalar"},
        "gated_delta_rule",
        "chunk_gated_delta_rule",
        {"log_decay": "g", "step": "beta"},
    ),
    (
        {"optimizer": "sgd", "decay": "channel"},
        "kda",
        "chunk_kda",
        {"log_decay": "g", "step": "beta"},
    ),
)

#: Kernels of which several memories may share a key head.
_GROUPED = ("chunk_gated_delta_rule", "chunk_kda")

#: What the kernels take nothing else of.
_PLAIN = {
    "function": "linear",
    "features": "none",
    "importance": "none",
    "phase": False,
    "steps": 1,
    "eta": 1.0,
    "step": "input",
    "erase": "key",
    "momentum": False,
    "weight_decay": "none",
    "preconditioner": "none",
    "read": "after",
    "bonus": False,
    "normalise_sum": "none",
    "output_norm": "none",
    "correction": 0.0,
    "causal": True,
}


def road(call: Call) -> Callable[[Call], tuple[Tensor, dict[str, Tensor]]] | None:
    """The library's kernel for this call; None where there is none."""
    if not _on_gpu(call) or call.tensors["v"].dtype not in (torch.bfloat16, torch.float16):
        return None
    choices, sizes = call.choices, call.sizes
    if any(getattr(choices, name) != value for name, value in _PLAIN.items()):
        return None
    if (
        sizes["T"] == 0
        or sizes["Dk"] > 256
        or sizes["Hq"] != sizes["Hk"]
        or sizes["Hv"] != sizes["H"]
    ):
        return None
    for options, module, name, inputs in _TABLE:
        if any(getattr(choices, option) != value for option, value in options.items()):
            continue
        if sizes["Hk"] != sizes["H"] and name not in _GROUPED:
            return None
        if choices.normalise_qk and "step" not in inputs:
            return None
        kernel = _kernel(module, name)
        return None if kernel is None else functools.partial(_run, kernel, inputs)
    return None


def _on_gpu(call: Call) -> bool:
    return call.device.type in ("cuda", "xpu")


@functools.cache
def _kernel(module: str, name: str) -> Callable[..., Any] | None:
    try:
        return getattr(importlib.import_module(f"fla.ops.{module}"), name, None)
    except ImportError:
        return None


def _run(
    kernel: Callable[..., Any], names: Mapping[str, str], call: Call
) -> tuple[Tensor, dict[str, Tensor]]:
    choices = call.choices
    refuse_tangents("regress", (*call.tensors.values(), *call.state.values()), "")
    tensors = dict(call.tensors)
    wanted = [name for name, t in tensors.items() if t.requires_grad]
    if wanted and torch.is_grad_enabled():
        marked = _OnceDifferentiable.apply(*[tensors[n] for n in wanted])  # type: ignore[no-untyped-call]
        tensors.update(zip(wanted, marked))
    given: dict[str, Any] = {argument: tensors[name] for name, argument in names.items()}
    if choices.normalise_qk:
        given["use_qk_l2norm_in_kernel"] = True
    if "cu_seqlens" in call.tensors:
        given["cu_seqlens"] = call.tensors["cu_seqlens"].to(call.device, torch.int64)
    y, final = kernel(
        q=tensors["q"],
        k=tensors["k"],
        v=tensors["v"],
        scale=query_scale(choices, call.sizes["Dk"]),
        initial_state=call.initial("state"),
        output_final_state=True,
        **given,
    )
    return y, {"state": call.stored("state", final.float())}


class _OnceDifferentiable(torch.autograd.Function):
    """The tensors themselves. The kernels' backward passes know of no gradients of gradients: what they
    make for these refuses to be differentiated."""

    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.save_for_backward(*tensors)
        return tuple(t.view_as(t) for t in tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return tuple(once(gradients, (*ctx.saved_tensors, *gradients)))
