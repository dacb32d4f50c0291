"""The summary of a piece for least squares: two sums and one decay.

    B = sum w g k v^T,   A = sum w g k k^T,     g the product of the decays since

are the memory of a Hebbian layer, of the values (v, phi(k)).
"""

from __future__ import annotations

import torch
import ttr
from torch import Tensor

from .._regress import regress
from ..portable.normalise import unit
from ..portable.recipe import Choices
from ._piece import Inputs, Piece, log_decay, wider


def sums_of(piece: Piece) -> list[Tensor]:
    """B, A, and the decay of both."""
    choices = piece.choices
    recipe = f"{_decay_text(choices)} | linear | gradient"
    if choices.importance == "input":
        recipe = f"{_decay_text(choices)} x importance(input) | linear | gradient"
    v = piece.inputs["v"].to(piece.options["dtype"])
    phi, v = (_every_head(x, piece.heads) for x in (_mapped_keys(piece), v))
    gates: Inputs = {name: piece.inputs.get(name) for name in ("log_decay", "importance")}
    _, final = regress(recipe, phi, phi, torch.cat([v, phi], -1), return_state=True, **gates)
    b, a = torch.split(final["state"], [piece.value_dim, piece.phi], -1)
    return [b, a, log_decay(piece).exp()]


def _decay_text(choices: Choices) -> str:
    if choices.decay == "none":
        return "uniform"
    return f"decay({choices.decay_factor if choices.decay == 'constant' else choices.decay})"


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


def ridge_of(piece: Piece) -> Tensor:
    """A before the first token: the ridge, where it fades; none on the 1 of an affine memory."""
    choices = piece.choices
    if choices.ridge_kind != "fading":
        return piece.zeros(piece.phi, piece.phi)
    given = piece.inputs.get("ridge")
    if given is None:
        ridge = torch.full((piece.heads, piece.phi), choices.ridge, **piece.options)
    elif given.dim() == 1:
        ridge = given.to(piece.options["dtype"]).unsqueeze(-1).expand(-1, piece.phi)
    else:
        ridge = wider(given.to(piece.options["dtype"]), piece.phi - given.shape[-1])
    if choices.function == "affine":
        ridge = torch.cat([ridge[:, :-1], torch.zeros_like(ridge[:, -1:])], -1)
    return torch.diag_embed(ridge).expand(piece.batch, -1, -1, -1)
