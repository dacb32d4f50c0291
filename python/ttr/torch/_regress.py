"""One call of any layer: `regress`."""

from __future__ import annotations

from typing import Any, Mapping

import torch
from torch import Tensor

from . import _library
from ._recipes import MOST_DIFFERENCES, RecipeInfo, info_of, text_of

_any_requires_grad = torch._C._any_requires_grad
_below_autograd = torch._C._AutoDispatchBelowAutograd

State = Mapping[str, "Tensor | None"]


def regress(
    recipe: Any,
    q: Tensor | None = None,
    k: Tensor | None = None,
    v: Tensor | None = None,
    *,
    state: State | None = None,
    return_state: bool = False,
    bfloat16_products: bool = False,
    v_im: Tensor | None = None,
    log_decay: Tensor | None = None,
    phase: Tensor | None = None,
    dt: Tensor | None = None,
    a: Tensor | None = None,
    step: Tensor | None = None,
    importance: Tensor | None = None,
    log_importance: Tensor | None = None,
    erase_key: Tensor | None = None,
    erase_gate: Tensor | None = None,
    bonus: Tensor | None = None,
    momentum: Tensor | None = None,
    weight_decay: Tensor | None = None,
    ridge: Tensor | None = None,
    features_w: Tensor | None = None,
    features_b: Tensor | None = None,
    ln_weight: Tensor | None = None,
    ln_bias: Tensor | None = None,
    row_bias: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
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
    what is absent has the recipe's start. It is not changed. `bfloat16_products` lets a call without
    gradients multiply in bfloat16 where q, k and v are that and the processor gains by it.

    Returns y [B, T, max(H, Hq), Dv] in the dtype of v; with `return_state` the pair (y, final state).
    Differentiable in every input and the initial state, through y and the final state; once. A recipe
    without gradients of its own is differentiated by central differences, of 4096 numbers at most.
    Under torch.autocast everything keeps the dtype that it comes in.

    Errors: ValueError that names the argument, before any work. Tensors on another device than the
    CPU go to `ttr.torch.portable`.
    """
    tensors = (
        q, k, v, v_im, log_decay, phase, dt, a, step, importance, log_importance, erase_key,
        erase_gate, bonus, momentum, weight_decay, ridge, features_w, features_b, ln_weight,
        ln_bias, row_bias, cu_seqlens,
    )  # fmt: skip
    text = recipe if type(recipe) is str else text_of(recipe)
    if v is not None and not v.is_cpu and v.device.type != "meta":
        return _elsewhere(text, tensors, state, return_state)
    info = info_of(text)
    initial, entries = ([], -1) if not state else _entries(info, state)
    if torch.is_grad_enabled() and _any_requires_grad(*tensors, *initial):
        y, final = _with_gradients(info, tensors, initial, entries, return_state)
    elif torch.compiler.is_compiling():
        y, final, _ = _library.forward(
            text, initial, entries, *tensors, False, bfloat16_products, None
        )
    else:
        with _below_autograd():
            y, final, _ = _library.forward(
                text, initial, entries, *tensors, False, bfloat16_products, None
            )
    if return_state:
        return y, dict(zip(info.states, final))
    return y


def _entries(info: RecipeInfo, state: State) -> tuple[list[Tensor], int]:
    """The state's tensors in the order of the recipe, and by bits which ones they are."""
    tensors, entries = [], 0
    for i, name in enumerate(info.states):
        tensor = state.get(name)
        if tensor is not None:
            tensors.append(tensor)
            entries |= 1 << i
    known = sum(tensor is not None for tensor in state.values())
    if known != len(tensors):
        unknown = next(n for n, t in state.items() if t is not None and n not in info.states)
        has = ", ".join(info.states) or "empty (nothing is carried)"
        raise ValueError(f"[forward] state must be of the entries {has} but has '{unknown}'")
    return tensors, entries


def _with_gradients(
    info: RecipeInfo,
    tensors: tuple[Tensor | None, ...],
    initial: list[Tensor],
    entries: int,
    return_state: bool,
) -> tuple[Tensor, Any]:
    if not info.gradients:
        _refuse_many(info, tensors, initial)
    if torch.compiler.is_compiling():
        y, final, _ = _library.forward(info.text, initial, entries, *tensors, True, False, None)
        return y, final
    y, *final = _Regress.apply(info, entries, return_state, *tensors, *initial)
    return y, final


def _refuse_many(
    info: RecipeInfo, tensors: tuple[Tensor | None, ...], initial: list[Tensor]
) -> None:
    wanted = [t for t in (*tensors, *initial) if t is not None and t.requires_grad]
    numbers = sum(t.numel() for t in wanted)
    if numbers > MOST_DIFFERENCES:
        raise ValueError(
            f"[forward] requires_grad must be of at most {MOST_DIFFERENCES} numbers, as "
            f"{info.text} has no engine with gradients and is differentiated by central "
            f"differences, but is of {numbers}"
        )


class _Regress(torch.autograd.Function):
    """`forward` with its gradients, without what the dispatcher's own way costs."""

    @staticmethod
    def forward(ctx: Any, info: RecipeInfo, entries: int, return_state: bool, *tensors: Any) -> Any:
        count = len(_library.INPUTS)
        inputs, initial = tensors[:count], tensors[count:]
        with _below_autograd():
            y, final, saved = _library.forward(
                info.text, initial, entries, *inputs, True, False, None
            )
        ctx.set_materialize_grads(False)
        ctx.info, ctx.entries = info, entries
        ctx.save_for_backward(*tensors, saved)
        if not return_state:
            return (y,)
        if True in info.counts:
            ctx.mark_non_differentiable(*(t for t, c in zip(final, info.counts) if c))
        return (y, *final)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Tensor | None, *dstate: Tensor | None) -> Any:
        *tensors, saved = ctx.saved_tensors
        count = len(_library.INPUTS)
        needs = ctx.needs_input_grad[3:]
        with _below_autograd():
            gradients = _library.gradients_of(
                ctx.info.text, tensors[:count], tensors[count:], ctx.entries, dy, dstate, saved,
                needs[:count], needs[count:],
            )  # fmt: skip
        return (None, None, None, *gradients)


def _elsewhere(
    text: str, tensors: tuple[Tensor | None, ...], state: State | None, return_state: bool
) -> Any:
    from . import portable

    given = {n: t for n, t in zip(_library.INPUTS, tensors) if t is not None}
    return portable.regress(text, state=state, return_state=return_state, **given)
