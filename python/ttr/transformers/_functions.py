"""Ours, under the names that modelling modules call: the original's parameters and contract.

Each gives what the original would, or a `str`: the reason why the original has to. Whatever an
operator refuses by a ValueError goes there, too, before anything was written.

What the contracts have in common: memories sum in float32 (ours in float64 where values are that),
and states are float32. Packed sequences come as `cu_seqlens`, as the `cu_seq_lens_q` that models
hand on, or as the numbers of tokens' sequences, `seq_idx`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ttr.torch import cu_seqlens_of, regress, short_conv, short_conv_, skip_gate, step_, step_gate
from ttr.torch.functional import selective_state_update

_DTYPES = frozenset({torch.float32, torch.bfloat16, torch.float64})
_SILU: dict[str | None, bool] = {None: False, "silu": True, "swish": True}
_PACKED = ("cu_seqlens", "cu_seq_lens_q", "seq_idx")


def _obstacle(x: Tensor) -> str | None:
    """Why no operator takes a tensor like x."""
    if not x.is_cpu:
        return "not on the CPU"
    return None if x.dtype in _DTYPES else str(x.dtype).removeprefix("torch.")


def _needs_gradients(*tensors: Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def is_packed(kwargs: dict[str, Any]) -> bool:
    return any(kwargs.get(name) is not None for name in _PACKED)


def _bounds(kwargs: dict[str, Any]) -> Tensor | None:
    """Where packed sequences begin and end, [N + 1]."""
    given = (kwargs[name] for name in _PACKED if kwargs.get(name) is not None)
    bounds: Tensor | None = next(given, None)
    if bounds is None or bounds.dim() == 1 and kwargs.get("seq_idx") is not bounds:
        return bounds
    return cu_seqlens_of(bounds)


# ---- The delta rules ---------------------------------------------------------------------------


def _text(recipe: str, norm: bool) -> str:
    return f"{recipe}{{scale: rsqrt_dk, normalise_qk: {'true' if norm else 'false'}}}"


def _chunked(recipe: str) -> Callable[..., Any]:
    def chunked(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        g: Tensor,
        beta: Tensor,
        chunk_size: int = 64,
        initial_state: Tensor | None = None,
        output_final_state: bool = False,
        use_qk_l2norm_in_kernel: bool = False,
        **kwargs: Any,
    ) -> Any:
        """(output [B, T, Hv, Dv] in the query's dtype, the state [B, Hv, Dk, Dv] or None)."""
        if obstacle := _obstacle(value):
            return obstacle
        output, final = regress(
            _text(recipe, use_qk_l2norm_in_kernel),
            query,
            key,
            value,
            log_decay=g,
            step=beta,
            cu_seqlens=_bounds(kwargs),
            state=None if initial_state is None else {"state": initial_state.float()},
            return_state=True,
        )
        return output.to(query.dtype), final["state"].float() if output_final_state else None

    return chunked


def _recurrent(recipe: str) -> Callable[..., Any]:
    sequence = _chunked(recipe)

    def recurrent(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        g: Tensor,
        beta: Tensor,
        initial_state: Tensor | None = None,
        output_final_state: bool = False,
        use_qk_l2norm_in_kernel: bool = False,
        **kwargs: Any,
    ) -> Any:
        """The same. One token without gradients goes into the given state, which is returned: the
        cache that it comes from then copies it onto itself."""
        if (
            query.shape[1] != 1
            or initial_state is None
            or initial_state.dtype != torch.float32
            or is_packed(kwargs)
            or _needs_gradients(query, key, value, g, beta, initial_state)
        ):
            state = {"initial_state": initial_state, "output_final_state": output_final_state}
            norm = {"use_qk_l2norm_in_kernel": use_qk_l2norm_in_kernel}
            return sequence(query, key, value, g, beta, **state, **norm, **kwargs)
        if obstacle := _obstacle(value):
            return obstacle
        text, memory = _text(recipe, use_qk_l2norm_in_kernel), {"state": initial_state}
        output = step_(text, memory, query, key, value, log_decay=g, step=beta)
        return output.to(query.dtype), initial_state if output_final_state else None

    return recurrent


# ---- Mamba-2 and Mamba -------------------------------------------------------------------------


def _step(
    dt: Tensor, bias: Tensor | None, softplus: bool, limits: tuple[float, float] | None = None
) -> Tensor:
    """How far tokens step, float32 or wider."""
    low, high = limits or (0.0, float("inf"))
    if softplus:
        return step_gate(dt, bias, low=low, high=high)
    dt = dt if dt.dtype == torch.float64 else dt.float()
    dt = dt if bias is None else dt + bias
    return dt.clamp(low, high) if limits else dt


def _rows(state: Tensor | None) -> dict[str, Tensor] | None:
    """A state [.., Dv, Dk] as the engines have it."""
    return None if state is None else {"state": state.float().transpose(-1, -2).contiguous()}


def mamba2_chunk_scan(
    hidden_states: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    chunk_size: int,
    D: Tensor | None = None,
    dt_bias: Tensor | None = None,
    initial_states: Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, float("inf")),
    return_final_states: bool = False,
    **kwargs: Any,
) -> Any:
    """Output [B, T, H, P] in float32 of bfloat16, too, and the state [B, H, P, N], a view of
    [B, H, N, P]; the last sequence's where they are packed."""
    x = hidden_states
    if obstacle := _obstacle(x):
        return obstacle
    step = _step(dt, dt_bias, dt_softplus, dt_limit)
    bounds = _bounds(kwargs)
    x = x.to(step.dtype)
    y, final = regress(
        "mamba2{importance: input}",
        C.to(step.dtype),
        B.to(step.dtype),
        x,
        log_decay=step * A,
        importance=step,
        cu_seqlens=bounds,
        state=_rows(initial_states),
        return_state=True,
    )
    if D is not None:  # a pass over y, in place where nothing is to be differentiated
        y = skip_gate(y, x, D) if _needs_gradients(y, x, D) else y.addcmul_(x, D.unsqueeze(-1))
    if not return_final_states:
        return y
    state = final["state"].float().transpose(-1, -2)
    return y, state if bounds is None else state[-1:]


