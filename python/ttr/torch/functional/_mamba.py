"""The Mamba package's functions: Mamba-2's chunk scan, Mamba's selective scan, and one token."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .._derivatives import refuse_gradients
from ._recurrent import regress, wide
from ._rows import by_rows

_DTYPES_OF_STATES = (torch.float32, torch.float64)
_DTYPES = (*_DTYPES_OF_STATES, torch.bfloat16)


def _time_step(
    dt: Tensor, bias: Tensor | None, softplus: bool, limit: tuple[float, float] | None = None
) -> Tensor:
    """dt + bias, its softplus, within limits; float32 or wider."""
    dt = wide(dt)
    if bias is not None:
        dt = dt + bias.to(dt.dtype)
    if softplus:
        dt = F.softplus(dt)
    if limit is not None and tuple(limit) != (0.0, float("inf")):
        dt = dt.clamp(*limit)
    return dt


def _skip_and_gate(y: Tensor, x: Tensor, d: Tensor | None, z: Tensor | None) -> Tensor:
    """(y + d x) silu(z)."""
    if d is not None:
        y = y + d.to(y.dtype) * x.to(y.dtype)
    return y if z is None else y * F.silu(z.to(y.dtype))


def mamba_chunk_scan_combined(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    chunk_size: int,
    D: Tensor | None = None,
    z: Tensor | None = None,
    dt_bias: Tensor | None = None,
    initial_states: Tensor | None = None,
    seq_idx: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, float("inf")),
    return_final_states: bool = False,
    return_varlen_states: bool = False,
) -> Tensor | tuple[Tensor, ...]:
    """Mamba-2: S = exp(dt A) S' + dt x B^T, y = (S C + D x) silu(z).

    Args:
        x: [batch, T, H, P]; z: the same or None.
        dt: [batch, T, H]; dt_bias [H] is added, then softplus with ``dt_softplus``, then
            ``dt_limit``.
        A: [H], <= 0. B, C: [batch, T, G, N], G divides H. D: [H] or [H, P].
        chunk_size: not read: what is computed does not depend on it.
        initial_states: [batch, H, P, N]. With ``seq_idx`` a row's first sequence goes on from it.
        seq_idx: [batch, T]; a sequence ends where it changes.
        cu_seqlens, return_varlen_states: with ``seq_idx`` and batch 1, the final state of every
            sequence.

    Returns:
        out [batch, T, H, P] in x's dtype; with ``return_final_states`` also [batch, H, P, N], with
        ``return_varlen_states`` also [sequences, H, P, N].
    """
    if return_varlen_states and (seq_idx is None or x.shape[0] != 1):
        raise ValueError(
            "[mamba_chunk_scan_combined] return_varlen_states must go with seq_idx and a batch of 1"
        )
    dt = _time_step(dt, dt_bias, dt_softplus, dt_limit)
    v = x.to(dt.dtype) * dt.unsqueeze(-1)
    inputs = {"q": C.to(dt.dtype), "k": B.to(dt.dtype), "v": v, "log_decay": dt * A.to(dt.dtype)}
    state = None if initial_states is None else wide(initial_states).transpose(-1, -2).contiguous()
    ends = None if seq_idx is None else ends_of(seq_idx)
    y, states, lasts = _mamba2(inputs, state, ends, x.shape[0])
    if D is not None and D.dim() == 1:
        D = D.unsqueeze(-1)
    out = _skip_and_gate(y, x, D, z).to(x.dtype)
    extra = ((lasts,) if return_final_states else ()) + ((states,) if return_varlen_states else ())
    return (out, *extra) if extra else out


def ends_of(seq_idx: Tensor) -> Tensor:
    """Where the sequences of all rows begin and end, the rows one after another."""
    begins = torch.ones_like(seq_idx, dtype=torch.bool)
    begins[:, 1:] = seq_idx[:, 1:] != seq_idx[:, :-1]
    starts = begins.flatten().nonzero().squeeze(-1)
    return torch.cat([starts, starts.new_tensor([seq_idx.numel()])])


def _mamba2(
    inputs: dict[str, Tensor], state: Tensor | None, ends: Tensor | None, batch: int
) -> tuple[Tensor, Tensor, Tensor]:
    """y, the final states of all sequences and of the rows' last, [.., H, P, N]."""
    held = {} if state is None else {"state": state}
    if ends is None:
        y, final = regress("mamba2", **inputs, state=held, return_state=True)
        states = final["state"].transpose(-1, -2)
        return y, states, states
    length = inputs["v"].shape[1]
    flat = {name: x.flatten(0, 1).unsqueeze(0) for name, x in inputs.items()}
    row_of = ends[:-1] // max(1, length)
    first = torch.cat([row_of.new_ones(1, dtype=torch.bool), row_of[1:] != row_of[:-1]])
    if state is not None:
        held["state"] = torch.where(first[:, None, None, None], state[row_of], 0)
    y, final = regress("mamba2", **flat, state=held, return_state=True, cu_seqlens=ends)
    states = final["state"].transpose(-1, -2)
    last = torch.cat([first[1:], first.new_ones(1)])
    return y.squeeze(0).unflatten(0, (batch, length)), states, states[last]


