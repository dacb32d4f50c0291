"""Memories whose state is the list of their pairs: pairs, weights, and which of them a token sees.

    w_i = importance_i prod_{i < j <= t} g_j        a factor g of 0 forgets what is older

Pairs of the state come first, then those of the call. A pair's place counts from the call's first
token, so that those of the state stand at -length .. -1 and padding behind everything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from . import pair_bias
from .inputs import Call, fail
from .layout import by_memory, queries_by_memory
from .normalise import unit
from .operands import log_decay_rows

#: A finite logarithm below it does what -inf does (src/core/forgets_all.h).
_LOG_OF_NOTHING = -745.13321910194122
#: Numbers of the largest array that a block of tokens may form on a CPU; elsewhere four times as many.
_BLOCK_NUMBERS = 1 << 23


class Pairs(NamedTuple):
    """P pairs of every memory, and what weighs them.

    k [N, H, P, Dk], v [N, H, P, Dv], place [1 or N, 1 or H, P]. ``held`` of the P are rows of the
    initial state, ``lengths`` [N, H] of which are pairs. log_weight [N, H, P] is that of a pair as
    it was written, ``factor`` is 1 but for an importance of 0, which has a gradient, too; faded [N, H, T + 1]
    sums log decays over the tokens so far (float64), resets counts those that forget all. None where
    nothing weighs.
    """

    k: Tensor
    v: Tensor
    place: Tensor
    held: int
    lengths: Tensor | None
    log_weight: Tensor | None
    factor: Tensor | None
    faded: Tensor | None
    resets: Tensor | None


def queries(call: Call) -> Tensor:
    """[N, H, T, G, Dk], G the queries of a token that read one memory."""
    q = queries_by_memory(call.need("q"), call.sizes["H"])
    return (unit(q) if call.choices.normalise_qk else q).transpose(2, 3)


def pairs_of(call: Call) -> Pairs:
    """The pairs of the initial state and of the call."""
    heads, tokens = call.sizes["H"], call.sizes["T"]
    k, v = (by_memory(call.need(name), heads).squeeze(2) for name in ("k", "v"))
    k = unit(k) if call.choices.normalise_qk else k
    k, v = _as_stored(call, "state.k", k), _as_stored(call, "state.v", v)
    log_weight, factor = _importance(call, k)
    place = torch.arange(tokens, device=call.device).expand(1, 1, tokens)
    held, lengths = 0, None
    if call.state:
        before = _held(call)
        held, lengths = before.k.shape[2], before.lengths
        place = torch.cat([before.place, place.expand(*before.place.shape[:2], tokens)], -1)
        k, v = torch.cat([before.k, k], 2), torch.cat([before.v, v], 2)
        if log_weight is not None:
            log_weight = torch.cat([before.log_weight, log_weight], -1)
        if factor is not None:
            factor = torch.cat([torch.ones_like(before.log_weight), factor], -1)
    return Pairs(k, v, place, held, lengths, log_weight, factor, *_fading(call))


class _Held(NamedTuple):
    k: Tensor
    v: Tensor
    log_weight: Tensor
    place: Tensor
    lengths: Tensor


def _held(call: Call) -> _Held:
    """The state's pairs; padding is 0."""
    rows = _checked_rows(call)
    lengths = held_lengths(call, rows)
    number = torch.arange(rows, device=call.device)
    there = number < lengths.unsqueeze(-1)
    place = torch.where(there, number - lengths.unsqueeze(-1), 1 << 62)
    log_weight = call.initial("state.log_weight")
    if log_weight is None:
        log_weight = torch.zeros(there.shape, dtype=call.work, device=call.device)
    else:
        log_weight = torch.where(there, log_weight.transpose(1, 2), 0)
    taken = there & (log_weight != -torch.inf)  # a pair without weight may hold NaN
    k, v = (
        torch.where(taken.unsqueeze(-1), call.state[name].to(call.work).transpose(1, 2), 0)
        for name in ("state.k", "state.v")
    )
    return _Held(k, v, log_weight, place, lengths)


def _checked_rows(call: Call) -> int:
    """S, the rows of the state's pairs."""
    for name in ("state.k", "state.v"):
        if name not in call.state:
            raise fail(f"state[{name!r}]", f"given with {next(iter(call.state))}", "missing")
    rows = call.state["state.k"].shape[1]
    for name in ("state.v", "state.log_weight"):
        if name in call.state and call.state[name].shape[1] != rows:
            given = str(call.state[name].shape[1])
            raise fail(f"state[{name!r}]", f"of S = {rows} rows", given)
    return rows


def held_lengths(call: Call, rows: int) -> Tensor:
    """[N, H]: how many of the state's rows are pairs (int64)."""
    lengths = call.state.get("state.length")
    if lengths is None:
        shape = (call.sizes["N"], call.sizes["H"])
        return torch.full(shape, rows, dtype=torch.int64, device=call.device)
    return lengths.to(torch.int64).clamp(0, rows)


