"""One call of a layer whose sequence lies on several ranks."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from .. import _regress
from .._arguments import State
from .._recipes import text_of
from ..portable.recipe import Choices
from ..portable.recipe import choices as choices_of
from ._carry import carry
from ._piece import Piece, names
from ._summaries import fold_of, obstacle, start_of, summary_of


def regress(
    recipe: Any,
    q: Tensor | None = None,
    k: Tensor | None = None,
    v: Tensor | None = None,
    *,
    group: dist.ProcessGroup | None = None,
    state: State | None = None,
    return_state: bool = False,
    **inputs: Tensor | None,
) -> Any:
    """`ttr.torch.regress` of a sequence that is cut over the ranks of `group` (None: all).

        M_in(0) = state,   M_in(r + 1) = T_r(M_in(r)) + S_r,   y = the piece, run from M_in(rank)

    Tensors are those of this rank's piece, [B, T_r, H, D] and so on; lengths T_r may differ, also 0,
    everything else is alike. Inputs without tokens (`ridge`, `bonus`, `features_w`, `a`) and `state`,
    the memory before the first piece, are the same on every rank.

    Returns y of the piece; with `return_state` the pair (y, memory behind this piece). Equal to one
    call on the whole sequence to rounding, gradients too. Of what is the same on every rank, each
    has the part of the gradient that its own piece gives: their sum over the group is the gradient.

    Collective: every rank calls it, in the same order, and backward alike (also where its own y is
    in no loss: `(0 * y).sum()`). Sent by a rank: `summary_bytes` numbers, whatever the length.
    Time: two forward passes of the piece.

    Source: the chunked form of linear recurrences (Blelloch, Prefix sums, 1990), between processes
    as in LASP-2 (arXiv 2502.07563). Errors: ValueError that names the argument, or the reason why a
    recipe's pieces have no summary (`refusal`).
    """
    text = text_of(recipe)
    choices = choices_of(text)
    reason = obstacle(choices)
    if reason is not None:
        raise ValueError(f"[regress] recipe must have a piece's summary but is {text}: {reason}")
    given: dict[str, Any] = {"q": q, "k": k, "v": v, **inputs}
    given = {name: tensor for name, tensor in given.items() if tensor is not None}
    if "cu_seqlens" in given:
        raise ValueError("[regress] cu_seqlens must be absent where a sequence is cut but is given")
    if "v" not in given:
        raise ValueError("[regress] v must be given but is absent")
    piece = _piece(choices, given)
    start = start_of(piece, state or {})
    before = carry(fold_of(choices), start, summary_of(piece), group)
    given["state"] = dict(zip(names(choices), before))
    given["return_state"] = return_state
    return _regress.regress(text, **given)


def refusal(recipe: Any) -> str | None:
    """Why a recipe's sequence cannot be cut over ranks; None where it can."""
    return obstacle(choices_of(text_of(recipe)))


def summary_bytes(
    recipe: Any, *, key_dim: int, value_dim: int, heads: int = 1, batch: int = 1, itemsize: int = 4
) -> tuple[int, int]:
    """What a rank sends to each other one, forward and backward, whatever the length of its piece.

    Per memory, with Dphi = Dk but for feature maps and intercepts:

        recipes                forward                  backward
        Hebbian                Dphi Dv + Dphi           Dphi Dv
        sgd                    Dphi Dv + Dphi^2         Dphi Dv
        least squares          Dphi Dv + Dphi^2 + 1     Dphi Dv + Dphi^2
    """
    choices = choices_of(text_of(recipe))
    reason = obstacle(choices)
    if reason is not None:
        raise ValueError(f"[summary_bytes] recipe must have a piece's summary: {reason}")
    phi = Piece(choices, {"v": torch.empty(0, 0, 0, value_dim)}, key_dim, heads).phi
    axes = {"Dphi": phi, "Dv": value_dim}
    memory = sum(_product(axes[axis] for axis in entry.shape[2:]) for entry in choices.state)
    entries = len(choices.state)
    if choices.family == "sgd":
        transition = (entries * phi) ** 2
    elif choices.family == "least_squares" or choices.importance == "log":
        transition = 1
    elif choices.family == "gated_vector":
        transition = entries * value_dim
    elif choices.decay == "matrix":
        transition = phi * value_dim
    else:
        transition = (2 if choices.phase else 1) * phi
    size = batch * heads * itemsize
    return size * (memory + transition), size * memory


def _product(numbers: Any) -> int:
    result = 1
    for number in numbers:
        result *= int(number)
    return result


def _piece(choices: Choices, given: dict[str, Any]) -> Piece:
    heads, key_dim = 1, 0
    for spec in choices.inputs:
        tensor = given.get(spec.argument)
        if tensor is None:
            continue
        for axes in spec.shapes:
            if len(axes) != tensor.dim():
                continue
            for axis, size in zip(axes, tensor.shape):
                if axis in ("H", "Hk", "Hv"):
                    heads = max(heads, int(size))
                elif axis == "Dk":
                    key_dim = int(size)
    return Piece(choices, given, key_dim or given["v"].shape[-1], heads)
