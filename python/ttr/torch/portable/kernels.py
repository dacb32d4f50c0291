"""Which calls go to the kernels of ttr.torch.triton, and how these are given their operands.

Nothing of Triton is imported before a call with tensors on a GPU asks. Where it is not installed, or
sums are float64, or heads are wider than a program holds, the passes are PyTorch's operators.
"""

from __future__ import annotations

import functools
import importlib
import warnings
from typing import Any

import torch
from torch import Tensor

from .inputs import Call
from .recipe import query_scale


def made_for(call: Call, width: int) -> Any | None:
    """The module ttr.torch.triton, where it takes memories whose keys or values are at most
    ``width`` wide."""
    if not on_gpu(call) or call.work != torch.float32:
        return None
    kernels = _module()
    return None if kernels is None or width > kernels.WIDEST else kernels


def on_gpu(call: Call) -> bool:
    return call.device.type == "cuda" and torch.cuda.get_device_capability(call.device) >= (8, 0)


@functools.cache
def _module() -> Any | None:
    try:
        return importlib.import_module("ttr.torch.triton")
    except ImportError as error:
        warnings.warn(
            f"ttr.torch.portable goes without its kernels, which Triton makes: {error}. Results are "
            "the same, later",
            stacklevel=2,
        )
        return None


def ends(call: Call) -> tuple[int, ...]:
    """The first row of every sequence in a batch flattened to rows, and the number of rows."""
    if call.sequences is not None:
        return tuple(call.sequences)
    batch, length = call.sizes["B"], call.sizes["T"]
    return tuple(n * length for n in range(batch + 1))


def plain_rows(call: Call) -> tuple[Tensor, Tensor] | None:
    """q, scaled, and k as they came in, [B, T, Hq, K] and [B, T, Hk, K], where the recipe does
    nothing else to them: kernels read narrow types, and heads that are shared, themselves."""
    choices = call.choices
    plain = choices.features == "none" and choices.function == "linear" and not choices.normalise_qk
    if not plain or choices.correction != 0:
        return None
    scale = query_scale(choices, call.sizes["Dk"])
    q = call.tensors["q"]
    return (q if scale == 1 else call.need("q") * scale), call.tensors["k"]
