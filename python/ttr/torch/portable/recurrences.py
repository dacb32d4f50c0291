"""Memories that fade entry by entry: gated vectors (LRU, HGRN, RG-LRU) and a matrix (Mamba).

    h_t = g_t (.) h_{t-1} + w_t (.) v_t,   y = eta Re h
    S_t = exp(dt_t a) (.) S_{t-1} + k_t v_t^T,   y = eta S_t^T q_t

Both are first-order recurrences of their entries, scanned in chunks.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .inputs import Call
from .layout import by_memory, by_token
from .normalise import read_out
from .not_finite import apart
from .operands import log_decay_rows, mapped_keys, root_complement, scalars, stabilised
from .scans import chunked_linear_scan, linear_scan

_MATRIX_CHUNK = 32


def obstacle(call: Call) -> str | None:
    """What of the recipe these forms do not take; None where they take all."""
    choices = call.choices
    matrix = choices.decay == "matrix"
    known = ("none", "input", "log") if matrix else ("none", "input", "complement", "root_complement")
    if choices.importance not in known:
        return f"importance: {choices.importance} beside decay: {choices.decay}"
    for name in ("normalise_sum", "phase", "bonus") if matrix else ("normalise_sum",):
        value = getattr(choices, name)
        if value not in ("none", False):
            return f"{name}: {str(value).lower()} beside decay: {choices.decay}"
    return None


def run_vector(call: Call) -> tuple[Tensor, dict[str, Tensor]]:
    """y [B, T, H, D] and the final state of a gated vector."""
    return apart(_run_vector, call)


def _run_vector(call: Call) -> tuple[Tensor, dict[str, Tensor]]:
    choices, sizes = call.choices, call.sizes
    v = by_memory(call.need("v"), sizes["H"])
    factors, terms = _vector_factors(call, v), v
    if choices.phase:
        v_im = call.get("v_im")
        im = torch.zeros_like(v) if v_im is None else by_memory(v_im, sizes["H"])
        terms = torch.complex(v, im)
    weight = _vector_weight(call)
    terms = weight * terms
    start = _vector_start(call, terms)
    h, last = chunked_linear_scan(factors.expand_as(terms), terms, start)
    if choices.read == "before":
        h = torch.cat([start.unsqueeze(-2), h], -2)[..., :-1, :]
    y = read_out(choices, choices.eta * (h.real if choices.phase else h), None)
    last = last.squeeze(2)
    final = {"state": last.real, "state.im": last.imag} if choices.phase else {"state": last}
    return by_token(y), {name: call.stored(name, x) for name, x in final.items()}


def _vector_factors(call: Call, v: Tensor) -> Tensor:
    g = log_decay_rows(call)
    factors = torch.ones_like(v) if g is None else g.exp()
    if not call.choices.phase:
        return factors
    phase = by_memory(call.need("phase"), call.sizes["H"])
    return torch.complex(factors * phase.cos(), factors * phase.sin())


def _vector_weight(call: Call) -> Tensor | float:
    importance = call.choices.importance
    if importance in ("complement", "root_complement"):
        g = log_decay_rows(call)
        assert g is not None
        return -torch.expm1(g) if importance == "complement" else root_complement(g)
    weight = scalars(call, "importance")
    return 1.0 if weight is None else weight


def _vector_start(call: Call, terms: Tensor) -> Tensor:
    shape = (call.sizes["N"], call.sizes["H"], call.sizes["Dv"])
    re, im = (call.initial(name) for name in ("state", "state.im"))
    re = torch.zeros(shape, dtype=call.work, device=call.device) if re is None else re
    if terms.is_complex():
        re = torch.complex(re, torch.zeros_like(re) if im is None else im)
    return re.unsqueeze(2)


def run_matrix(call: Call) -> tuple[Tensor, dict[str, Tensor]]:
    """y [B, T, max(H, Hq), Dv] and the final state of a memory with a decay for every entry.

    A chunk's entries, [C, Dk, Dv] a memory, are there once at a time: the backward pass computes
    them anew.
    """
    return apart(_run_matrix, call)


def _run_matrix(call: Call) -> tuple[Tensor, dict[str, Tensor]]:
    choices, sizes = call.choices, call.sizes
    keys = mapped_keys(call)
    weight = scalars(call, "importance")
    assert keys.k is not None
    k = keys.k if weight is None else weight * keys.k
    maximum, fading = None, torch.zeros_like(k[..., :1])
    if choices.importance == "log":
        maximum, weight, fading = stabilised(call, None)
        k = weight * keys.k
    v, dt = by_memory(call.need("v"), sizes["H"]), by_memory(call.need("dt"), sizes["H"])
    a = call.need("a").transpose(-1, -2)[:, None]  # [H, 1, Dk, Dv]
    state = call.initial("state")
    if state is None:
        state = torch.zeros(
            sizes["N"], sizes["H"], sizes["Dk"], sizes["Dv"], dtype=call.work, device=call.device
        )
    state, outputs = state.unsqueeze(2), []
    before = choices.read == "before"
    for begin in range(0, sizes["T"], _MATRIX_CHUNK):
        part = (x[..., begin : begin + _MATRIX_CHUNK, :] for x in (keys.q, k, v, dt, fading))
        y, state = checkpoint(_matrix_chunk, *part, a, state, before, use_reentrant=False)
        outputs.append(y)
    if not choices.causal:
        y = keys.q @ state
    else:
        y = torch.cat(outputs, -2) if outputs else keys.q[..., :0] @ state[..., :0, :]
    final = {"state": state.squeeze(2)} if choices.causal else {}
    if maximum is not None:
        final |= {"state.m": maximum[..., 0, -1, 0]} if choices.causal else {}
        places = slice(-1, None) if not choices.causal else slice(None, -1) if before else slice(1, None)
        maximum = maximum[..., places, :]
    final = {name: call.stored(name, x) for name, x in final.items()}
    return by_token(read_out(choices, choices.eta * y, maximum)), final


def _matrix_chunk(
    q: Tensor, k: Tensor, v: Tensor, dt: Tensor, fading: Tensor, a: Tensor, state: Tensor, before: bool
) -> tuple[Tensor, Tensor]:
    shape = (*dt.shape[:-1], *a.shape[-2:])
    factors = (dt.unsqueeze(-2) * a.unsqueeze(2) + fading.unsqueeze(-1)).exp()
    terms = k.unsqueeze(-1) * v.unsqueeze(-2)
    local, products = linear_scan(factors.flatten(-2), terms.flatten(-2))
    entries = local.view(shape) + products.view(shape) * state.unsqueeze(-3)
    last = entries[..., -1, :, :]
    if before:
        entries = torch.cat([state.unsqueeze(-3), entries], -3)[..., :-1, :, :]
    return (q.unsqueeze(-2) @ entries).squeeze(-2), last
