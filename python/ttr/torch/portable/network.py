"""Networks that are trained while they read, part after part of their mini-batches (TTT, Titans):

    W_t = W_bar - (steps times gradients at W_bar of the mini-batch's tokens up to t),
    y_t = f_{W_t}(q_t)

Tokens of a part pass through the network together, and so do its queries, although each reads
weights of its own: what the tokens before it have written is a sum of outer products, found by
products of queries and keys as in attention, and no weights are formed but those behind the part
(docs/networks.md). Autograd keeps the weights behind sqrt(n) of n parts and computes those between
two of them anew on its way back.

Cost a token and matrix of w numbers: 2 w multiply-adds at the key and its update, 1 or 2 w at the
query, w down; and C (in + out) for what a part of C tokens finds of itself. Tokens of a mini-batch
of one go one after another.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .inputs import Call, fail
from .layout import by_memory, by_token
from .network_function import Between, Network, Parameters
from .network_state import entries, places, start
from .network_steps import Memory, Numbers, steps_of
from .normalise import read_out
from .not_finite import apart
from .operands import mapped_keys, scalars

_LONGEST_PART = 64


class Given(NamedTuple):
    """All that a call gives, a memory after another: queries [M, G, T, D], rows of tokens
    [M, T, D], constants [M, 1, D]. ``rows`` are the row factors [M, mini_batch, 1]."""

    q: Tensor
    k: Tensor
    v: Tensor
    step: Tensor
    momentum: Tensor | None
    shrink: Tensor | None
    ln_weight: Tensor | None
    ln_bias: Tensor | None
    rows: Tensor | None


class Part(NamedTuple):
    """Tokens of one mini-batch, next to each other."""

    q: Tensor
    k: Tensor
    v: Tensor
    numbers: Numbers


def run(call: Call) -> tuple[Tensor, dict[str, Tensor]]:
    """y [B, T, max(H, Hq), Dv] and the final state."""
    sizes, at = call.sizes, places(call)
    if call.choices.residual and sizes["Dk"] != sizes["Dv"]:
        as_long = f"as long as k under residual: true, Dv = Dk = {sizes['Dk']}"
        raise fail("v", as_long, f"Dv = {sizes['Dv']}")
    return apart(lambda call: _run(call, at), call)


def _run(call: Call, at: list[int]) -> tuple[Tensor, dict[str, Tensor]]:
    sizes = call.sizes
    y, final = _memories(call, _given(call), start(call), at)
    rows = (sizes["N"], sizes["H"])
    y = by_token(read_out(call.choices, y.unflatten(0, rows), None))
    state = {name: call.stored(name, x.unflatten(0, rows)) for name, x in final.items()}
    if call.choices.mini_batch > 1:
        ends = [(place + sizes["T"]) % call.choices.mini_batch for place in at]
        state["state.position"] = torch.tensor(ends, device=call.device).view(rows)
    return y, state


def _memories(
    call: Call, given: Given, memory: Memory, at: list[int]
) -> tuple[Tensor, dict[str, Tensor]]:
    """y [M, G, T, Dv] and the state's entries; memories that are at the same place of their
    mini-batches are taken together."""
    groups: dict[int, list[int]] = {}
    for m, place in enumerate(at):
        groups.setdefault(place, []).append(m)
    if len(groups) <= 1:
        y, memory = _Reader(call, given).run(memory._replace(place=next(iter(groups), 0)))
        return y, entries(call, memory)
    outputs, finals, order = [], [], []
    for place, members in groups.items():
        index = torch.tensor(members, device=call.device)
        some = Given._make(None if x is None else x[index] for x in given)
        y, last = _Reader(call, some).run(_chosen(memory, index, place))
        outputs.append(y)
        finals.append(entries(call, last))
        order += members
    back = torch.tensor(order, device=call.device).argsort()
    return torch.cat(outputs)[back], {
        name: torch.cat([final[name] for final in finals])[back] for name in finals[0]
    }


def _chosen(memory: Memory, index: Tensor, place: int) -> Memory:
    def of(parameters: Parameters | None) -> Parameters | None:
        return None if parameters is None else [x[index] for x in parameters]

    weights, anchor = of(memory.weights), of(memory.anchor)
    assert weights is not None and anchor is not None
    return Memory(weights, of(memory.last), anchor, of(memory.squares), place)


class _Reader:
    """Memories that are at the same place of their mini-batches."""

    def __init__(self, call: Call, given: Given) -> None:
        self._choices, self._given = call.choices, given
        self._network = Network(call.choices, given.ln_weight, given.ln_bias)
        self._steps = steps_of(call.choices, given.rows)

    def run(self, memory: Memory) -> tuple[Tensor, Memory]:
        """y [M, G, T, Dv] and the memory behind the last token."""
        parts = self._parts(memory.place)
        together = max(1, math.isqrt(len(parts)))
        outputs = []
        for begin in range(0, len(parts), together):
            some = parts[begin : begin + together]
            if together > 1 and torch.is_grad_enabled():
                y, memory = checkpoint(
                    self._stretch, some, memory, use_reentrant=False, preserve_rng_state=False
                )
            else:
                y, memory = self._stretch(some, memory)
            outputs.append(y)
        if not outputs:
            return self._given.q[..., :1].expand(-1, -1, -1, self._given.v.shape[-1]), memory
        return self._with_unread(torch.cat(outputs, 2)), memory

    def _with_unread(self, y: Tensor) -> Tensor:
        """y, whose gradients are zeros, not absent, for tokens that no query has read yet."""
        if self._choices.read not in ("before", "batch_start"):
            return y
        given = self._given
        unread = (given.k, given.v, given.step, given.momentum, given.shrink, given.rows)
        return y + sum(x[:, :0].sum() for x in unread if x is not None)

    def _parts(self, place: int) -> list[Part]:
        """No part goes over the end of a mini-batch. Tensors are split once: the gradient of every
        slice would be as long as the whole."""
        given, sizes = self._given, self._sizes(place)
        if not sizes:
            return []
        step, momentum, shrink = (
            [None] * len(sizes) if x is None else x.split(sizes, 1)
            for x in (given.step, given.momentum, given.shrink)
        )
        numbers = (Numbers._make(row) for row in zip(step, momentum, shrink))
        rows = (given.q.split(sizes, 2), given.k.split(sizes, 1), given.v.split(sizes, 1))
        return [Part(*row) for row in zip(*rows, numbers)]

    def _sizes(self, place: int) -> list[int]:
        whole = self._choices.read in ("batch_start", "batch_end")
        left, batch, sizes = self._given.v.shape[1], int(self._choices.mini_batch), []
        while left > 0:
            size = min(batch - place, left)
            sizes.append(size if whole else min(size, _LONGEST_PART))
            left, place = left - sizes[-1], (place + sizes[-1]) % batch
        return sizes

    def _stretch(self, parts: list[Part], memory: Memory) -> tuple[Tensor, Memory]:
        outputs = []
        for part in parts:
            y, memory = self._part(part, memory)
            outputs.append(y)
        return torch.cat(outputs, 2), memory

    def _part(self, part: Part, memory: Memory) -> tuple[Tensor, Memory]:
        read, numbers = self._choices.read, part.numbers
        gradients = self._network.gradients(memory.anchor, part.k, part.v)
        new = self._steps.write(memory, numbers, gradients)
        if read in ("before", "after") and part.k.shape[1] > 1:
            between = self._steps.between(memory, numbers, gradients, read == "before")
            return self._read_between(between, part.q), new
        seen = memory if read in ("before", "batch_start") else new
        return self._read(self._weights(seen), part.q), new

    def _weights(self, memory: Memory) -> Parameters:
        """Those that a query reads which reads no token's own."""
        batch_start = self._choices.read == "batch_start"
        return memory.anchor if batch_start else self._steps.now(memory)

    def _read(self, weights: Parameters, q: Tensor) -> Tensor:
        return self._network.apply(weights, q.flatten(1, 2)).unflatten(1, q.shape[1:3])

    def _read_between(self, between: Between, q: Tensor) -> Tensor:
        groups = q.shape[1]
        if groups > 1:  # a token's queries, [G, C], read the same weights
            a, b, c = (
                None if x is None else x.repeat(1, groups, 1)
                for x in (between.a, between.b, between.c)
            )
            assert c is not None
            between = between._replace(a=a, b=b, c=c)
        y = self._network.apply_between(between, q.flatten(1, 2))
        return y.unflatten(1, q.shape[1:3])