def _as_stored(call: Call, name: str, x: Tensor) -> Tensor:
    """x rounded to the narrower type of the state that is to keep it; the gradient is that of x."""
    given = call.state.get(name)
    if given is None or given.dtype not in (torch.bfloat16, torch.float16):
        return x
    return x + (x.to(given.dtype).to(x.dtype) - x).detach()


def _importance(call: Call, k: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """[N, H, T]: log-weights as pairs are written, and factors beside them."""
    kind, heads = call.choices.importance, call.sizes["H"]
    if kind == "none":
        return (None if call.choices.decay == "none" else torch.zeros_like(k[..., 0])), None
    weight = call.get("log_importance" if kind == "log" else "importance")
    if weight is None:
        return torch.zeros_like(k[..., 0]), None
    weight = by_memory(weight, heads).squeeze(2)
    if kind == "log":
        return weight, None
    nothing = weight == 0
    return torch.where(nothing, 1, weight).log(), torch.where(nothing, weight, 1)


def _fading(call: Call) -> tuple[Tensor | None, Tensor | None]:
    g = log_decay_rows(call)
    if g is None:
        return None, None
    g = torch.nn.functional.pad(g.squeeze(2).squeeze(-1).double(), (1, 0))
    all_gone = g < _LOG_OF_NOTHING
    return torch.where(all_gone, 0, g).cumsum(-1), all_gone.cumsum(-1)


class VisibleRange(NamedTuple):
    """What the tokens ``begin`` to ``end`` see: of the pairs ``first`` to ``last`` those of which ``seen``
    [1 or N, 1 or H, C, p] says so, with the weights exp(log_weight) factor, [N, H, C or 1, p] or None, and
    with exp(bias) [1 or N, 1 or H, C, 1 or G, p] for each of a token's queries; a bias of -inf hides a pair.
    """

    begin: int
    end: int
    first: int
    last: int
    seen: Tensor
    log_weight: Tensor | None
    factor: Tensor | None
    bias: Tensor | None


def visible_range(call: Call, pairs: Pairs, begin: int, end: int) -> VisibleRange:
    """What a block of tokens sees; ``call`` is the block's (`pair_bias.by_block`)."""
    choices = call.choices
    first, last = 0, pairs.k.shape[2]
    places = last_read(call, begin, end)
    if choices.causal:
        last = pairs.held + end
        if choices.window and begin > choices.window:
            first = pairs.held + begin - choices.window
    place = pairs.place[..., None, first:last]
    seen = place <= places
    if choices.window:
        seen = seen & (place > places - choices.window)
    log_weight = pairs.log_weight
    if log_weight is not None:
        log_weight = log_weight[..., None, first:last]
        if pairs.faded is not None and pairs.resets is not None:
            at = places.squeeze(-1) + 1
            born = written_by(pairs, first, last)
            seen = seen & (pairs.resets[..., at, None] == pairs.resets[..., None, born])
            fading = pairs.faded[..., at, None] - pairs.faded[..., None, born]
            log_weight = log_weight + fading.to(log_weight.dtype)
        seen = seen & (log_weight != -torch.inf)
    factor = None if pairs.factor is None else pairs.factor[..., None, first:last]
    own = torch.arange(begin, end, device=call.device).unsqueeze(-1)
    bias = pair_bias.of_pairs(call, pairs, own, first, last)
    return VisibleRange(begin, end, first, last, seen, log_weight, factor, bias)


def last_read(call: Call, begin: int, end: int) -> Tensor:
    """[C, 1]: the place of the last pair that is written when each token reads."""
    own = torch.arange(begin, end, device=call.device).unsqueeze(-1)
    if not call.choices.causal:
        return torch.full_like(own, call.sizes["T"] - 1)
    return own - int(call.choices.read == "before")


def written_by(pairs: Pairs, first: int, last: int) -> Tensor:
    """[p]: the tokens of the call at whose end each pair was written; 0 for those of the state."""
    number = torch.arange(first, last, device=pairs.k.device)
    return (number - pairs.held + 1).clamp(min=0)


def block_of(call: Call, pairs: Pairs, numbers: int, more: int = 0) -> int:
    """How many tokens a block has, where each takes so many numbers a query and pair, and ``more`` a
    query."""
    count, window, tokens = pairs.k.shape[2], call.choices.window, call.sizes["T"]
    group = max(1, call.sizes["Hq"] // call.sizes["H"])
    most = max(window, 16) if window else tokens
    count = min(count, 2 * most) if window else count
    queries = call.sizes["N"] * call.sizes["H"] * group
    room = _BLOCK_NUMBERS if call.device.type == "cpu" else 4 * _BLOCK_NUMBERS
    return max(1, min(most, room // max(1, queries * (count * numbers + more))))


def by_blocks(
    answers: Callable[[Call, Pairs, Tensor, int, int], Tensor],
    call: Call,
    pairs: Pairs,
    q: Tensor,
    size: int,
) -> Tensor:
    """[N, H, T, G, Dv]: ``answers`` to blocks of queries [N, H, C, G, Dk], the tokens begin to end. What
    a block forms is formed anew in the backward pass."""
    tokens = q.shape[2]
    outputs = []
    for begin, part in zip(range(0, tokens, size), pair_bias.by_block(call, size)):
        end = min(begin + size, tokens)
        block = (part, pairs, q[:, :, begin:end], begin, end)
        if size < tokens:
            y = checkpoint(answers, *block, use_reentrant=False, preserve_rng_state=False)
        else:
            y = answers(*block)
        outputs.append(y)
    return torch.cat(outputs, 2) if outputs else no_answers(pairs, q)


def no_answers(pairs: Pairs, q: Tensor) -> Tensor:
    """[N, H, 0, G, Dv] of no tokens."""
    return q[..., :1].expand(*q.shape[:-1], pairs.v.shape[-1])


def final_state(call: Call, pairs: Pairs) -> dict[str, Tensor]:
    """The latest pairs of all, as many as a state holds."""
    choices, tokens = call.choices, call.sizes["T"]
    if not choices.causal:
        return {}
    log_weight = _last_weights(pairs)
    kept: dict[str, Tensor] = {"state.k": pairs.k, "state.v": pairs.v}
    if log_weight is not None:
        kept["state.log_weight"] = log_weight
    before = pairs.lengths
    if before is None:
        before = torch.zeros(pairs.k.shape[:2], dtype=torch.int64, device=call.device)
    longest = 0 if pairs.lengths is None or not before.numel() else int(before.max())
    rows = _rows_after(pairs.held, longest, tokens, choices.window)
    capacity = rows if rows >= choices.window else 2 * choices.window
    lengths = _lengths_after(before, capacity, tokens, choices.window)
    if rows == pairs.k.shape[2] and pairs.lengths is None:
        final = kept
    else:
        source, padding = _latest(before, lengths, rows, pairs.held, tokens)
        final = {name: _taken(x, source, padding) for name, x in kept.items()}
    final = {n: call.stored(n, x.transpose(1, 2).to(call.work)) for n, x in final.items()}
    return {**final, "state.length": lengths}


def _last_weights(pairs: Pairs) -> Tensor | None:
    """Log-weights after the last token; of what has no weight -inf, which does not move."""
    log_weight = pairs.log_weight
    if log_weight is None:
        return None
    gone = log_weight == -torch.inf
    if pairs.factor is not None:
        gone = gone | (pairs.factor == 0)
    if pairs.faded is not None and pairs.resets is not None:
        born = written_by(pairs, 0, pairs.k.shape[2])
        gone = gone | (pairs.resets[..., -1:] != pairs.resets[..., born])
        fading = pairs.faded[..., -1:] - pairs.faded[..., born]
        log_weight = log_weight + fading.to(log_weight.dtype)
    return torch.where(gone, -torch.inf, log_weight)


def _rows_after(rows: int, held: int, added: int, window: int) -> int:
    """Rows of a state that has ``rows`` and holds so many pairs, as ``added`` more come: where they
    are too few, twice as many at least, up to two windows (src/layer/pair_room.cc)."""
    wanted = held + added
    if window and added:
        wanted = min(wanted, max(held, 2 * window))
    if rows >= wanted:
        return rows
    return max(wanted, min(2 * rows, 2 * window) if window else 2 * rows)


def _lengths_after(held: Tensor, capacity: int, added: int, window: int) -> Tensor:
    """Pairs held after ``added`` more (src/core/pair_rows.h)."""
    most = min(capacity, 2 * window)
    if window == 0 or added == 0:
        return held + added
    more = held.clamp(max=most) + added - most - 1
    return torch.where(held + added <= most, held + added, window + more % (most - window + 1))


def _latest(
    before: Tensor, after: Tensor, rows: int, held: int, added: int
) -> tuple[Tensor, Tensor]:
    """[N, H, rows]: where among all pairs each of the rows comes from, and which are padding."""
    row = torch.arange(rows, device=before.device)
    before, after = before.unsqueeze(-1), after.unsqueeze(-1)
    number = before + added - after + row
    source = torch.where(number < before, number, number - before + held)
    padding = row >= after
    return torch.where(padding, 0, source), padding


def _taken(x: Tensor, rows: Tensor, padding: Tensor) -> Tensor:
    """Rows of x [N, H, P, ...], and 0 where there is padding."""
    if x.shape[2] == 0:
        return x.new_zeros(*rows.shape, *x.shape[3:])
    if x.dim() == 4:
        rows, padding = rows.unsqueeze(-1).expand(*rows.shape, x.shape[-1]), padding.unsqueeze(-1)
    return torch.where(padding, 0, x.gather(2, rows))
