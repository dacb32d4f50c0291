"""Calls of local linear regression that kernels take, and their gradients."""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd import Function

from .._derivatives import once
from ..portable.inputs import Call
from ..portable.passes import least_pivot
from ..portable.prefix_solve import shared
from ..portable.recipe import query_scale
from . import launches, local, local_back
from .passes import power

#: What the kernels take nothing else of.
_PLAIN = {
    "degree": 1, "kernel": "exponential", "decay": "none", "importance": "none", "window": 0, "features": "none",
    "pair_bias": "none", "causal": True, "output_norm": "none", "normalise_qk": False, "correction": 0.0,
}  # fmt: skip


def takes(call: Call) -> bool:
    """Whether the kernels have this call; sums of float32 are enough for rows of two bytes."""
    choices = call.choices
    narrow = all(call.tensors[name].dtype in (torch.bfloat16, torch.float16) for name in "qkv")
    plain = all(getattr(choices, name) == value for name, value in _PLAIN.items())
    return narrow and plain and choices.ridge > 0 and not call.state and call.sequences is None


def run(call: Call) -> Tensor:
    """y [B, T, max(H, Hq), Dv]."""
    choices, sizes = call.choices, call.sizes
    shapes = {
        "H": sizes["H"], "Q_HEADS": sizes["Hq"], "K_HEADS": sizes["Hk"], "V_HEADS": sizes["Hv"],
        "GROUPS": max(1, sizes["Hq"] // sizes["H"]), "K": sizes["Dk"], "V": sizes["Dv"], "C": 64,
        "SIZE": power(sizes["Dk"]), "WIDTH": power(sizes["Dv"]), "SCALE": query_scale(choices, sizes["Dk"]),
        "BEFORE": choices.read == "before", "num_warps": 4 if sizes["Dk"] <= 64 else 8, "num_stages": 1,
    }  # fmt: skip
    y: Tensor = _Linear.apply(
        shapes, choices.ridge, *(call.tensors[name] for name in "qkv"), call.tensors.get("ridge")
    )
    return y


class _Linear(Function):
    @staticmethod
    def forward(
        ctx: Any, shapes: dict[str, Any], constant: float, q: Tensor, k: Tensor, v: Tensor, ridge: Tensor | None
    ) -> Tensor:
        q, k, v = (x.contiguous() for x in (q, k, v))
        ridge = None if ridge is None else ridge.contiguous()
        batch, tokens = v.shape[:2]
        queries = shapes["H"] * shapes["GROUPS"]
        y = v.new_empty(batch, tokens, queries, v.shape[-1])
        least = least_pivot(shapes["K"], torch.float32)
        grid = (batch * tokens, queries)
        launches.launch(local.linear, grid, q, k, v, ridge, y, tokens, least, RIDGE=constant, **shapes)
        ctx.shapes, ctx.constant = shapes, constant
        ctx.save_for_backward(q, k, v, ridge)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        with torch.no_grad():
            made = _backward(ctx, dy.contiguous())
        return (None, None, *once(made, (*ctx.saved_tensors, dy)))


def _backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    q, k, v, ridge = ctx.saved_tensors
    shapes = ctx.shapes
    batch, tokens, heads = v.shape[0], v.shape[1], shapes["H"]
    rows, queries = batch * tokens, heads * shapes["GROUPS"]
    dq, us, ws = (dy.new_empty(batch, tokens, queries, q.shape[-1], dtype=torch.float32) for _ in range(3))
    numbers = dy.new_empty(5, rows, queries, dtype=torch.float32)
    launches.launch(
        local_back.of_queries, (rows, queries), q, k, v, dy, ridge, dq, us, ws, numbers, tokens, rows,
        least_pivot(shapes["K"], torch.float32), RIDGE=ctx.constant, **shapes,
    )  # fmt: skip
    dk, dv = (dy.new_empty(batch, tokens, heads, x.shape[-1], dtype=torch.float32) for x in (k, v))
    launches.launch(
        local_back.of_pairs, (batch * triton.cdiv(tokens, shapes["C"]), heads), q, k, v, dy, us, ws, numbers,
        dk, dv, tokens, rows, ASKED=16, **{**shapes, "num_warps": 8},
    )  # fmt: skip
    of_ridge = None if ridge is None else -shared(us * ws, heads).sum((0, 1, 3)).to(ridge.dtype)
    return (
        shared(dq, q.shape[2]).to(q.dtype),
        shared(dk, k.shape[2]).to(k.dtype),
        shared(dv, v.shape[2]).to(v.dtype),
        of_ridge,
    )