def _given(call: Call) -> Given:
    keys, heads = mapped_keys(call), call.sizes["H"]
    step, momentum, decay = (scalars(call, name) for name in ("step", "momentum", "weight_decay"))
    assert keys.k is not None and step is not None
    shrink = None
    if decay is not None:
        shrink = 1 - (step * decay if call.choices.weight_decay == "coupled" else decay)
    return Given(
        keys.q.flatten(0, 1),
        keys.k.flatten(0, 2),
        by_memory(call.need("v"), heads).flatten(0, 2),
        step.flatten(0, 2),
        None if momentum is None else momentum.flatten(0, 2),
        None if shrink is None else shrink.flatten(0, 2),
        _constant(call, "ln_weight"),
        _constant(call, "ln_bias"),
        _row_factors(call),
    )


def _constant(call: Call, name: str) -> Tensor | None:
    """[H, D] becomes [M, 1, D]."""
    x = call.get(name)
    return None if x is None else x.unsqueeze(1).repeat(call.sizes["N"], 1, 1)


def _row_factors(call: Call) -> Tensor | None:
    """max(1 / (i + 1) + row_bias_i, 0), [M, mini_batch, 1]."""
    choices = call.choices
    if choices.row_factor == "one":
        return None
    places = torch.arange(choices.mini_batch, dtype=call.work, device=call.device)
    factors, bias = 1 / (places + 1), call.get("row_bias")
    factors = factors.expand(call.sizes["H"], -1) if bias is None else factors + bias
    return torch.relu(factors).unsqueeze(-1).repeat(call.sizes["N"], 1, 1)
