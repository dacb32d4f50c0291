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
does. Under a running maximum (`stabilised`) M and that sum are divided by its exponential, and T is the
sum of the log decays.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import ttr
from torch import Tensor

from .._library import phi_dim
from .._regress import regress
from ..portable.normalise import unit
from ..portable.recipe import Choices

Inputs = dict[str, Any]
State = dict[str, Tensor]

_REASONS = {
    "kernel_smoother": "its memory is the list of its pairs, which grows with a piece",
    "kernel": "its memory is the list of its pairs, which grows with a piece",
    "polynomial": "its memory is the list of its pairs, which grows with a piece",
    "network": "its network after a piece is no affine function of that before it",
}


#: Decays of which a token has one, the same for all memories or each its own.
_ONE_DECAY = ("none", "constant", "scalar")


def obstacle(choices: Choices) -> str | None:
    """Why a piece has no summary; None where it has one."""
    if choices.family in _REASONS:
        return _REASONS[choices.family]
    if not choices.causal:
        return "it reads the whole sequence at once and carries nothing"
    if choices.family == "sgd" and choices.preconditioner != "none":
        return "its steps depend on the curvature before a piece, which they change"
    if choices.normalise_sum == "stabilised" and choices.decay not in _ONE_DECAY:
        return "the running maximum that it is scaled by fades by more than one number a token"
    if choices.normalise_sum == "sum" and choices.family != "hebbian":
        return "its sum of keys belongs to no Hebbian memory"
    if choices.features == "cosformer":
        return "its features depend on how many tokens were before a piece"
    return None


class Piece:
    """The inputs of a piece, by name, and their sizes."""

    def __init__(self, choices: Choices, inputs: Inputs, key_dim: int, heads: int) -> None:
        v = inputs["v"]
        self.choices, self.inputs = choices, inputs
        self.batch, self.value_dim = v.shape[0], v.shape[-1]
        self.heads = heads
        wide = v.dtype == torch.float64
        self.options = {"dtype": torch.float64 if wide else torch.float32, "device": v.device}
        features = inputs.get("features_w")
        of_map = 0 if features is None else features.shape[-2]
        self.phi = phi_dim(choices.text, key_dim, of_map)

    def zeros(self, *shape: int) -> Tensor:
        return torch.zeros(self.batch, self.heads, *shape, **self.options)

    def ones(self, *shape: int) -> Tensor:
        return torch.ones(self.batch, self.heads, *shape, **self.options)

    def run(self, recipe: str, state: State, **changed: Tensor) -> State:
        """The state after the piece."""
        given: Inputs = {**self.inputs, **changed}
        _, final = regress(recipe, **given, state=state, return_state=True)
        return final


def start_of(piece: Piece, state: Mapping[str, Tensor | None]) -> list[Tensor]:
    """The memory before the first piece, in the order of `names`; the recipe's where absent."""
    given = [state.get(name) for name in names(piece.choices)]
    return [
        default if tensor is None else tensor
        for tensor, default in zip(given, _defaults(piece))
    ]


def names(choices: Choices) -> list[str]:
    return [entry.name for entry in choices.state]


def summary_of(piece: Piece) -> list[Tensor]:
    """S in the order of `names`, then T."""
    family, decay = piece.choices.family, piece.choices.decay
    if family == "least_squares":
        return _of_sums(piece)
    if family == "sgd":
        return _of_steps(piece)
    if family == "gated_vector":
        return _of_vector(piece)
    if piece.choices.normalise_sum == "stabilised":
        final = piece.run(piece.choices.text, {})
        return [*(final[name] for name in names(piece.choices)), _log_decay(piece)]
    return _of_matrix_decay(piece) if decay == "matrix" else _of_decay(piece)


def fold_of(choices: Choices) -> Any:
    """(memory before a piece, its summary) -> memory behind it."""
    if choices.family == "sgd":
        return _fold_matrix
    if choices.normalise_sum == "stabilised":
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
    """M and its sum of keys are divided by exp(m), m the greatest logarithm of a weight so far."""
    memory, keys, maximum = before
    sums, of_keys, own, log_decay = summary
    past = maximum + log_decay
    new = torch.maximum(past, own)
    least = torch.where(new == -math.inf, 0, new)  # nothing was written yet
    keep, add = (past - least).exp().unsqueeze(-1), (own - least).exp().unsqueeze(-1)
    return [
        keep.unsqueeze(-1) * memory + add.unsqueeze(-1) * sums,
        keep * keys + add * of_keys,
        new,
    ]


def _defaults(piece: Piece) -> list[Tensor]:
    defaults = []
    axes = {"Dphi": piece.phi, "Dv": piece.value_dim}
    for entry in piece.choices.state:
        if entry.name == "state.a":
            defaults.append(_ridge(piece))
        elif entry.name == "state.m":
            defaults.append(piece.zeros() - math.inf)
        else:
            defaults.append(piece.zeros(*(axes[axis] for axis in entry.shape[2:])))
    return defaults


# ---- Hebbian memories and vectors ----------------------------------------------------------------


