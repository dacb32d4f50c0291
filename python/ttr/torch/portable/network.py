"""Networks that are trained while they read, a part of a mini-batch after another (TTT, Titans):

    W_t = W_bar - (steps times gradients at W_bar of the mini-batch's tokens up to t),   y_t = f_{W_t}(q_t)

Tokens of a part pass through the network together, and so do its queries, although each reads weights
of its own: what the tokens before it have written is a sum of outer products, found by products of
queries and keys as in attention, and no weights are formed but those behind the part (docs/networks.md).
The backward pass has the weights of some parts and computes the others anew: of n parts about sqrt(n),
and as many again while it goes through the parts between two of them.

Cost a token and matrix of w numbers: 2 w multiply-adds at the key and its update, 1 or 2 w at the query
and w down, C (Dk + Dv) for what a part of C tokens finds of itself.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy
import torch
import ttr
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .inputs import Call, fail
from .layout import by_memory, by_token
from .network_function import Between, Network, Parameters
from .network_steps import Memory, Numbers, steps_of
from .normalise import read_out
from .operands import mapped_keys, scalars
from .recipe import Choices

_LONGEST_PART = 64


class Given(NamedTuple):
    """All that a call gives, a memory after another: queries [M, G, T, D], rows of tokens [M, T, D],
    constants [M, 1, D]. ``rows`` are the row factors [M, mini_batch, 1]."""

    q: Tensor
    k: Tensor
    v: Tensor
    step: Tensor
    momentum: Tensor | None
    shrink: Tensor | None
    ln_weight: Tensor | None
    ln_bias: Tensor | None
    rows: Tensor | None


def run(call: Call) -> tuple[Tensor, dict[str, Tensor]]:
    """y [B, T, max(H, Hq), Dv] and the final state."""
    sizes, places = call.sizes, _places(call)
    y, final = _memories(call, _given(call), _start(call), places)
    rows = (sizes["N"], sizes["H"])
    y = by_token(read_out(call.choices, y.unflatten(0, rows), None))
    if not call.choices.causal:
        return y, {}
    state = {name: call.stored(name, x.unflatten(0, rows)) for name, x in final.items()}
    if call.choices.mini_batch > 1:
        ends = [(place + sizes["T"]) % call.choices.mini_batch for place in places]
        state["state.position"] = torch.tensor(ends, device=call.device).view(rows)
    return y, state


def _memories(
    call: Call, given: Given, memory: Memory, places: list[int]
) -> tuple[Tensor, dict[str, Tensor]]:
    """y [M, G, T, Dv] and the state's entries; memories that are at the same place of their
    mini-batches are taken together."""
    groups: dict[int, list[int]] = {}
    for m, place in enumerate(places):
        groups.setdefault(place, []).append(m)
    if len(groups) <= 1:
        y, memory = _Reader(call, given).run(memory._replace(place=next(iter(groups), 0)))
        return y, _entries(call, memory)
    outputs, finals, order = [], [], []
    for place, members in groups.items():
        index = torch.tensor(members, device=call.device)
        some = Given(*(None if x is None else x[index] for x in given))
        y, last = _Reader(call, some).run(_chosen(memory, index, place))
        outputs.append(y)
        finals.append(_entries(call, last))
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
        length, reads = self._given.v.shape[1], self._choices.causal
        parts = self._parts(memory.place, length)
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
        if not reads:
            return self._read(self._weights(memory), 0, length), memory
        if not outputs:
            return self._given.q[..., :1].expand(-1, -1, -1, self._given.v.shape[-1]), memory
        return torch.cat(outputs, 2), memory

    def _parts(self, place: int, length: int) -> list[tuple[int, int]]:
        """Bounds of parts, none of which goes over the end of a mini-batch."""
        whole = not self._choices.causal or self._choices.read in ("batch_start", "batch_end")
        parts, begin, batch = [], 0, int(self._choices.mini_batch)
        while begin < length:
            size = min(batch - place, length - begin)
            size = size if whole else min(size, _LONGEST_PART)
            parts.append((begin, begin + size))
            begin, place = begin + size, (place + size) % batch
        return parts

    def _stretch(self, parts: list[tuple[int, int]], memory: Memory) -> tuple[Tensor, Memory]:
        outputs = []
        for begin, end in parts:
            y, memory = self._part(begin, end, memory)
            outputs.append(y)
        return torch.cat(outputs, 2), memory

    def _part(self, begin: int, end: int, memory: Memory) -> tuple[Tensor, Memory]:
        given, read = self._given, self._choices.read
        numbers = Numbers(
            *(
                None if x is None else x[:, begin:end]
                for x in (given.step, given.momentum, given.shrink)
            )
        )
        k, v = given.k[:, begin:end], given.v[:, begin:end]
        gradients = self._network.gradients(memory.anchor, k, v)
        new = self._steps.write(memory, numbers, gradients)
        if not self._choices.causal:
            return given.q[:, :, :0], new
        if read in ("before", "after") and end - begin > 1:
            between = self._steps.between(memory, numbers, gradients, read == "before")
            return self._read_between(between, begin, end), new
        seen = memory if read in ("before", "batch_start") else new
        return self._read(self._weights(seen), begin, end), new

    def _weights(self, memory: Memory) -> Parameters:
        """Those that a query reads which reads no token's own."""
        batch_start = self._choices.read == "batch_start"
        return memory.anchor if batch_start else self._steps.now(memory)

    def _read(self, weights: Parameters, begin: int, end: int) -> Tensor:
        q = self._given.q[:, :, begin:end]
        return self._network.apply(weights, q.flatten(1, 2)).unflatten(1, q.shape[1:3])

    def _read_between(self, between: Between, begin: int, end: int) -> Tensor:
        q = self._given.q[:, :, begin:end]
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
    choices, heads, keys = call.choices, call.sizes["H"], mapped_keys(call)
    step, momentum, decay = (scalars(call, name) for name in ("step", "momentum", "weight_decay"))
    assert keys.k is not None and step is not None
    shrink = None
    if decay is not None:
        shrink = 1 - (step * decay if choices.weight_decay == "coupled" else decay)
    k, v = keys.k, by_memory(call.need("v"), heads)
    k, v, *numbers = (
        None if x is None else x.flatten(0, 2) for x in (k, v, step, momentum, shrink)
    )
    assert k is not None and v is not None and numbers[0] is not None
    return Given(
        keys.q.flatten(0, 1),
        k,
        v,
        numbers[0],
        numbers[1],
        numbers[2],
        *(_constant(call, call.get(name)) for name in ("ln_weight", "ln_bias")),
        _row_factors(call),
    )


