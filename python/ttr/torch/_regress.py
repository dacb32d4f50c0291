"""One call of any layer: `regress`."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Literal, overload

import torch
from torch import Tensor
from torch.compiler import is_compiling

from . import _fake, _library  # noqa: F401 (_fake registers)
from ._arguments import State, arrange, count_tokens, entries_of, slice_tokens
from ._autograd import count_change
from ._derivatives import refuse_tangents
from ._recipes import RecipeInfo, info_of, text_of
from ._reports import reported

# What follows needs no gradients of the dispatcher's, whose way to them is written in Python.
_below_autograd = torch._C._AutoDispatchBelowAutograd


@overload
def regress(
    recipe: Any,
    q: Tensor | None = None,
    k: Tensor | None = None,
    v: Tensor | None = None,
    *,
    state: State | None = None,
    return_state: Literal[False] = False,
    reports: None = None,
    **inputs: Tensor | bool | None,
) -> Tensor: ...


@overload
def regress(
    recipe: Any,
    q: Tensor | None = None,
    k: Tensor | None = None,
    v: Tensor | None = None,
    *,
    state: State | None = None,
    return_state: Literal[True],
    reports: None = None,
    **inputs: Tensor | bool | None,
) -> tuple[Tensor, dict[str, Tensor]]: ...


@overload
def regress(
    recipe: Any,
    q: Tensor | None = None,
    k: Tensor | None = None,
    v: Tensor | None = None,
    *,
    state: State | None = None,
    return_state: Literal[False] = False,
    reports: Sequence[str],
    **inputs: Tensor | bool | None,
) -> tuple[Tensor, dict[str, Tensor]]: ...


@overload
def regress(
    recipe: Any,
    q: Tensor | None = None,
    k: Tensor | None = None,
    v: Tensor | None = None,
    *,
    state: State | None = None,
    return_state: Literal[True],
    reports: Sequence[str],
    **inputs: Tensor | bool | None,
) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]: ...


def regress(
    recipe: Any,
    q: Tensor | None = None,
    k: Tensor | None = None,
    v: Tensor | None = None,
    *,
    state: State | None = None,
    return_state: bool = False,
    reports: Sequence[str] | None = None,
    **inputs: Any,
) -> Any:
    """Memorizes every token and answers every query, y_t = m_t(q_t), by the layer of `recipe`.

    `recipe` is a name of the zoo, one with changes in braces, a recipe line, or a `ttr.Recipe`. It
    says which of the inputs it takes (`ttr.input_specs`).

    =============================  =====================================  ==========================
    q, k, v                        [B, T, Hq, Dk], [B, T, Hk, Dk],        float32, float64, bfloat16
                                   [B, T, Hv, Dv]
    log_decay                      [B, T, H] or [B, T, H, Dk]             <= 0; -inf forgets all
    step, importance, momentum,    [B, T, H]                              >= 0 but momentum
    weight_decay
    erase_key, erase_gate, phase   [B, T, H, Dk]
    dt, a                          [B, T, H, Dv], [H, Dv, Dk]             decay exp(dt a); a <= 0
    cu_seqlens                     [N + 1], int32 or int64                packed sequences, B = 1
    =============================  =====================================  ==========================

    H is the number of memories; key and value heads divide it, query heads divide it or are a
    multiple. Gates may be wider than q, k and v. Any strides; where the last axis is not contiguous
    it is copied.

    `state` holds the initial state's entries by their names (`ttr.state_specs`), float32 or float64;
    what is absent has the recipe's start. It is not changed. `bfloat16_products=True` lets a call without
    gradients multiply in bfloat16 where q, k and v are that and the processor gains by it.

    Returns y [B, T, max(H, Hq), Dv] in the dtype of v; with `return_state` the pair (y, final state).
    `reports` names what the regression knows beside y (docs/weights.md): "leverage", "effective_pairs",
    "slope", "status", "iterations", "residual"; a dictionary of them comes last. Such a call runs on the
    CPU, has no gradients (a RuntimeError where one is asked for), and may be much slower.
    Differentiable in every input and the initial state, through y and the final state; once, and in
    reverse mode: a tangent (torch.func.jvp, torch.autograd.forward_ad), or what differentiates a gradient,
    is a RuntimeError that names the way around. A recipe without gradients of its own is differentiated
    by central differences, of more than 4096 numbers by `ttr.torch.portable`. Iterative solvers have the gradient of the problem
    that they approach, not of their steps (docs/least_squares.md).
    Under torch.autocast everything keeps the dtype that it comes in.

    Errors: ValueError that names the argument, before any work. Tensors on another device than the
    CPU go to `ttr.torch.portable`.
    """
    text = recipe if type(recipe) is str else text_of(recipe)
    switches: dict[str, bool] = {}
    for name in _library.SWITCHES:
        if name in inputs:
            switches[name] = inputs.pop(name)
    if reports is not None:
        y, final, found = reported(text, reports, {"q": q, "k": k, "v": v, **inputs}, state, switches)
        return (y, final, found) if return_state else (y, found)
    tensors, given = arrange(text, q, k, v, inputs)
    if v is not None and not v.is_cpu and not v.is_meta:
        return _elsewhere(text, tensors, given, state, return_state)
    info = info_of(text)
    initial, entries = ([], 0) if not state else entries_of(info, state)
    refuse_tangents("forward", (*tensors, *initial))
    try:
        if torch.is_grad_enabled() and any_requires_grad(tensors, initial):
            refusal = _refusal_of_many(info, tensors, initial)
            if refusal is not None:
                return _by_the_other_road(refusal, text, tensors, given, state, return_state)
            differentiable = _under_compile if is_compiling() else _with_gradients
            call = _library.Call(text, given, entries, switches)
            y, final = differentiable(info, call, tensors, initial, return_state)
        else:
            switches["wants_final"] = return_state
            if is_compiling():
                y, final, _ = _library.forward(text, tensors, given, initial, entries, **switches)
            else:
                with _below_autograd():
                    y, final, _ = _library.forward(text, tensors, given, initial, entries, **switches)
    except NotImplementedError:
        if all(t.is_cpu for t in (*tensors, *initial)):
            raise
        return _elsewhere(text, tensors, given, state, return_state)  # names the one that is not
    if return_state:
        return y, dict(zip(info.states, final))
    return y


def regress_at(
    recipe: Any,
    at: Sequence[int],
    q: Tensor | None = None,
    k: Tensor | None = None,
    v: Tensor | None = None,
    *,
    state: State | None = None,
    **inputs: Any,
) -> tuple[Tensor, dict[str, Tensor], list[dict[str, Tensor]]]:
    """`regress`, with the states as after the first at[i] tokens, which a prefix cache keeps: y, the last
    state, these states. ``at`` rises from 1 to T. Whoever goes on from one of them has the bits of this
    call. ValueError: other places; packed sequences, which are calls of their own."""
    info = info_of(text_of(recipe))
    given = {"q": q, "k": k, "v": v, **inputs}
    if given.get("cu_seqlens") is not None:
        raise ValueError("[regress_at] cu_seqlens must be absent: a call for each sequence has states")
    count = count_tokens(info, given)
    try:
        at = [operator.index(place) for place in at]
    except TypeError:
        raise ValueError(f"[regress_at] at must be a list of whole numbers but is {at!r}") from None
    places = [0, *at, count]
    if any(b <= a for a, b in zip(places, places[1:-1])) or places[-2] > count:
        raise ValueError(f"[regress_at] at must rise from 1 to {count} but is {at}")
    answers, states = [], []
    held: Any = state
    for begin, end in zip(places, places[1:]):
        if begin == end and answers:
            continue
        part = slice_tokens(info, given, begin, end)
        rows = (part.pop(name) for name in ("q", "k", "v"))
        y, held = regress(recipe, *rows, state=held, return_state=True, **part)
        answers.append(y)
        states.append(held)
    return torch.cat(answers, 1), held, states[: len(at)]


def run(operator: Any, *args: Any) -> Any:
    """Calls an operator without gradients."""
    if is_compiling():
        return operator(*args)
    with _below_autograd():
        return operator(*args)


def run_in_place(operator: Any, changed: list[Tensor], *args: Any) -> Any:
    """Calls an operator that writes `changed`."""
    result = run(operator, *args)
    count_change(changed)
    return result


def any_requires_grad(tensors: list[Tensor], initial: list[Tensor] | tuple[()] = ()) -> bool:
    for tensor in tensors:
        if tensor.requires_grad:
            return True
    return any(tensor.requires_grad for tensor in initial)


def _forward(
    call: _library.Call, inputs: list[Tensor], initial: list[Tensor], wants_final: bool
) -> Any:
    """(y, final state, what is saved) of a call for gradients."""
    return _library.forward(
        call.text, inputs, call.given, initial, call.entries,
        wants_final=wants_final, saves=True, **call.switches,
    )  # fmt: skip


def _under_compile(
    info: RecipeInfo,
    call: _library.Call,
    tensors: list[Tensor],
    initial: list[Tensor],
    return_state: bool,
) -> tuple[Tensor, Any]:
    y, final, _ = _forward(call, tensors, initial, return_state)
    return y, final


def _with_gradients(
    info: RecipeInfo,
    call: _library.Call,
    tensors: list[Tensor],
    initial: list[Tensor],
    return_state: bool,
) -> tuple[Tensor, Any]:
    counts = info.counts if return_state else None
    y, *final = _Regress.apply(  # type: ignore[no-untyped-call]
        call, counts, len(tensors), *tensors, *initial
    )
    return y, final


def _refusal_of_many(
    info: RecipeInfo, tensors: list[Tensor], initial: Sequence[Tensor]
) -> str | None:
    """Why central differences do not take the gradients of these; None where they need not, or do."""
    if info.gradients:
        return None
    numbers = sum(t.numel() for t in (*tensors, *initial) if t.requires_grad)
    if numbers <= _library.MOST_DIFFERENCES:
        return None
    return (
        f"[forward] requires_grad must be of at most {_library.MOST_DIFFERENCES} numbers, as "
        f"{info.text} has no engine with gradients and is differentiated by central "
        f"differences, but is of {numbers}"
    )


def _by_the_other_road(refusal: str, *call: Any) -> Any:
    """By PyTorch's operators, which differentiate any number; ValueError where they have no form of the
    recipe."""
    try:
        return _elsewhere(*call)
    except ValueError as error:
        raise ValueError(f"{refusal}; {error}") from error


class _Regress(torch.autograd.Function):
    """`forward` with its gradients, without what the dispatcher's own way costs."""

    @staticmethod
    def forward(
        ctx: Any, call: _library.Call, counts: Any, count: int, *tensors: Tensor
    ) -> Any:
        inputs, initial = list(tensors[:count]), list(tensors[count:])
        wants_final = counts is not None
        with _below_autograd():
            y, final, saved = _forward(call, inputs, initial, wants_final)
        ctx.set_materialize_grads(False)
        ctx.call, ctx.count = call, count
        ctx.save_for_backward(*tensors, *saved)
        if not wants_final:
            return (y,)
        if True in counts:
            ctx.mark_non_differentiable(*(t for t, c in zip(final, counts) if c))
        return (y, *final)

    @staticmethod
    def backward(ctx: Any, dy: Tensor | None, *dfinal: Tensor | None) -> Any:
        *tensors, saved = ctx.saved_tensors
        inputs, initial = tensors[: ctx.count], tensors[ctx.count :]
        needs = ctx.needs_input_grad[3:]
        of = _library.gradients_of
        if torch.is_grad_enabled():  # create_graph: what comes out refuses to be differentiated
            gradients = of(ctx.call, inputs, initial, dy, dfinal, [saved], needs)
        else:
            with _below_autograd():
                gradients = of(ctx.call, inputs, initial, dy, dfinal, [saved], needs)
        return (None, None, None, *gradients)


def _elsewhere(
    text: str, tensors: list[Tensor], given: int, state: State | None, return_state: bool
) -> Any:
    from . import portable

    named = {_library.INPUTS[i]: t for i, t in _library.by_bits(tensors, given, 64).items()}
    return portable.regress(text, state=state, return_state=return_state, **named)
