"""What a piece does to a memory: M_out = T(M_in) + S, from one call of the layer.

Columns of values do not see each other: what a memory does to one it does to all. So the piece runs
from a memory of nothing with some columns more, whose values are 0 and which start as what is wanted
of T: S and T come out side by side, with gradients.

    family                  more columns                T acts by
    hebbian, a decay        1, which starts as ones     a factor of every key channel
    hebbian, decay: matrix  Dv, which start as ones     a factor of every number
    sgd                     Dphi, the identity          a matrix Dphi x Dphi
    sgd with momentum       2 Dphi                      a matrix 2 Dphi x 2 Dphi, of (M, G)
    gated vector            Dv, which start as ones     a factor of every channel
    least squares           none: sums of a Hebbian     one factor of A and B
                            memory of (v, phi(k))

With a phase, factors are complex. A sum of keys (`normalise_sum: sum`) passes as a column of values
does. Under `importance: log` both are divided by the exponential of a running maximum, and T is the sum
of the log decays.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..portable.recipe import Choices
from ._piece import Piece, log_decay, names, wider
from ._sums import ridge_of, sums_of

_REASONS = {
    "kernel_smoother": "its memory is the list of its pairs, which grows with a piece",
    "kernel_regression": "its memory is the list of its pairs, which grows with a piece",
    "kernel_descent": "its memory is the list of its pairs, which grows with a piece",
    "local_polynomial": "its memory is the list of its pairs, which grows with a piece",
    "network": "its network after a piece is no affine function of that before it",
}

#: Decays of which a token has one, the same for all memories or each its own.
_ONE_DECAY = ("none", "constant", "retention", "scalar")


def obstacle(choices: Choices) -> str | None:
    """Why a piece has no summary; None where it has one."""
    if choices.family in _REASONS:
        return _REASONS[choices.family]
    if not choices.causal:
        return "it reads the whole sequence at once and carries nothing"
    if choices.family == "sgd" and choices.preconditioner != "none":
        return "its steps depend on the curvature before a piece, which they change"
    if choices.importance == "log" and choices.decay not in _ONE_DECAY:
        return "the running maximum that it is scaled by fades by more than one number a token"
    if choices.factor == "qr":
        return "its rows are rotated into a triangle, which is no sum of pieces"
    if choices.features == "cosformer":
        return "its features depend on how many tokens were before a piece"
    return None


def start_of(piece: Piece, state: Mapping[str, Tensor | None]) -> list[Tensor]:
    """The memory before the first piece, in the order of `names`; the recipe's where absent."""
    given = [state.get(name) for name in names(piece.choices)]
    return [
        default if tensor is None else tensor
        for tensor, default in zip(given, _defaults(piece))
    ]


def summary_of(piece: Piece) -> list[Tensor]:
    """S in the order of `names`, then T."""
    family, decay = piece.choices.family, piece.choices.decay
    if family == "least_squares":
        return sums_of(piece)
    if family == "sgd":
        return _of_steps(piece)
    if family == "gated_vector":
        return _of_vector(piece)
    if piece.choices.importance == "log":
        final = piece.run(piece.choices.text, {})
        return [*(final[name] for name in names(piece.choices)), log_decay(piece)]
    return _of_matrix_decay(piece) if decay == "matrix" else _of_decay(piece)


def fold_of(choices: Choices) -> Any:
    """(memory before a piece, its summary) -> memory behind it."""
    if choices.family == "sgd":
        return _fold_matrix
    if choices.importance == "log":
        return _fold_maximum
    return _fold_complex if choices.phase else _fold_factor


def _fold_factor(before: Sequence[Tensor], summary: Sequence[Tensor]) -> list[Tensor]:
    *sums, factor = summary
    return [
        s + factor.reshape(factor.shape + (1,) * (m.dim() - factor.dim())) * m
        for m, s in zip(before, sums)
    ]


def _fold_complex(before: Sequence[Tensor], summary: Sequence[Tensor]) -> list[Tensor]:
    real, imaginary = before
    sum_real, sum_imaginary, cos, sin = summary
    if real.dim() > cos.dim():
        cos, sin = cos.unsqueeze(-1), sin.unsqueeze(-1)
    return [
        sum_real + cos * real - sin * imaginary,
        sum_imaginary + sin * real + cos * imaginary,
    ]