def _wider(x: Tensor, columns: int) -> Tensor:
    """Zeros behind the last axis."""
    return torch.nn.functional.pad(x, (0, columns))


def _of_decay(piece: Piece) -> list[Tensor]:
    width = piece.value_dim
    state = {"state": torch.cat([piece.zeros(piece.phi, width), piece.ones(piece.phi, 1)], -1)}
    if piece.choices.phase:
        state["state.im"] = piece.zeros(piece.phi, width + 1)
    final = piece.run(piece.choices.text, state, v=_wider(piece.inputs["v"], 1))
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
        v=_wider(piece.inputs["v"], width),
        dt=torch.cat([dt, dt], -1),
        a=torch.cat([a, a], -2),
    )
    return list(torch.split(final["state"], width, -1))


def _of_vector(piece: Piece) -> list[Tensor]:
    width = piece.value_dim
    changed = {"v": _wider(piece.inputs["v"], width)}
    if piece.inputs.get("v_im") is not None:
        changed["v_im"] = _wider(piece.inputs["v_im"], width)
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
    final = piece.run(piece.choices.text, state, v=_wider(piece.inputs["v"], columns))
    sums = [final[name][..., :width] for name in entries]
    return [*sums, torch.cat([final[name][..., width:] for name in entries], -2)]


# ---- Least squares -------------------------------------------------------------------------------


def _of_sums(piece: Piece) -> list[Tensor]:
    """B and A are the memories of v and of phi(k), and one decay is that of both."""
    choices = piece.choices
    recipe = f"{_decay_text(choices)} | linear | gradient"
    if choices.importance == "input":
        recipe = f"{_decay_text(choices)} x importance(input) | linear | gradient"
    v = piece.inputs["v"].to(piece.options["dtype"])
    phi, v = (_every_head(x, piece.heads) for x in (_mapped_keys(piece), v))
    gates: Inputs = {name: piece.inputs.get(name) for name in ("log_decay", "importance")}
    _, final = regress(recipe, phi, phi, torch.cat([v, phi], -1), return_state=True, **gates)
    b, a = torch.split(final["state"], [piece.value_dim, piece.phi], -1)
    return [b, a, _log_decay(piece).exp()]


def _decay_text(choices: Choices) -> str:
    if choices.decay == "none":
        return "uniform"
    return f"decay({choices.decay_factor if choices.decay == 'constant' else choices.decay})"


def _log_decay(piece: Piece) -> Tensor:
    """The sum of the piece's log decays, one a token and memory, [B, H]."""
    choices, tokens = piece.choices, piece.inputs["v"].shape[1]
    if choices.decay == "scalar":
        sums = piece.inputs["log_decay"].to(piece.options["dtype"]).sum(1)
        return sums.expand(-1, piece.heads)
    return piece.zeros() + tokens * math.log(choices.decay_factor)


def _mapped_keys(piece: Piece) -> Tensor:
    """phi(k) [B, T, Hk, Dphi]: what a memory that holds the identity answers."""
    choices, k = piece.choices, piece.inputs["k"].to(piece.options["dtype"])
    if choices.features != "none":
        eye = torch.eye(piece.phi, **piece.options).expand(piece.batch, k.shape[2], -1, -1)
        weights: Inputs = {name: piece.inputs.get(name) for name in ("features_w", "features_b")}
        nothing = k.new_zeros(*k.shape[:-1], piece.phi)
        return regress(_features_text(choices), k, k, nothing, state={"state": eye}, **weights)
    if choices.normalise_qk:
        k = unit(k)
    return torch.nn.functional.pad(k, (0, 1), value=1.0) if choices.function == "affine" else k


def _features_text(choices: Choices) -> str:
    whole = ttr.Recipe(choices.text).to_dict()
    reading = {"normalise_qk": choices.normalise_qk}
    return str(ttr.Recipe({"function": whole["function"], "reading": reading}))


def _every_head(x: Tensor, heads: int) -> Tensor:
    """[B, T, h, D] as memories read it: memory m head m // (H / h)."""
    return x if x.shape[2] == heads else x.repeat_interleave(heads // x.shape[2], 2)


def _ridge(piece: Piece) -> Tensor:
    """A before the first token: the ridge, where it fades; none on the 1 of an affine memory."""
    choices = piece.choices
    plain = choices.optimizer == "gradient" and choices.preconditioner == "none"
    if plain or choices.ridge_kind != "fading":
        return piece.zeros(piece.phi, piece.phi)
    given = piece.inputs.get("ridge")
    if given is None:
        ridge = torch.full((piece.heads, piece.phi), choices.ridge, **piece.options)
    elif given.dim() == 1:
        ridge = given.to(piece.options["dtype"]).unsqueeze(-1).expand(-1, piece.phi)
    else:
        ridge = _wider(given.to(piece.options["dtype"]), piece.phi - given.shape[-1])
    if choices.function == "affine":
        ridge = torch.cat([ridge[:, :-1], torch.zeros_like(ridge[:, -1:])], -1)
    return torch.diag_embed(ridge).expand(piece.batch, -1, -1, -1)
