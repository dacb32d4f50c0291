"""Room for kept pairs: rows of a state behind those that it holds."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor

from ._arguments import State, all_entries
from ._recipes import RecipeInfo, info_of, text_of


def reserve_pairs(recipe: Any, state: State, tokens: int) -> dict[str, Tensor]:
    """`state` with room for `tokens` more, so that `step_` writes them in place.

    Where it has room its own tensors come back. Else the entries that keep pairs are copies of
    twice their size at least; those of a window have room for as many tokens as there are with twice
    its pairs. A recipe that keeps no pairs has room always. ValueError: an entry that is absent.
    """
    info = info_of(text_of(recipe))
    entries = dict(zip(info.states, all_entries("reserve_pairs", info, state)))
    if room_for_pairs(info, entries) >= tokens:
        return entries
    rows = entries["state.k"].shape[1]
    larger = max(2 * rows, held_pairs(entries) + tokens)
    if info.window > 0:
        larger = min(larger, 2 * info.window)
    return {
        name: _with_rows(entries[name], larger) if "S" in axes else entries[name]
        for name, axes in zip(info.states, info.state_axes)
    }


def room_for_pairs(info: RecipeInfo, entries: dict[str, Tensor]) -> int:
    """How many tokens a state takes without growing. Two windows are room for all: when they are
    full, the latest pairs move to the front."""
    if not info.keeps_pairs:
        return sys.maxsize
    rows = entries["state.k"].shape[1]
    if 0 < 2 * info.window <= rows:
        return sys.maxsize
    return int(rows - held_pairs(entries))


def held_pairs(entries: dict[str, Tensor]) -> int:
    """The most that a memory holds."""
    length = entries["state.length"]
    return int(length.max()) if length.numel() else 0


def _with_rows(entry: Tensor, rows: int) -> Tensor:
    more = entry.new_zeros(entry.shape[0], rows - entry.shape[1], *entry.shape[2:])
    return torch.cat([entry, more], 1)