def _fold_matrix(before: Sequence[Tensor], summary: Sequence[Tensor]) -> list[Tensor]:
    *sums, matrix = summary
    moved = matrix @ torch.cat(list(before), -2)
    return [s + m for s, m in zip(sums, moved.chunk(len(sums), -2))]


def _fold_maximum(before: Sequence[Tensor], summary: Sequence[Tensor]) -> list[Tensor]:
    """All is divided by exp(m), m the greatest logarithm of a weight so far."""
    *memory, maximum = before
    *sums, own, log_decays = summary
    past = maximum + log_decays
    new = torch.maximum(past, own)
    least = torch.where(new == -math.inf, 0, new)  # nothing was written yet
    folded = _fold_factor(memory, [_scaled(s, own - least) for s in sums] + [(past - least).exp()])
    return [*folded, new]


def _scaled(memory: Tensor, log_factor: Tensor) -> Tensor:
    return memory * log_factor.exp().reshape(log_factor.shape + (1,) * (memory.dim() - 2))


def _defaults(piece: Piece) -> list[Tensor]:
    defaults = []
    axes = {"Dphi": piece.phi, "Dv": piece.value_dim}
    for entry in piece.choices.state:
        if entry.name == "state.a":
            defaults.append(ridge_of(piece))
        elif entry.name == "state.m":
            defaults.append(piece.zeros() - math.inf)
        else:
            defaults.append(piece.zeros(*(axes[axis] for axis in entry.shape[2:])))
    return defaults


# ---- Hebbian memories and vectors ----------------------------------------------------------------


def _of_decay(piece: Piece) -> list[Tensor]:
    width = piece.value_dim
    state = {"state": torch.cat([piece.zeros(piece.phi, width), piece.ones(piece.phi, 1)], -1)}
    if piece.choices.phase:
        state["state.im"] = piece.zeros(piece.phi, width + 1)
    final = piece.run(piece.choices.text, state, v=wider(piece.inputs["v"], 1))
    sums, factors = [], []
    for name in names(piece.choices):
        if name == "state.n":
            sums.append(final[name])
        else:
            sums.append(final[name][..., :width])
            factors.append(final[name][..., width])
    return [*sums, *factors]


def _of_matrix_decay(piece: Piece) -> list[Tensor]:
    width = piece.value_dim
    dt, a = piece.inputs["dt"], piece.inputs["a"]
    start = torch.cat([piece.zeros(piece.phi, width), piece.ones(piece.phi, width)], -1)
    final = piece.run(
        piece.choices.text,
        {"state": start},
        v=wider(piece.inputs["v"], width),
        dt=torch.cat([dt, dt], -1),
        a=torch.cat([a, a], -2),
    )
    return list(torch.split(final["state"], width, -1))


def _of_vector(piece: Piece) -> list[Tensor]:
    width = piece.value_dim
    changed = {"v": wider(piece.inputs["v"], width)}
    if piece.inputs.get("v_im") is not None:
        changed["v_im"] = wider(piece.inputs["v_im"], width)
    for name in ("log_decay", "phase"):
        gate = piece.inputs.get(name)
        if gate is not None and gate.dim() == 4:
            changed[name] = torch.cat([gate, gate], -1)
    state = {"state": torch.cat([piece.zeros(width), piece.ones(width)], -1)}
    if piece.choices.phase:
        state["state.im"] = piece.zeros(2 * width)
    final = piece.run(piece.choices.text, state, **changed)
    parts = [torch.split(final[name], width, -1) for name in names(piece.choices)]
    return [part for half in zip(*parts) for part in half]


# ---- Steps ---------------------------------------------------------------------------------------


def _of_steps(piece: Piece) -> list[Tensor]:
    width, size = piece.value_dim, piece.phi
    entries = names(piece.choices)
    columns = size * len(entries)
    eye = torch.eye(columns, **piece.options).expand(piece.batch, piece.heads, -1, -1)
    state = {
        name: torch.cat([piece.zeros(size, width), rows], -1)
        for name, rows in zip(entries, torch.split(eye, size, -2))
    }
    final = piece.run(piece.choices.text, state, v=wider(piece.inputs["v"], columns))
    sums = [final[name][..., :width] for name in entries]
    return [*sums, torch.cat([final[name][..., width:] for name in entries], -2)]
