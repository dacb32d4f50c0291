"""What layers have no derivatives for, and how that is refused: derivatives in forward mode, those of
what a backward pass has made, and gradients of what is updated in place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function, forward_ad
from torch.compiler import is_compiling

_functorch = torch._C._functorch


def refuse_tangents(
    op: str, tensors: Iterable[Tensor | None], around: str = "ttr.torch.portable.regress, "
) -> None:
    """RuntimeError where a tensor has a tangent (torch.func.jvp, torch.autograd.forward_ad), which would
    get lost: the derivative would be 0. Outside of forward mode that is one comparison. `around`: what
    has derivatives in forward mode, where there is something."""
    if forward_ad._current_level < 0:
        return
    # A tracer does not show tangents. Where it stops for this error, the call itself is looked at.
    if is_compiling() or any(t is not None and _has_tangent(t) for t in tensors):
        raise RuntimeError(
            f"[{op}] tensors must be without tangents, as no derivatives are made in forward mode, "
            f"but one has a tangent: use reverse mode (torch.autograd.grad, backward()), {around}"
            "or a difference of two calls"
        )


def _has_tangent(tensor: Tensor) -> bool:
    """Also of what other transforms of torch.func have wrapped."""
    if not isinstance(tensor, Tensor):
        return False
    while _functorch.is_functorch_wrapped_tensor(tensor):
        # A batch of vmap cannot be asked itself.
        if not _functorch.is_batchedtensor(tensor) and forward_ad.unpack_dual(tensor).tangent is not None:
            return True
        tensor = _functorch.get_unwrapped(tensor)
    return forward_ad.unpack_dual(tensor).tangent is not None


def refuse_gradients(op: str, tensors: Iterable[Tensor | None], instead: str) -> None:
    """RuntimeError where a gradient is wanted of a tensor that `op` reads or updates in place: it would
    end there. `instead`: what has one."""
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors):
        raise RuntimeError(
            f"[{op}] requires_grad must be False, as {op} updates in place, but is True: use "
            f"{instead}, or torch.no_grad()"
        )


def refuse_twice(ctx: Any, *gradients: Any) -> Any:
    """The backward pass of a backward pass. RuntimeError."""
    raise RuntimeError(
        "[ttr] gradients of gradients must not be asked for, but something that backward of a "
        "layer had made under create_graph=True was differentiated: use differences of first "
        "gradients, or ttr.torch.portable.regress, which has them for fast weights and scans"
    )


class _Once(Function):
    """What a backward pass has made, as a function of all that it was made of. (once_differentiable
    knows nothing of the latter: where there is a second way to them, its own is left out.)"""

    @staticmethod
    def forward(ctx: Any, made: tuple[Tensor, ...], *sources: Tensor) -> tuple[Tensor, ...]:
        return tuple(t.view_as(t) for t in made)

    backward = staticmethod(refuse_twice)


def once(made: Sequence[Tensor | None], sources: Iterable[Tensor | None]) -> list[Tensor | None]:
    """`made` by a backward pass from `sources`: itself, but under create_graph=True it refuses to be
    differentiated."""
    if not torch.is_grad_enabled():
        return list(made)
    given = [t for t in sources if t is not None and t.requires_grad]
    if not given:
        return list(made)
    marked = iter(_Once.apply(tuple(t for t in made if t is not None), *given))  # type: ignore[no-untyped-call]
    return [None if t is None else next(marked) for t in made]