def _constant(call: Call, x: Tensor | None) -> Tensor | None:
    """[H, D] becomes [M, 1, D]."""
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


def _places(call: Call) -> list[int]:
    """Tokens of its mini-batch so far, of each memory."""
    given, most = call.state.get("state.position"), int(call.choices.mini_batch) - 1
    if given is None:
        for name in call.state:
            if name.startswith(("state.anchor_", "state.g_")):
                raise fail("state['state.position']", f"given with {name}", "missing")
        return [0] * (call.sizes["N"] * call.sizes["H"])
    if given.dtype != torch.int64:
        raise fail("state['state.position']", "int64", str(given.dtype))
    places = [int(place) for place in given.flatten().tolist()]
    for place in places:
        if not 0 <= place <= most:
            raise fail("state['state.position']", f"a whole number from 0 to {most}", str(place))
    return places


def _names(choices: Choices) -> list[str]:
    """w1, b1, w2, ..."""
    kinds = "wb" if choices.bias else "w"
    return [f"{kind}{layer + 1}" for layer in range(choices.depth) for kind in kinds]


def _start(call: Call) -> Memory:
    """From the state; weights that it lacks are the recipe's start, anchors the weights."""

    def found(prefix: str) -> Parameters | None:
        entries = [call.initial(f"state.{prefix}{name}") for name in names]
        if all(x is None for x in entries):
            return None
        filled = (torch.zeros_like(w) if x is None else _rows(x) for x, w in zip(entries, weights))
        return list(filled)

    names = _names(call.choices)
    weights = [_rows(x) for x in _start_weights(call, names)]
    last = found("s_")
    if (sums := found("g_")) is not None:
        last = [-x for x in sums]
    anchors = (call.initial(f"state.anchor_{name}") for name in names)
    anchor = [w if x is None else _rows(x) for x, w in zip(anchors, weights)]
    return Memory(weights, last, anchor, found("squares_"), 0)


def _rows(entry: Tensor) -> Tensor:
    """[N, H, in, out] or [N, H, out] becomes [M, in, out] or [M, 1, out]."""
    return (entry if entry.dim() == 4 else entry.unsqueeze(2)).flatten(0, 1)


def _start_weights(call: Call, names: list[str]) -> list[Tensor]:
    given = [call.initial(f"state.{name}") for name in names]
    if all(x is not None for x in given):
        return [x for x in given if x is not None]
    drawn = _drawn(call.choices.text, *(call.sizes[axis] for axis in ("H", "Dk", "Dv")))
    like = {"dtype": call.work, "device": call.device}
    count = call.sizes["N"]
    return [
        torch.tensor(drawn[f"state.{name}"], **like).expand(count, *drawn[f"state.{name}"].shape[1:])
        if x is None
        else x
        for x, name in zip(given, names)
    ]


@functools.lru_cache(maxsize=16)
def _drawn(text: str, heads: int, key_dim: int, value_dim: int) -> dict[str, Any]:
    """The recipe's start: what a call without tokens leaves."""
    widths = {"Dk": key_dim, "Dv": value_dim}
    empty = {
        spec["keyword"]: numpy.zeros([{"B": 1, "T": 0}.get(axis, widths.get(axis, heads)) for axis in spec["shapes"][0]])
        for spec in ttr.input_specs(text)
        if spec["required"]
    }
    _, state = ttr.Layer(text).forward(**empty)
    return state


def _entries(call: Call, memory: Memory) -> dict[str, Tensor]:
    """What is kept, by the names of the state: [M, in, out] or [M, out]."""
    choices, batches = call.choices, call.choices.mini_batch > 1
    kept: dict[str, Parameters | None] = {"": memory.weights}
    if choices.momentum:
        kept["s_"] = memory.last
    if choices.adapt != "none":
        kept["squares_"] = memory.squares
    elif batches and (choices.momentum or choices.weight_decay != "none"):
        kept["anchor_"] = memory.anchor
    elif batches:
        kept["g_"] = None if memory.last is None else [-x for x in memory.last]
    found = {}
    for prefix, parameters in kept.items():
        for n, name in enumerate(_names(choices)):
            weight = memory.weights[n]
            entry = torch.zeros_like(weight) if parameters is None else parameters[n]
            found[f"state.{prefix}{name}"] = entry.squeeze(1) if name[0] == "b" else entry
    return found
