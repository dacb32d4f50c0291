"""The library of operators, `torch.ops.ttr`: loaded once, with what Python adds to each: shapes
without data (`register_fake`) and gradients (`_autograd`).

The operators are functional but those whose names end in `_`. A list of inputs, or of a state's
entries, holds what is given; a number beside it says by its bits what that is: bit i stands for
`INPUTS[i]`, or for the i-th entry that the recipe's state has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import _autograd

_PATH = Path(__file__).with_name("_operators.so")
if not _PATH.exists():
    raise ImportError(
        "ttr.torch needs its operators, which are left out where PyTorch is not there when the "
        "package is built: pip install torch, then in the folder of ttr's sources "
        "pip install --force-reinstall --no-deps ."
    )
torch.ops.load_library(str(_PATH))  # type: ignore[no-untyped-call]

def _keeps_the_type_of_errors() -> bool:
    """Whether a std::invalid_argument of an operator arrives as the ValueError that it stands for.
    PyTorch 2.15 hands on every error as a RuntimeError with its text."""
    try:
        torch.ops.ttr.saved_bytes("", "")
    except RuntimeError:
        return False
    except ValueError:
        pass
    return True


_KEEPS_TYPE = _keeps_the_type_of_errors()
#: How an error of the library begins: with the operator.
_OURS = re.compile(r"\[\w+\] ")


def operator(name: str) -> Any:
    """`torch.ops.ttr.<name>`, which refuses its arguments by a ValueError."""
    found = getattr(torch.ops.ttr, name).default
    if _KEEPS_TYPE:
        return found

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return found(*args, **kwargs)
        except RuntimeError as error:
            if not _OURS.match(str(error)):
                raise
            raise ValueError(str(error)) from None

    return call


forward = operator("forward")
backward = operator("backward")
step_ = operator("step_")
step_state_ = operator("step_state_")
decoder_start_ = operator("decoder_start_")
decoder_state_ = operator("decoder_state_")
decoder_bytes = operator("decoder_bytes")
pool_bytes = operator("pool_bytes")
pool_step_ = operator("pool_step_")
pool_start_ = operator("pool_start_")
pool_state_ = operator("pool_state_")
pool_pending = operator("pool_pending")
pool_roll_back_ = operator("pool_roll_back_")
saved_bytes = operator("saved_bytes")

#: The inputs of a layer, in the order of the bits.
INPUTS: tuple[str, ...] = tuple(torch.ops.ttr.input_names.default().split())
BITS: dict[str, int] = {name: 1 << i for i, name in enumerate(INPUTS)}

#: The switches of a call: what `forward` and `backward` both take by keyword.
SWITCHES: tuple[str, ...] = tuple(
    a.name for a in torch.ops.ttr.backward.default._schema.arguments if a.kwarg_only
)

#: Numbers whose gradient is taken by differences, at most.
MOST_DIFFERENCES: int = torch.ops.ttr.most_differences.default()

# ---- Sizes ---------------------------------------------------------------------------------------

#: The sizes of a call or of a memory, by the names of their axes.
SIZES: tuple[str, ...] = tuple(torch.ops.ttr.size_names.default().split())

_dims = operator("dims")


def sizes_of(text: str, tensors: list[Tensor], given: int) -> dict[str, int]:
    """The sizes of a call."""
    sizes: dict[str, int] = json.loads(_dims(text, tensors, given))
    return sizes


def record(sizes: Mapping[str, Any], dtype: torch.dtype, **kept: int) -> str:
    """Sizes and how a memory is kept (`draft`, `window`), as the operators take them. Sizes that are absent
    or None have their defaults."""
    said = {name: size for name, size in sizes.items() if size is not None}
    return json.dumps({**said, "state": str(dtype).removeprefix("torch."), **kept})


def by_bits(tensors: Any, bits: int, count: int) -> dict[int, Any]:
    """Tensors by the number of their bit."""
    return dict(zip((i for i in range(count) if bits >> i & 1), tensors))


# ---- Gradients -----------------------------------------------------------------------------------


class Call(NamedTuple):
    """What `backward` receives about the call of `forward` that it belongs to: the recipe's text, the bits of
    the inputs and of the initial state's entries, and the switches."""

    text: str
    given: int
    entries: int
    switches: dict[str, bool]


def gradients_of(
    call: Call,
    inputs: list[Tensor],
    initial: list[Tensor],
    dy: Tensor | None,
    dfinal: Any,
    saved: list[Tensor],
    needs: Any,
) -> list[Tensor | None]:
    """The gradients of the inputs, then of the initial state's entries; None where `needs` has
    False."""
    wanted = 0
    for i, needed in enumerate(needs):
        if needed:
            wanted |= 1 << i
    gradients, entries = [], 0
    for i, gradient in enumerate(dfinal):
        if gradient is not None:
            gradients.append(gradient)
            entries |= 1 << i
    made = iter(
        backward(
            call.text, inputs, call.given, initial, call.entries,
            dy, gradients, entries, saved, wanted, **call.switches,
        )
    )  # fmt: skip
    return [next(made) if needed else None for needed in needs]


def _setup_context(
    ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: Any
) -> None:
    text, tensors, given, initial, entries = inputs
    if keyword_only_inputs["engine"] is not None:
        raise ValueError("[forward] engine must be absent where gradients are wanted")
    _, final, saved = output
    ctx.set_materialize_grads(False)
    switches = {name: keyword_only_inputs[name] for name in SWITCHES}
    ctx.call = Call(text, given, entries, switches)
    ctx.count, ctx.state_count = len(tensors), len(initial)
    ctx.save_for_backward(*tensors, *initial, *saved)
    ctx.mark_non_differentiable(*(t for t in final if not t.is_floating_point()), *saved)


def _backward(ctx: Any, dy: Tensor | None, dfinal: Any, _: Any) -> tuple[Any, ...]:
    saved = list(ctx.saved_tensors)
    last = ctx.count + ctx.state_count
    _, needs_inputs, _, needs_initial, _ = ctx.needs_input_grad
    needs = [*_list(needs_inputs), *_list(needs_initial)]
    gradients = gradients_of(
        ctx.call, saved[: ctx.count], saved[ctx.count : last], dy, dfinal, saved[last:], needs
    )
    return None, gradients[: ctx.count], None, gradients[ctx.count :], None


def _list(needs: Any) -> list[bool]:
    return needs if isinstance(needs, list) else []


_autograd.differentiable("forward", _backward, _setup_context)
_autograd.in_place("step_", "regress")
_autograd.in_place("step_state_", "regress")
_autograd.in_place("decoder_start_", "the initial state of regress")
_autograd.in_place("pool_step_", "regress")
_autograd.in_place("pool_start_", "the initial state of regress")