def mamba2_selective_state_update(
    state: Tensor,
    hidden_states: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    dt_bias: Tensor | None = None,
    dt_softplus: bool = False,
    z: Tensor | None = None,
    **kwargs: Any,
) -> Any:
    """One token, into the state."""
    if obstacle := _obstacle(hidden_states):
        return obstacle
    if _needs_gradients(state, hidden_states, dt, A, B, C, D, dt_bias, z):
        return "gradients of what is updated in place"
    return selective_state_update(state, hidden_states, dt, A, B, C, D, z, dt_bias, dt_softplus)


def mamba_selective_scan(
    hidden_states: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    delta_softplus: bool = False,
    return_last_state: bool = False,
    use_mambapy: bool = False,
    use_associative_scan: bool = False,
    **kwargs: Any,
) -> Any:
    """Output [B, C, T], a view of [B, T, C], and the state [B, C, N], a view of [B, N, C]. As the
    original it begins at zeros."""
    x = hidden_states
    if obstacle := _obstacle(x):
        return obstacle

    def tokens(t: Tensor) -> Tensor:
        return t.transpose(1, 2).unsqueeze(2)  # [B, T, 1, channels]

    bias = None if delta_bias is None else delta_bias.unsqueeze(0)
    step = _step(tokens(dt), bias, delta_softplus)
    y, final = regress(
        "mamba",
        tokens(C).to(step.dtype),
        tokens(B).to(step.dtype),
        tokens(x) * step,
        dt=step,
        a=A.unsqueeze(0),
        return_state=True,
    )
    if D is not None or z is not None:
        weight = None if D is None else D.unsqueeze(0)
        skipped = None if D is None else tokens(x)
        y = skip_gate(y, skipped, weight, None if z is None else tokens(z))
    y = y.squeeze(2).transpose(1, 2)
    return (y, final["state"].float().squeeze(1).transpose(1, 2)) if return_last_state else y


# ---- The short convolution ---------------------------------------------------------------------


def causal_conv1d_fn(
    hidden_states: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
    **kwargs: Any,
) -> Any:
    """Output [B, C, T], a view of [B, T, C]."""
    if obstacle := _obstacle(hidden_states):
        return obstacle
    if activation not in _SILU:
        return f"activation {activation}"
    bounds, silu = _bounds(kwargs), _SILU[activation]
    rows = hidden_states.transpose(1, 2)
    out: Tensor = short_conv(rows, weight, bias, cu_seqlens=bounds, silu=silu)
    return out.transpose(1, 2)


def causal_conv1d_update(
    hidden_states: Tensor,
    conv_state: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
) -> Any:
    """A token or more, into the state."""
    if obstacle := _obstacle(hidden_states):
        return obstacle
    if activation not in _SILU:
        return f"activation {activation}"
    if _needs_gradients(hidden_states, conv_state, weight, bias):
        return "gradients of what is updated in place"
    state, rows = conv_state.transpose(1, 2), hidden_states.transpose(1, 2)
    return short_conv_(state, rows, weight, bias, silu=_SILU[activation]).transpose(1, 2)


#: By the names that modelling modules have for them.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "torch_chunk_gated_delta_rule": _chunked("gated_deltanet"),
    "torch_recurrent_gated_delta_rule": _recurrent("gated_deltanet"),
    "chunk_kimi_delta_attention": _chunked("kda"),
    "recurrent_kimi_delta_attention": _recurrent("kda"),
    "mamba2_chunk_scan": mamba2_chunk_scan,
    "mamba2_selective_state_update": mamba2_selective_state_update,
    "mamba_selective_scan": mamba_selective_scan,
    "mamba_selective_state_update": mamba2_selective_state_update,
    "causal_conv1d_fn": causal_conv1d_fn,
    "causal_conv1d_update": causal_conv1d_update,
}

#: Scans to which their modules pass no bounds of packed sequences.
WITHOUT_BOUNDS = frozenset({"mamba_selective_scan"})
