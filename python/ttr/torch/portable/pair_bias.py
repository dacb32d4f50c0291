"""What a recipe adds to the logarithm of a pair's weight for each query: numbers that are given, or a
function of both places.

    input      column s of the query's row         block     0 within a block of E tokens, else -inf
    distance   -|t - s| / E                        prefix    0 for s <= t or s < E, else -inf
    power      -exponent log(1 + |t - s| / E)

t is the place of the query, s that of the pair, counted from the first pair of the state; E is the extent.
-inf hides a pair, whatever it holds.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .inputs import Call, fail
from .layout import queries_by_memory

if TYPE_CHECKING:
    from .kept_pairs import Pairs


def check_columns(call: Call) -> None:
    """Every pair that a query may see has a column."""
    rows = call.tensors.get("pair_bias")
    if rows is None:
        return
    sizes, held = call.sizes, call.state.get("state.length")
    if held is None:
        kept = call.state.get("state.k")
        held = torch.full((sizes["N"],), 0 if kept is None else kept.shape[1])
    most = held.reshape(sizes["N"], -1).amax(-1).tolist() if held.numel() else [0] * sizes["N"]
    ends = call.sequences or [0, sizes["T"]]
    added = [end - begin for begin, end in zip(ends, ends[1:])]
    pairs = max((h + a for h, a in zip(most, added if call.sequences else added * sizes["N"])), default=0)
    if rows.shape[3] < pairs:
        must = f"[B,T,Hq,S] with a column for each of S = {pairs} pairs that the call sees"
        raise fail("pair_bias", must, f"of S = {rows.shape[3]}")


def by_block(call: Call, size: int) -> list[Call]:
    """The call of each block of ``size`` tokens: with the rows of the bias that are its own. Split once,
    they get their gradients in one piece."""
    rows, tokens = call.tensors.get("pair_bias"), call.sizes["T"]
    if rows is None or size >= tokens:
        return [call] * -(-tokens // size)
    parts = rows.split(size, 1)
    return [dataclasses.replace(call, tensors={**call.tensors, "pair_bias": part}) for part in parts]


def of_pairs(call: Call, pairs: Pairs, tokens: Tensor, first: int, last: int) -> Tensor | None:
    """[1 or N, 1 or H, C, 1 or G, p]: of the tokens [C, 1] of a block's call and the pairs ``first`` to
    ``last``; None where nothing is added."""
    kind = call.choices.pair_bias
    if kind == "none":
        return None
    if kind == "input":
        return _given(call, pairs, first, last)
    place = pairs.place[..., None, first:last]
    extent = call.choices.extent
    if kind in ("distance", "power"):
        distance = (tokens - place).abs().to(call.work) / extent
        bias = -distance if kind == "distance" else -call.choices.exponent * distance.log1p()
        return bias.unsqueeze(3)
    before = 0 if pairs.lengths is None else pairs.lengths[..., None, None]
    t, s = (tokens + before).double(), (place + before).double()
    seen = (t / extent).floor() == (s / extent).floor() if kind == "block" else (s <= t) | (s < extent)
    return torch.where(seen, 0, -torch.inf).to(call.work).unsqueeze(3)


def _given(call: Call, pairs: Pairs, first: int, last: int) -> Tensor:
    rows = queries_by_memory(call.tensors["pair_bias"], call.sizes["H"]).transpose(2, 3)
    if pairs.lengths is None:
        return rows[..., first:last].to(call.work)
    number = torch.arange(first, last, device=rows.device)
    behind = number - pairs.held + pairs.lengths.unsqueeze(-1)
    column = torch.where(number < pairs.held, number, behind).clamp(max=rows.shape[-1] - 1)
    index = column[:, :, None, None].expand(*rows.shape[:4], -1)
    return rows.gather(-1, index).to(call.work)
