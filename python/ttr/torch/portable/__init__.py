"""Recipes in chunks of PyTorch's own operators: any device, gradients by autograd.

The second road beside the operators of ttr.torch: the same inputs and states, and all recipes but a few
that are refused by name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from . import (
    fast_weights,
    gpu_library,
    kernel_descent,
    kernel_dictionary,
    kernel_regression,
    kernel_smoother,
    kernels,
    least_squares,
    local_polynomial,
    network,
    pair_bias,
    recurrences,
)
from .inputs import Call, gather, is_constant
from .recipe import INPUTS
from .recipe import choices as _choices
from .weightless import without_weightless

__all__ = ["regress"]


def regress(
    recipe: Any,
    q: Tensor | None = None,
    k: Tensor | None = None,
    v: Tensor | None = None,
    *,
    state: Mapping[str, Tensor | None] | None = None,
    return_state: bool = False,
    **inputs: Tensor | None,
) -> Tensor | tuple[Tensor, dict[str, Tensor]]:
    """y_t = m_t(q_t), m_t the regression of the recipe over the pairs up to t.

    Args:
        recipe: what ttr.Recipe takes, or one.
        q, k, v: [B, T, Hq, Dk], [B, T, Hk, Dk], [B, T, Hv, Dv]; float32, float64 or bfloat16.
        state: the initial state, by the names that ``ttr.state_specs(recipe)`` gives; what is
            missing or None has the recipe's start.
        return_state: also return the final state.
        inputs: the recipe's other inputs by name (``features_w`` for ``features.w``).

    Returns:
        y [B, T, max(H, Hq), Dv] in v's dtype; with ``return_state`` also the final state, each
        entry in the dtype of the initial one, else float64 where v is, float32 otherwise. Sums are
        float32, or float64 where v or the state is.

    Raises:
        ValueError: for inputs that do not fit the recipe, and for a recipe that no road takes
            here. The text names the argument or the choice.
    """
    found = _choices(recipe)
    call = without_weightless(gather(found, {"q": q, "k": k, "v": v, **inputs}, state))
    with torch.autocast(call.device.type, enabled=False):  # sums have the types that they come in
        y, final = _run(call)
    y = y.to(call.tensors["v"].dtype)
    return (y, final) if return_state else y


def _run(call: Call) -> tuple[Tensor, dict[str, Tensor]]:
    kernel = gpu_library.road(call)
    if kernel is not None:
        return kernel(call)
    _check_road(call)
    pair_bias.check_columns(call)
    if is_constant(call):
        made = kernels.of_token(call)
        if made is not None:
            state = {name: held.clone() for name, held in call.state.items()}
            return made.run(dataclasses.replace(call, state=state)), state
    if call.sequences is None:
        return _road(call)
    together = least_squares.run_packed(call) if call.choices.family == "least_squares" else None
    return _packed(call) if together is None else together


def _road(call: Call) -> tuple[Tensor, dict[str, Tensor]]:
    family = call.choices.family
    if family == "gated_vector":
        return recurrences.run_vector(call)
    if family == "least_squares":
        return least_squares.run(call)
    if family == "network":
        return network.run(call)
    if family == "kernel_smoother":
        return kernel_smoother.run(call)
    if family == "kernel_regression":
        return (kernel_dictionary if call.choices.budget else kernel_regression).run(call)
    if family == "kernel_descent":
        descends = call.choices.optimizer == "gradient"
        return (kernel_descent if descends else kernel_regression).run(call)
    if family == "local_polynomial":
        return local_polynomial.run(call)
    if call.choices.decay == "matrix":
        return recurrences.run_matrix(call)
    return fast_weights.run(call)


def _check_road(call: Call) -> None:
    family = call.choices.family
    reason = None
    if family == "least_squares":
        reason = least_squares.obstacle(call)
    elif family == "gated_vector" or call.choices.decay == "matrix":
        reason = recurrences.obstacle(call)
    if reason is None and call.choices.unknown is not None:
        reason = f"{call.choices.unknown} is not known there"
    for name in call.tensors:
        if reason is None and name not in INPUTS:
            reason = f"the input {name} is not known there"
    if reason is not None:
        raise ValueError(f"[regress] {call.choices.text} has no form on {call.device}: {reason}")


def _packed(call: Call) -> tuple[Tensor, dict[str, Tensor]]:
    """Sequences one after another, each with its row of the state."""
    assert call.sequences is not None
    outputs, finals = [], []
    for n, (begin, end) in enumerate(zip(call.sequences, call.sequences[1:])):
        y, final = _road(_part(call, n, begin, end))
        outputs.append(y)
        finals.append(final)
    state = {name: _stacked([final[name] for final in finals]) for name in finals[0]}
    return torch.cat(outputs, 1), state


def _stacked(rows: list[Tensor]) -> Tensor:
    """One tensor of all rows; of kept pairs, [1, S, H, ...], with padding behind shorter lists."""
    most = max(row.shape[1] for row in rows)
    padded = [
        row
        if row.shape[1] == most
        else torch.cat([row, row.new_zeros(1, most - row.shape[1], *row.shape[2:])], 1)
        for row in rows
    ]
    return torch.cat(padded)


def _part(call: Call, n: int, begin: int, end: int) -> Call:
    rows = call.choices.rows_per_token
    tensors = dict(call.tensors)
    tensors.pop("cu_seqlens")
    for spec in call.choices.inputs:
        tensor = tensors.get(spec.name)
        if tensor is None or len(spec.shapes[0]) < 2:
            continue
        steps = {"T": 1, "T n": rows}.get(spec.shapes[0][1])
        if steps is not None:
            tensors[spec.name] = tensor[:, begin * steps : end * steps]
    state = {name: tensor[n : n + 1] for name, tensor in call.state.items()}
    sizes = {**call.sizes, "T": end - begin, "T n": (end - begin) * rows, "N": 1}
    return Call(call.choices, tensors, state, sizes, call.work)
