"""How autograd meets the operators themselves, `torch.ops.ttr`: with gradients, or with a refusal of
what they have none for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.compiler import is_compiling

from ._derivatives import refuse_gradients, refuse_tangents, refuse_twice


class _Refusing(torch.library.Library):
    """Kernels behind a look for tangents. PyTorch's own asks only who wants a gradient, and of a tensor
    that does not it would lose the tangent."""

    def __init__(self, around: str) -> None:
        super().__init__("ttr", "FRAGMENT")  # type: ignore[no-untyped-call]
        self.around = around

    def impl(self, op_name: Any, fn: Any, dispatch_key: str = "", **options: Any) -> None:
        around = self.around

        def refusing(keyset: Any, *args: Any, **named: Any) -> Any:
            if forward_ad._current_level >= 0:
                refuse_tangents(op_name, _tensors(args), around)
            return fn(keyset, *args, **named)

        super().impl(op_name, refusing, dispatch_key, **options)  # type: ignore[no-untyped-call]


#: As long as they live the kernels do.
_MEMORIES = _Refusing("ttr.torch.portable.regress, ")
_AROUND = _Refusing("PyTorch's own operators, ")


def differentiable(
    name: str, backward: Callable[..., Any], setup_context: Any, *, around_memories: bool = False
) -> None:
    """`torch.ops.ttr.<name>` has the gradients of `backward`; its own, `<name>_backward`, have none.
    (Those of `forward` are `backward`.)"""
    library = _AROUND if around_memories else _MEMORIES
    twice = "backward" if name == "forward" else f"{name}_backward"
    register = torch.library.register_autograd
    register(f"ttr::{name}", backward, setup_context=setup_context, lib=library)
    register(f"ttr::{twice}", refuse_twice, setup_context=_nothing, lib=library)


def in_place(name: str, instead: str, *, around_memories: bool = False) -> None:
    """`torch.ops.ttr.<name>` updates a tensor and has no gradients: `instead` has them."""
    operator = getattr(torch.ops.ttr, name).default
    written = [i for i, a in enumerate(operator._schema.arguments) if a.alias_info is not None]
    redispatch, after = operator.redispatch, torch._C._after_autograd_keyset

    def kernel(keyset: Any, *args: Any) -> Any:
        if torch.is_grad_enabled():
            refuse_gradients(name, _tensors(args), instead)
        with torch._C._AutoDispatchBelowAutograd():
            result = redispatch(keyset & after, *args)
        for i in written:
            count_change(args[i])
        return result

    library = _AROUND if around_memories else _MEMORIES
    library.impl(name, kernel, "Autograd", with_keyset=True)


def count_change(changed: Tensor | list[Tensor]) -> None:
    """Below autograd nobody counts the versions of tensors, by which a backward pass that has saved
    one of them finds out."""
    if is_compiling():
        return
    tensors = [changed] if isinstance(changed, Tensor) else changed
    torch.autograd.graph.increment_version([t for t in tensors if not t.is_inference()])


def _tensors(args: Any) -> Iterator[Tensor]:
    for arg in args:
        if isinstance(arg, Tensor):
            yield arg
        elif isinstance(arg, (list, tuple)):
            yield from _tensors(arg)


def _nothing(ctx: Any, **call: Any) -> None:
    return None
