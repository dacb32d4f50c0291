"""Which calls go to the kernels of ttr.torch.triton, and how these are given their operands.

Nothing of Triton is imported before a call with tensors on a GPU asks. Where it is not installed, the
GPU is too old, or heads are wider than a program holds, the passes are PyTorch's operators, and so
they are where sums are float64.
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
    ``width`` wide. On a GPU that goes without, the reason is said once."""
    if call.device.type not in _GPUS or call.work != torch.float32:
        return None
    most = widest(call.device)
    if width > most:
        _say(f"heads are {width} channels wide and {call.device} has kernels for at most {most}")
        return None
    return _module()


def of_token(call: Call) -> Any | None:
    """The module that runs a call of one token in one launch, and changes its state in place; None where
    nothing does."""
    whole = call.sizes["T"] == 1 and call.sequences is None and len(call.state) == len(call.choices.state)
    made = made_for(call, max(call.sizes["Dk"], call.sizes["Dv"])) if whole else None
    return made.decode if made is not None and made.decode.takes(call) else None


#: Tokens of a chunk.
CHUNK = 64
_GPUS = ["cuda"]
#: The widest keys and values that a program has room for, by compute capability.
_WIDEST = {(8, 0): 64, (9, 0): 128, (10, 0): 128, (10, 3): 128}


def widest(device: torch.device) -> int:
    """The widest keys and values that kernels on a device take; 0 where it has none."""
    return _WIDEST.get(torch.cuda.get_device_capability(device), 0)


@functools.cache
def _module() -> Any | None:
    try:
        return importlib.import_module("ttr.torch.triton")
    except ImportError as error:
        _say(f"Triton is not there: {error}")
        return None


@functools.cache
def _say(reason: str) -> None:
    warnings.warn(
        f"ttr.torch takes PyTorch's own operators in the place of its kernels, with the same results "
        f"later, because {reason}",
        stacklevel=2,
    )


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
