"""One chunked form for all linear memories that are written by rank-one steps:

    M~ = decay(M'),   M = M~ + v key^T - (M_ref erase) along^T,   y = M q

A chunk of C rows takes one triangular solve for what its rows erase of each other, and products of
matrices; the state passes from chunk to chunk. With P_e the scores of erase keys and keys, faded
from row to row, and E what each row finds of itself in the memory,

    (1 + P_e) E = erase M_0 + P_k V,   O = q M_0 + P_q V - P_a E

Cost a row and memory: 2 Dk Dv + C (3 Dk + 2 Dv) multiply-adds forward, for a delta rule twice that.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import kernels, linear_attention, step_rule, token_steps
from .decays import ChannelDecay, ComplexDecay, Decay, NoDecay, ScalarDecay, ShrinkingDecay
from .inputs import Call
from .layout import by_token
from .normalise import read_out
from .not_finite import apart
from .operands import Keys, Rows, hebbian_rows, mapped_keys, positions_so_far, sgd_rows

_CHUNK = 64


def run(call: Call) -> tuple[Tensor, dict[str, Tensor]]:
    """y [B, T, max(H, Hq), Dv] and the final state."""
    made = _kernels(call)
    if made is not None:
        keys, rows = _operands(call)
        if step_rule.takes(rows):
            road = linear_attention if rows.erase is None else step_rule
            return _answers(call, keys, rows, *road.run(call, rows, _start(call, rows), made))
    return apart(_run, call)


def _run(call: Call) -> tuple[Tensor, dict[str, Tensor]]:
    choices = call.choices
    keys, rows = _operands(call)
    start = _start(call, rows)
    if token_steps.takes(rows):
        y, state = token_steps.run(rows, start, choices.read)
    else:
        y, state = _pass_chunks(rows, start, choices.read, choices.causal)
    if not choices.causal:
        y = keys.q @ state[..., : keys.q.shape[-1], :]
    return _answers(call, keys, rows, y, state)


def _operands(call: Call) -> tuple[Keys, Rows]:
    keys = mapped_keys(call)
    return keys, sgd_rows(call, keys) if call.choices.family == "sgd" else hebbian_rows(call, keys)


def _answers(
    call: Call, keys: Keys, rows: Rows, y: Tensor, state: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """The outputs and the final state of what rows [B, H, G, R, V] and the last memory say."""
    choices = call.choices
    if choices.causal and choices.rows_per_token > 1:
        place = choices.steps - 1 if choices.read == "after" else 0
        y = y.unflatten(-2, (-1, choices.steps))[..., place, :]
    y = _scaled(call, rows, keys.k, keys.q, y)
    return by_token(read_out(choices, y, _log_scale(call, rows))), _final(call, rows, state)


def _kernels(call: Call) -> Any | None:
    """The kernels for what fades by numbers or by key channels, where they are made for the device."""
    choices = call.choices
    if not choices.causal or choices.phase or choices.momentum or torch.compiler.is_compiling():
        return None
    more = int(choices.normalise_sum != "none")  # the sum of keys is a value more
    return kernels.made_for(call, max(call.sizes["Dphi"], call.sizes["Dv"] + more))


def _scaled(call: Call, rows: Rows, k: Tensor | None, q: Tensor, y: Tensor) -> Tensor:
    """eta times what is read (not the sum of keys), and the bonus of the current token."""
    choices = call.choices
    eta = choices.eta
    if choices.family == "hebbian" and eta != 1:
        width = call.sizes["Dv"]
        y = torch.cat([eta * y[..., :width], y[..., width:]], -1)
    if choices.bonus and choices.causal:
        assert k is not None
        bonus = call.need("bonus")[:, None, None]
        y = y + eta * (bonus * k * q).sum(-1, keepdim=True) * rows.v
    return y


def _log_scale(call: Call, rows: Rows) -> Tensor | None:
    """The running maximum as of when each query reads, [B, H, 1, T, 1]."""
    if rows.maximum is None:
        return None
    if not call.choices.causal:
        return rows.maximum[..., -1:, :]
    return rows.maximum[..., 1:, :] if call.choices.read == "after" else rows.maximum[..., :-1, :]


def _start(call: Call, rows: Rows) -> Tensor:
    """The initial state as one tensor [N, H, 1, Ks, V]: z as a column more, a second state
    below."""
    sizes = call.sizes
    shape = (sizes["N"], sizes["H"], rows.key.shape[-1], sizes["Dv"])
    memory = _or_zeros(call, "state", shape)
    if rows.v.shape[-1] > sizes["Dv"]:
        memory = torch.cat([memory, _or_zeros(call, "state.n", shape[:-1]).unsqueeze(-1)], -1)
    second = (
        "state.im"
        if rows.phase is not None
        else "state.momentum"
        if rows.momentum is not None
        else None
    )
    if second is not None:
        memory = torch.cat([memory, _or_zeros(call, second, shape)], -2)
    return memory.unsqueeze(2)


def _or_zeros(call: Call, name: str, shape: tuple[int, ...]) -> Tensor:
    given = call.initial(name)
    return torch.zeros(shape, dtype=call.work, device=call.device) if given is None else given


def _final(call: Call, rows: Rows, state: Tensor) -> dict[str, Tensor]:
    if not call.choices.causal:
        return {}
    state = state.squeeze(2)
    final = {}
    if rows.phase is not None or rows.momentum is not None:
        state, second = state.chunk(2, -2)
        final["state.im" if rows.phase is not None else "state.momentum"] = second
    width = call.sizes["Dv"]
    final["state"] = state[..., :width]
    if state.shape[-1] > width:
        final["state.n"] = state[..., width]
    if rows.maximum is not None:
        final["state.m"] = rows.maximum[..., 0, -1, 0]
    if rows.curvature is not None:
        final["state.d"] = rows.curvature.squeeze(2)
    if rows.directions is not None:
        final["state.u"] = rows.directions
    if call.choices.features == "cosformer":
        final["state.position"] = positions_so_far(call) + call.sizes["T"]
    return {name: call.stored(name, tensor) for name, tensor in final.items()}


def _pass_chunks(rows: Rows, state: Tensor, read: str, reads: bool) -> tuple[Tensor, Tensor]:
    """All rows: whole chunks together, then what is left."""
    length = rows.v.shape[-2]
    whole = length // _CHUNK * _CHUNK
    outputs = []
    for begin, end, size in ((0, whole, _CHUNK), (whole, length, length - whole)):
        if begin < end:
            y, state = _Chunks(rows, begin, end, size, read).run(state, reads)
            outputs.append(y)
    if not outputs or not reads:
        return rows.v[..., :0, :].expand(*rows.q.shape[:3], 0, rows.v.shape[-1]), state
    return torch.cat(outputs, -2), state


class _Chunks:
    """Chunks of the same size: what does not wait for the state is computed for all of them at
    once."""

    def __init__(self, rows: Rows, begin: int, end: int, size: int, read: str) -> None:
        def cut(x: Tensor) -> Tensor:
            return x[..., begin:end, :].unflatten(-2, (-1, size))

        def maybe(x: Tensor | None) -> Tensor | None:
            return None if x is None else cut(x)

        self._decay = _decay(
            *(maybe(x) for x in (rows.log_decay, rows.phase, rows.shrink, rows.momentum))
        )
        self._q, self._key, self._v = cut(rows.q), cut(rows.key), cut(rows.v)
        self._erase, self._along = maybe(rows.erase), maybe(rows.along)
        self._reference = "before" if rows.undecayed else "decayed"
        self._read = read

    def run(self, state: Tensor, reads: bool) -> tuple[Tensor, Tensor]:
        """[B, H, G, R, V] and the state after the last chunk."""
        decay, key, v = self._decay, self._key, self._v
        along = key if self._along is None else self._along
        innovations = None if self._erase is None else self._innovations(self._erase, along)
        ends, along_ends = decay.to_end(key), None if self._along is None else decay.to_end(along)
        states, erased = [], []
        for n in range(v.shape[-3]):
            states.append(state)
            written, new = v[..., n, :, :], decay.keep(state, n)
            if innovations is not None:
                found, seen = innovations
                e = found[..., n, :, :] + seen[..., n, :, :] @ state
                erased.append(e)
                if along_ends is None:
                    written = written - e
                else:
                    new = new - along_ends[..., n, :, :].transpose(-1, -2) @ e
            state = new + ends[..., n, :, :].transpose(-1, -2) @ written
        if not reads:
            return v, state
        return self._outputs(torch.stack(states, -3), erased, along).flatten(-3, -2), state

    def _innovations(self, erase: Tensor, along: Tensor) -> tuple[Tensor, Tensor]:
        """E = found + seen M_0 for every chunk."""
        decay, at, width = self._decay, self._reference, self._v.shape[-1]
        of_along = decay.scores(erase, along, at)
        of_key = of_along if self._along is None else decay.scores(erase, self._key, at)
        right = torch.cat([of_key @ self._v, decay.to_rows(erase, at)], -1)
        eye = torch.eye(of_along.shape[-1], dtype=right.dtype, device=right.device)
        solved = torch.linalg.solve_triangular(
            eye + of_along, right, upper=False, unitriangular=True
        )
        return solved[..., :width], solved[..., width:]

    def _outputs(self, states: Tensor, erased: list[Tensor], along: Tensor) -> Tensor:
        decay, at, v = self._decay, self._read, self._v
        y = decay.to_rows(self._q, at) @ states
        scores = decay.scores(self._q, self._key, at)
        if not erased:
            return y + scores @ v
        e = torch.stack(erased, -3)
        if self._along is None:
            return y + scores @ (v - e)
        return y + scores @ v - decay.scores(self._q, along, at) @ e


def _decay(
    log_decay: Tensor | None, phase: Tensor | None, shrink: Tensor | None, momentum: Tensor | None
) -> Decay:
    if shrink is not None or momentum is not None:
        return ShrinkingDecay(log_decay, shrink, momentum)
    if log_decay is None:
        return NoDecay()
    if phase is not None:
        return ComplexDecay(log_decay, phase)
    return ScalarDecay(log_decay) if log_decay.shape[-1] == 1 else ChannelDecay(log_decay)
