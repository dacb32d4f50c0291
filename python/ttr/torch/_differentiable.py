"""Operators that stand around a memory, each beside its gradients' operator `<name>_backward`: how
a call is made, and its way through autograd.

The arguments of an operator are tensors (None where one is absent), then options. Its gradients'
operator takes the gradients of its outputs, the same arguments, and a number whose bit i says that
the gradient of the i-th tensor is wanted.
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

import torch
from torch import Tensor
from torch.compiler import is_compiling

from . import _autograd, _library
from ._derivatives import refuse_tangents
from ._regress import _below_autograd, run


class Operator(NamedTuple):
    """An operator by its name, that of its gradients, how many of its arguments are tensors, and
    what gives the shapes and types of its outputs."""

    name: str
    forward: Any
    backward: Any
    count: int
    fake: Callable[..., Any]


def operator(name: str, count: int, fake: Callable[..., Any]) -> Operator:
    """`torch.ops.ttr.<name>` with its gradients. `fake` gives the shapes of its outputs."""
    found = Operator(
        name, _library.operator(name), _library.operator(f"{name}_backward"), count, fake
    )
    schema = getattr(torch.ops.ttr, name).default._schema

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        _keep(ctx, found, inputs[:count], inputs[count:])

    def fake_backward(*args: Any) -> list[Tensor]:
        wanted, options = args[-1], len(schema.arguments) - count
        tensors = args[-1 - options - count : -1 - options]
        return [t.new_empty(t.shape) for i, t in enumerate(tensors) if wanted >> i & 1]

    torch.library.register_fake(f"ttr::{name}", fake)
    torch.library.register_fake(f"ttr::{name}_backward", fake_backward)
    _autograd.differentiable(name, _gradients, setup, around_memories=True)
    return found


def call(op: Operator, *args: Any) -> Any:
    """The outputs, differentiable where a tensor requires it."""
    tensors = args[: op.count]
    refuse_tangents(op.name, tensors, "PyTorch's own operators, ")
    if any(is_half(t) for t in tensors):
        return _of_half(op, args)
    if not (torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)):
        return run(op.forward, *args)
    if is_compiling():
        return op.forward(*args)
    return _Call.apply(op, args[op.count :], *tensors)


def is_half(x: Any) -> bool:
    return isinstance(x, Tensor) and x.dtype == torch.float16


def _of_half(op: Operator, args: Any) -> Any:
    """float16 is widened for the operator; its outputs are rounded to the types they have."""
    like = op.fake(*(x.to("meta") if isinstance(x, Tensor) else x for x in args))
    made = call(op, *(x.float() if is_half(x) else x for x in args))
    if isinstance(made, Tensor):
        return made.to(like.dtype)
    return tuple(x.to(as_.dtype) for x, as_ in zip(made, like))


def _keep(ctx: Any, op: Operator, tensors: Any, options: Any) -> None:
    ctx.set_materialize_grads(False)
    ctx.op, ctx.options = op, options
    ctx.save_for_backward(*tensors)


def _gradients(ctx: Any, *gradients: Tensor | None) -> tuple[Any, ...]:
    """Those of all arguments of the operator."""
    op, options = ctx.op, ctx.options
    needs = ctx.needs_input_grad[-op.count - len(options) :][: op.count]
    return (*_of_tensors(ctx, gradients, needs), *(None for _ in options))


def _of_tensors(ctx: Any, gradients: Any, needs: Any) -> list[Tensor | None]:
    if all(g is None for g in gradients):
        return [None] * len(needs)
    wanted = sum(1 << i for i, needed in enumerate(needs) if needed)
    made = iter(ctx.op.backward(*gradients, *ctx.saved_tensors, *ctx.options, wanted))
    return [next(made) if needed else None for needed in needs]


class _Call(torch.autograd.Function):
    """The operator with its gradients, without what the dispatcher's own way costs."""

    @staticmethod
    def forward(ctx: Any, op: Operator, options: tuple[Any, ...], *tensors: Tensor | None) -> Any:
        _keep(ctx, op, tensors, options)
        with _below_autograd():
            return op.forward(*tensors, *options)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        needs = ctx.needs_input_grad[2:]
        if torch.is_grad_enabled():  # create_graph: what comes out refuses to be differentiated
            return (None, None, *_of_tensors(ctx, gradients, needs))
        with _below_autograd():
            return (None, None, *_of_tensors(ctx, gradients, needs))
