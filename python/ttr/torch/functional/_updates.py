"""The gated delta rule of servers: states of many streams in one tensor, taken by index."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .._derivatives import refuse_gradients
from ._delta import _step, _with_norm
from ._recurrent import linear_memory, refuse, wide
from ._rows import by_rows


def fused_recurrent_gated_delta_rule_update(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor | None = None,
    scale: float | None = None,
    initial_state_source: Tensor | None = None,
    initial_state_indices: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    use_qk_l2norm_in_kernel: bool = False,
    disable_state_update: bool = False,
    *,
    state_v_first: bool = False,
    pad_slot_id: int = -1,
) -> Tensor:
    """fused_recurrent_gated_delta_rule of streams whose states are rows of a tensor, which it updates.

    Args:
        q, k: [B, T, H, K]; v: [B, T, HV, V]. g: [B, T, HV], or [B, T, HV, K] for KDA. beta: [B, T, HV];
            None is 1.
        initial_state_source: [rows, HV, K, V], float32 or float64; with ``state_v_first``
            [rows, HV, V, K].
        initial_state_indices: [B], or [N] of packed sequences, int32 or int64: the row of each.
            ``pad_slot_id``: none, the answers are 0.
        cu_seqlens: [N + 1], int32 or int64; packed sequences, B = 1.
        disable_state_update: the states stay as they are.

    Returns:
        o [B, T, HV, V] in q's dtype. No gradients: what requires them raises a RuntimeError. ValueError,
        and nothing written: rows out of range, or equal; a decay above 1.
    """
    function = "fused_recurrent_gated_delta_rule_update"
    if initial_state_source is None or initial_state_indices is None:
        raise ValueError(f"[{function}] initial_state_source and initial_state_indices must be given")
    beta = torch.ones_like(v[..., 0]) if beta is None else beta
    refuse_gradients(function, (q, k, v, g, beta, initial_state_source), "chunk_gated_delta_rule")
    recipe = _with_norm("kda" if g.dim() == 4 else "gated_deltanet", scale, use_qk_l2norm_in_kernel)
    _refuse_growth(function, g, initial_state_indices != pad_slot_id, cu_seqlens)

    def update(rows: Tensor, *inputs: Tensor) -> Tensor:
        """One row of inputs for each row of the states; [1, T, ..] of a packed sequence."""
        return _update(recipe, rows, state_v_first, disable_state_update, *inputs)

    argument, given = f"{function} initial_state_indices", (q, k, v, g, _step(function, beta, v))
    source, indices = initial_state_source, initial_state_indices
    with torch.no_grad():
        if cu_seqlens is None:
            like = v.to(q.dtype)
            return by_rows(argument, indices, pad_slot_id, source, like, given, update)
        bounds, places = cu_seqlens.tolist(), torch.arange(len(cu_seqlens) - 1)
        o = v.new_zeros(v.shape, dtype=q.dtype)

        def sequence(rows: Tensor, place: Tensor) -> Tensor:
            for i, n in enumerate(place.tolist()):
                part = slice(bounds[n], bounds[n + 1])
                o[:, part] = update(rows[i : i + 1], *(t[:, part] for t in given))
            return place

        by_rows(argument, indices, pad_slot_id, source, places, [places], sequence)
        return o


def _refuse_growth(function: str, g: Tensor, is_taken: Tensor, cu_seqlens: Tensor | None) -> None:
    """Before any row is written."""
    if cu_seqlens is not None:
        g, is_taken = g[0], is_taken.repeat_interleave(cu_seqlens.diff())
    if len(g) == len(is_taken) and bool((g[is_taken] > 0).any()):
        raise ValueError(f"[{function}] g must be at most 0 but is {float(g[is_taken].max())}")


def _update(
    recipe: str, rows: Tensor, v_first: bool, keep: bool, q: Tensor, k: Tensor, v: Tensor, *gates: Tensor
) -> Tensor:
    import ttr.torch

    words = {"log_decay": gates[0], "step": gates[1]}
    in_place = q.shape[1] == 1 and not (v_first or keep) and rows.stride(-1) == 1
    if in_place and rows.is_cpu and rows.dtype in (torch.float32, torch.float64):
        o: Tensor = ttr.torch.step_(recipe, {"state": rows}, q, k, v, **words)
        return o.to(q.dtype)
    o, final = linear_memory(recipe, q, k, v, rows, True, None, v_first, **words)
    if not keep and final is not None:
        rows.copy_(final)
    return o


def fused_sigmoid_gating_delta_rule_update(
    A_log: Tensor,
    a: Tensor,
    dt_bias: Tensor,
    softplus_beta: float,
    softplus_threshold: float,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    b: Tensor,
    initial_state_source: Tensor,
    initial_state_indices: Tensor,
    scale: float | None = None,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Tensor | None = None,
    is_kda: bool = False,
    lower_bound: float | None = None,
    disable_state_update: bool = False,
    *,
    state_v_first: bool = False,
    pad_slot_id: int = -1,
) -> Tensor:
    """fused_recurrent_gated_delta_rule_update with its gates: g = -exp(A_log) softplus(a + dt_bias),
    beta = sigmoid(b).

    Args:
        a, b: B T HV numbers; with ``is_kda`` a has B T HV K. A_log: [HV]. dt_bias: [HV], or HV K numbers.
        lower_bound: must be left out.
        Others as there.
    """
    refuse("fused_sigmoid_gating_delta_rule_update", lower_bound=lower_bound)
    shape = (*v.shape[:3], k.shape[-1]) if is_kda else v.shape[:3]
    rate = -wide(A_log).exp().view(-1, 1) if is_kda else -wide(A_log).exp()
    fed = wide(a).reshape(shape) + wide(dt_bias).view(shape[2:])
    return fused_recurrent_gated_delta_rule_update(
        q,
        k,
        v,
        rate * F.softplus(fed, softplus_beta, softplus_threshold),
        torch.sigmoid(wide(b)).reshape(v.shape[:3]),
        scale,
        initial_state_source,
        initial_state_indices,
        cu_seqlens,
        use_qk_l2norm_in_kernel,
        disable_state_update,
        state_v_first=state_v_first,
        pad_slot_id=pad_slot_id,
    )
