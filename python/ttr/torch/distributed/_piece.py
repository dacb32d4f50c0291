"""A piece of a sequence: its inputs, and what is asked of them."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .._regress import regress
from ..portable.recipe import Choices, phi_dim

Inputs = dict[str, Any]
State = dict[str, Tensor]


class Piece:
    """The inputs of a piece, by name, and their sizes."""

    def __init__(self, choices: Choices, inputs: Inputs, key_dim: int, heads: int) -> None:
        v = inputs["v"]
        self.choices, self.inputs = choices, inputs
        self.batch, self.value_dim = v.shape[0], v.shape[-1]
        self.heads = heads
        wide = v.dtype == torch.float64
        self.options: dict[str, Any] = {
            "dtype": torch.float64 if wide else torch.float32,
            "device": v.device,
        }
        features = inputs.get("features_w")
        of_map = 0 if features is None else features.shape[-2]
        self.phi = phi_dim(choices, key_dim, of_map)

    def zeros(self, *shape: int) -> Tensor:
        return torch.zeros(self.batch, self.heads, *shape, **self.options)

    def ones(self, *shape: int) -> Tensor:
        return torch.ones(self.batch, self.heads, *shape, **self.options)

    def run(self, recipe: str, state: State, **changed: Tensor) -> State:
        """The state after the piece."""
        given: Inputs = {**self.inputs, **changed}
        _, final = regress(recipe, **given, state=state, return_state=True)
        return final


def names(choices: Choices) -> list[str]:
    """The entries of a state, in their order."""
    return [entry.name for entry in choices.state]


def wider(x: Tensor, columns: int) -> Tensor:
    """Zeros behind the last axis."""
    return torch.nn.functional.pad(x, (0, columns))


def log_decay(piece: Piece) -> Tensor:
    """The sum of the piece's log decays, one a token and memory, [B, H]."""
    choices, tokens = piece.choices, piece.inputs["v"].shape[1]
    if choices.decay == "scalar":
        sums: Tensor = piece.inputs["log_decay"].to(piece.options["dtype"]).sum(1)
        return sums.expand(-1, piece.heads)
    if choices.decay == "retention":
        memories = torch.arange(piece.heads, **piece.options)
        kept = torch.log1p(-torch.exp2(-5 - memories))
        return piece.zeros().add(kept, alpha=tokens)
    return piece.zeros().add(tokens * math.log(choices.decay_factor))