def selective_scan_fn(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    delta_softplus: bool = False,
    return_last_state: bool = False,
    cu_seqlens: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Mamba, for every channel d:

        S[d, n] = exp(delta_d A_dn) S'[d, n] + delta_d u_d B_n
        y_d = (sum_n S[d, n] C_n + D_d u_d) silu(z_d)

    Args:
        u, delta: [batch, dim, T]; z: the same or None. delta_bias [dim] is added to delta, then
            softplus with ``delta_softplus``.
        A: [dim, N], real and <= 0.
        B, C: [batch, N, T], [batch, G, N, T] with G dividing dim, or [dim, N] for all tokens.
        D: [dim].
        cu_seqlens: [sequences + 1], batch 1.

    Returns:
        out [batch, dim, T] in u's dtype; with ``return_last_state`` also [batch, dim, N], that of
        the last sequence with ``cu_seqlens``. Unlike the package's, it has a gradient.
    """
    if A.is_complex():
        raise ValueError("[selective_scan_fn] A must be real but is complex")
    dt = _time_step(delta.transpose(1, 2), delta_bias, delta_softplus)
    work, dim = dt.dtype, u.shape[1]
    groups = dim if B.dim() == 2 or C.dim() == 2 else max(_groups(B), _groups(C))
    x = u.transpose(1, 2)
    inputs = {
        "q": _by_group(C, x, work),
        "k": _by_group(B, x, work),
        "v": (x.to(work) * dt).unflatten(-1, (groups, -1)),
        "dt": dt.unflatten(-1, (groups, -1)),
        "a": A.to(work).unflatten(0, (groups, -1)),
        "cu_seqlens": cu_seqlens,
    }
    y, final = regress("mamba", **inputs, return_state=True)
    out = _skip_and_gate(y.flatten(2), x, D, None if z is None else z.transpose(1, 2))
    out = out.to(u.dtype).transpose(1, 2)
    if not return_last_state:
        return out
    last = final["state"].transpose(-1, -2).flatten(1, 2)
    return out, last if cu_seqlens is None else last[-1:]


def _groups(b: Tensor) -> int:
    return b.shape[1] if b.dim() == 4 else 1


def _by_group(b: Tensor, x: Tensor, work: torch.dtype) -> Tensor:
    """[batch, T, groups, N]."""
    if b.dim() == 2:
        return b.to(work).expand(*x.shape[:2], *b.shape)
    b = b if b.dim() == 4 else b.unsqueeze(1)
    return b.to(work).permute(0, 3, 1, 2)


def selective_state_update(
    state: Tensor,
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    dt_bias: Tensor | None = None,
    dt_softplus: bool = False,
    state_batch_indices: Tensor | None = None,
    pad_slot_id: int = -1,
) -> Tensor:
    """One token of Mamba or Mamba-2; ``state`` is updated in place.

    Args:
        state: [batch, dim, N] or [batch, H, dim, N], of any strides; with ``state_batch_indices``
            [batch], int32 or int64, any number of rows, of which those are used. ``pad_slot_id``: none,
            and the answer is 0.
        x, dt, z: [batch, dim] or [batch, H, dim]. A: [dim, N] or [H, dim, N].
        B, C: [batch, N] or [batch, G, N]. D, dt_bias: [dim] or [H, dim].

    Returns:
        out, x's shape and dtype. No gradients: what requires them raises a RuntimeError. ValueError, and
        nothing written: rows out of range, or equal.
    """
    sequences = "selective_scan_fn, mamba_chunk_scan_combined"
    refuse_gradients("selective_state_update", (state, x, dt, A, B, C, D, z, dt_bias), sequences)
    if state_batch_indices is not None:

        def by_index(rows: Tensor, x: Tensor, dt: Tensor, B: Tensor, C: Tensor, z: Any) -> Tensor:
            return selective_state_update(rows, x, dt, A, B, C, D, z, dt_bias, dt_softplus)

        argument, inputs = "selective_state_update state_batch_indices", (x, dt, B, C, z)
        return by_rows(argument, state_batch_indices, pad_slot_id, state, x, inputs, by_index)
    heads = state.dim() == 4

    def add(t: Tensor | None) -> Any:
        """[batch, dim] becomes [batch, 1, dim], [dim] becomes [1, dim]."""
        return t if t is None or heads else t.unsqueeze(-2)

    s = state if heads else state.unsqueeze(1)
    b, c = (t if t.dim() == 3 else t.unsqueeze(1) for t in (B, C))
    a = A if heads else A.unsqueeze(0)
    update = _update_by_engine if _has_engine(state, x) else _update
    with torch.no_grad():
        out = update(s, add(x), add(dt), a, b, c, add(D), add(z), add(dt_bias), dt_softplus)
    return out.to(x.dtype) if heads else out.to(x.dtype).squeeze(1)


def _has_engine(*tensors: Tensor) -> bool:
    return all(t.is_cpu and t.dtype in _DTYPES for t in tensors)


def _update(
    rows: Tensor,
    x: Tensor,
    dt: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor | None,
    z: Tensor | None,
    bias: Tensor | None,
    softplus: bool,
) -> Tensor:
    """rows [batch, H, dim, N] after the token x [batch, H, dim]; what it reads."""
    step = _time_step(dt, bias, softplus)
    work = step.dtype
    b, c = (_to_heads(t, rows.shape[1]).to(work) for t in (b, c))
    written = (step * x.to(work)).unsqueeze(-1) * b.unsqueeze(-2)
    new = (step.unsqueeze(-1) * a.to(work)).exp() * rows.to(work) + written
    rows.copy_(new)
    return _skip_and_gate((new @ c.unsqueeze(-1)).squeeze(-1), x, d, z)


def _update_by_engine(
    rows: Tensor,
    x: Tensor,
    dt: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor | None,
    z: Tensor | None,
    bias: Tensor | None,
    softplus: bool,
) -> Tensor:
    """As `_update`. A head of one decay is known by its expanded tensors: that is Mamba-2."""
    import ttr.torch

    whole = _is_expanded(dt, -1) and _is_expanded(a, -1, -2)
    whole = whole and (bias is None or _is_expanded(bias, -1))
    if whole:
        dt, a, bias = dt[..., 0], a[:, 0, 0], None if bias is None else bias[..., 0]
    dt, v = dt.unsqueeze(1), x.unsqueeze(1)
    step = ttr.torch.step_gate(dt, bias) if softplus else _time_step(dt, bias, False)
    inputs = {"q": c.unsqueeze(1).to(step.dtype), "k": b.unsqueeze(1).to(step.dtype)}
    if whole:
        inputs |= {"v": v * step.unsqueeze(-1), "log_decay": step * a}
    else:
        inputs |= {"v": v * step, "dt": step, "a": a}
    memory = rows.transpose(-1, -2)
    is_row = memory.stride(-1) == 1 and memory.dtype in _DTYPES_OF_STATES
    state = memory if is_row else memory.to(step.dtype).contiguous()
    y = ttr.torch.step_("mamba2" if whole else "mamba", {"state": state}, **inputs)
    if not is_row:
        memory.copy_(state)
    return _skip_and_gate(y.squeeze(1), x, d, z)  # refuses nothing: the state is written already


def _is_expanded(t: Tensor, *dims: int) -> bool:
    """One number along these dimensions."""
    return all(t.stride(dim) == 0 or t.shape[dim] == 1 for dim in dims)


def _to_heads(b: Tensor, heads: int) -> Tensor:
    return b.repeat_interleave(heads // b.shape[1], dim=1)
