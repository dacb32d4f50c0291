"""What is not finite reaches the tokens that depend on it, and no others.

A form over chunks multiplies matrices, and 0 NaN is NaN: what one token brought would reach all tokens of
its chunk. Therefore a form is given 0 in the place of every number that is not finite, and the outputs
and states of the tokens that depend on one become NaN afterwards:

    t sees s      s <= t, or s < t where it reads before it writes; all s where nothing is causal
    t forgot s    a factor of exactly 0 came after s, or s is before t's window

A gradient that comes back to such an output is NaN, unless it is 0 (under torch.compile it ends there).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function, forward_ad
from torch.nn.functional import pad

from . import pair_bias
from .inputs import Call
from .kept_pairs import Pairs, block_of, final_state, last_read, pairs_of, visible_range, written_by
from .layout import by_memory, by_token, queries_by_memory

Form = Callable[[Call], tuple[Tensor, dict[str, Tensor]]]

#: States that hold a row for each value channel.
_BY_COLUMN = ("state", "state.im", "state.momentum")


def apart(form: Form, call: Call) -> tuple[Tensor, dict[str, Tensor]]:
    """The outputs and the final state of a form of memories, with what is not finite kept apart."""
    given = _given(call)
    if _all_finite(call, given):
        return form(call)
    rows = _Rows(call, given)
    y, final = form(dataclasses.replace(call, tensors=rows.clean()))
    whole, columns = rows.lost()
    y = _of_tokens(call, y, rows, rows.reach(whole | columns))
    if call.choices.family == "network":
        whole = whole | columns
    ends = {True: rows.at_end(whole | columns), False: rows.at_end(whole)}
    for name, x in final.items():
        if x.is_floating_point():
            end = ends[name in _BY_COLUMN]
            shape = end.shape[:2] if x.dim() == 2 else (*end.shape[:2], *[1] * (x.dim() - 3), -1)
            final[name] = marked(x, end.view(shape))
    return y, final


def apart_from_pairs(form: Form, call: Call) -> tuple[Tensor, dict[str, Tensor]]:
    """As `apart`, of a form whose state is the list of its pairs, which stay as they are."""
    given = _given(call)
    held = {name: x for name, x in call.state.items() if x.is_floating_point()}
    if _all_finite(call, given) and _all_finite(call, held):
        return form(call)
    rows = _Rows(call, given)
    there = {name: x.masked_fill(_bad(name, x), 0) for name, x in held.items()}
    y, _ = form(dataclasses.replace(call, tensors=rows.clean(), state={**call.state, **there}))
    work = call.work if call.choices.family == "kernel_smoother" else torch.float64
    pairs = pairs_of(dataclasses.replace(call, work=work))
    whole, columns = rows.lost()
    lost = (whole | columns.any(-1, keepdim=True)).squeeze(2).squeeze(-1)
    if call.choices.pair_bias == "none":
        seen = _seen_of(call, pairs, lost)[:, :, None, :, None]
    else:
        seen = _seen_under_bias(dataclasses.replace(call, work=work), pairs, lost)
    return _of_tokens(call, y, rows, seen), final_state(call, pairs)


def _given(call: Call) -> dict[str, Tensor]:
    """The inputs that have a row for each token."""
    given = {}
    for spec in call.choices.inputs:
        x = call.tensors.get(spec.name)
        if x is not None and spec.name != "cu_seqlens" and spec.shapes[0][1:2] in (("T",), ("T n",)):
            given[spec.name] = x
    return given


def _all_finite(call: Call, tensors: dict[str, Tensor]) -> bool:
    """Whether numbers on a CPU are as they should be. A sum that is finite says so at once."""
    if call.device.type != "cpu" or torch.compiler.is_compiling():
        return False
    return all(bool(x.detach().sum().isfinite()) or not bool(_bad(name, x).any()) for name, x in tensors.items())


def _bad(name: str, x: Tensor) -> Tensor:
    """Where numbers are not as they should be; a logarithm may be -inf."""
    bad = x.detach().isfinite().logical_not()
    may_be_nothing = name in ("log_decay", "log_importance", "state.log_weight", "pair_bias")
    return bad & (x.detach() != -torch.inf) if may_be_nothing else bad


def _by_memory(x: Tensor, heads: int) -> Tensor:
    """[B, H, 1, R, D] of [B, R, h, D], or of [B, R, h] with D = 1."""
    return by_memory(x if x.dim() == 4 else x.unsqueeze(-1), heads)


def _of_tokens(call: Call, y: Tensor, rows: _Rows, seen: Tensor) -> Tensor:
    """y, and NaN where a token reads what ``seen`` [B, H, 1, T, 1 or Dv] marks, or asks for it."""
    if call.choices.output_norm != "none":
        seen = seen.any(-1, keepdim=True)
    return marked(y, by_token(seen | rows.of_queries()))


def _sound_of_state(pairs: Pairs) -> Tensor:
    """[N, H, S]: which rows of the state are finite."""
    held = pairs.held
    sound = pairs.k[:, :, :held].isfinite().all(-1) & pairs.v[:, :, :held].isfinite().all(-1)
    return sound if pairs.log_weight is None else sound & ~pairs.log_weight[:, :, :held].isnan()


def _seen_under_bias(call: Call, pairs: Pairs, lost: Tensor) -> Tensor:
    """[N, H, 1 or G, T, 1]: which queries see a pair that is lost [N, H, T], one of the state's, or a bias
    that is not finite. A pair that is hidden from a query is not seen, whatever it holds."""
    tokens, held = call.sizes["T"], pairs.held
    bad = torch.cat([~_sound_of_state(pairs), lost], -1) if held else lost
    spoilt = None  # how many decays were not finite so far
    if call.choices.decay == "scalar":
        g = by_memory(call.need("log_decay").detach(), call.sizes["H"]).squeeze(2)
        spoilt = pad((g.isnan() | (g == torch.inf)).cumsum(-1), (1, 0))
    found, size = [], block_of(call, pairs, 1)
    for begin, part in zip(range(0, tokens, size), pair_bias.by_block(call, size)):
        end = min(begin + size, tokens)
        seen = visible_range(part, pairs, begin, end)
        bias = seen.bias
        assert bias is not None
        met = bad[:, :, None, seen.first : seen.last]
        if spoilt is not None:
            now, then = last_read(call, begin, end).squeeze(-1) + 1, written_by(pairs, seen.first, seen.last)
            met = met | (spoilt[..., now, None] != spoilt[..., None, then])
        there = seen.seen.unsqueeze(3) & (bias != -torch.inf)
        found.append((there & (met.unsqueeze(3) | ~bias.isfinite())).any(-1).transpose(2, 3))
    return torch.cat(found, -1).unsqueeze(-1) if found else lost[:, :, None, :, None]


def _seen_of(call: Call, pairs: Pairs, lost: Tensor) -> Tensor:
    """[N, H, T]: which tokens see a pair that is lost [N, H, T], or one of the state's."""
    choices, tokens, held = call.choices, call.sizes["T"], pairs.held
    if not tokens:
        return lost
    sound = _sound_of_state(pairs)
    place, nothing = torch.arange(tokens, device=lost.device), -(1 << 62)
    first = torch.full_like(place[:1], nothing).expand(*lost.shape[:2], 1)
    if held:
        first = torch.where(sound, nothing, pairs.place[..., :held]).amax(-1, keepdim=True)
    latest = torch.maximum(torch.where(lost, place, nothing), first).cummax(-1)[0]
    kept = torch.full_like(place, nothing + 1)
    if choices.window:
        kept = torch.maximum(kept, place - (choices.window - 1))
    if pairs.resets is not None:
        forgot = pairs.resets[..., 1:] > pairs.resets[..., :-1]
        kept = torch.maximum(kept, torch.where(forgot, place, nothing).cummax(-1)[0])
    seen = latest >= kept
    if not choices.causal:
        return seen[..., -1:].expand_as(seen)
    if choices.read == "after":
        return seen
    return torch.cat([first > nothing, seen[..., :-1]], -1)


class _Rows:
    """Which tokens of a call bring what is not finite, and which depend on it."""

    def __init__(self, call: Call, given: dict[str, Tensor]) -> None:
        self._call = call
        #: Where numbers are not as they should be.
        self._bad = {name: _bad(name, x) for name, x in given.items()}

    def clean(self) -> dict[str, Tensor]:
        made = {name: self._call.tensors[name].masked_fill(bad, 0) for name, bad in self._bad.items()}
        return {**self._call.tensors, **made}

    def _by_memory(self, name: str) -> Tensor:
        """[B, H, 1, T, D] of an input of T n rows."""
        rows = _by_memory(self._bad[name], self._call.sizes["H"])
        return rows.unflatten(-2, (self._call.sizes["T"], -1)).any(-2) if rows.shape[-2] else rows

    def lost(self) -> tuple[Tensor, Tensor]:
        """Which tokens brought what is not finite to all of a memory, [B, H, 1, T, 1], and which to some
        of its value channels, [B, H, 1, T, Dv]."""
        choices = self._call.choices
        vector = choices.family == "gated_vector"
        columns = [n for n in self._bad if vector or n in ("v", "v_im", "dt")]
        apart = {"q", "pair_bias", *self._of_reader(), *columns}
        of_all = [self._by_memory(n).any(-1, keepdim=True) for n in self._bad if n not in apart]
        of_some = [self._by_memory(n) for n in columns]
        if vector and choices.importance in ("complement", "root_complement"):
            # A gate of exactly 0 takes nothing, not even NaN.
            taken = _by_memory(self._call.need("log_decay").detach(), self._call.sizes["H"]) != 0
            of_some = [x & taken for x in of_some]
        some = torch.stack(torch.broadcast_tensors(*of_some)).any(0)
        if self._call.choices.family == "network":
            some = some.any(-1, keepdim=True)
        whole = torch.stack(of_all).any(0) if of_all else torch.zeros_like(some[..., :1])
        return whole, some

    def _of_reader(self) -> tuple[str, ...]:
        """Inputs of the token that reads, which write nothing: how its system is solved."""
        solves = self._call.choices.family in ("least_squares", "kernel_descent")
        return ("step", "momentum") if solves else ()

    def of_queries(self) -> Tensor:
        """[B, H, G, T, 1]: tokens that do not read by finite numbers."""
        sizes = self._call.sizes
        found = torch.zeros(sizes["B"], sizes["H"], 1, sizes["T"], 1, dtype=torch.bool, device=self._call.device)
        for name in ("q", *self._of_reader()):
            if name in self._bad:
                x = self._bad[name]
                x = x if x.dim() == 4 else x.unsqueeze(-1)
                found = found | queries_by_memory(x, sizes["H"]).any(-1, keepdim=True)
        return found

    def _since(self, lost: Tensor) -> Tensor:
        """Which memories depend on a lost token after each token."""
        place = torch.arange(1, lost.shape[-2] + 1, device=lost.device).unsqueeze(-1)
        met = (place * lost).cummax(-2)[0]
        if "log_decay" not in self._bad:
            return met > 0
        gone = _by_memory(self._call.need("log_decay").detach(), self._call.sizes["H"]).exp() == 0
        if self._call.choices.family != "gated_vector":
            gone = gone.all(-1, keepdim=True)
        return (met > 0) & (met >= (place * gone).cummax(-2)[0])

    def reach(self, lost: Tensor) -> Tensor:
        """Which tokens read what a lost one wrote."""
        choices = self._call.choices
        if not lost.shape[-2]:
            return lost
        if not choices.causal:
            return lost.any(-2, keepdim=True).expand_as(lost)
        met, read = self._since(lost), choices.read
        if read.startswith("batch"):
            return self._by_batch(met, read == "batch_end")
        # The bonus, and a corrected query, are of the token that reads.
        own = bool(choices.bonus) or choices.correction != 0
        return met if read == "after" or own else _moved(met)

    def _by_batch(self, met: Tensor, at_end: bool) -> Tensor:
        """At the start, or the end, of each token's mini-batch."""
        size, tokens = int(self._call.choices.mini_batch), met.shape[-2]
        start = self._call.state.get("state.position")
        place = torch.arange(tokens, device=met.device)
        if start is not None:
            place = place + start[..., None, None]
        first = torch.arange(tokens, device=met.device) - place % size
        at = (first + size - 1).clamp(max=tokens - 1) if at_end else first - 1
        at = at.expand(*met.shape[:3], tokens).unsqueeze(-1)
        return met.gather(-2, at.clamp(min=0)) & (at >= 0)

    def at_end(self, lost: Tensor) -> Tensor:
        """[N, H, 1 or Dv]: which memories depend on a lost token after the last."""
        if not lost.shape[-2]:
            return lost.new_zeros(*lost.shape[:2], lost.shape[-1])
        return self._since(lost)[:, :, 0, -1]


def _moved(met: Tensor) -> Tensor:
    """Each token has what the one before it has."""
    return torch.cat([torch.zeros_like(met[..., :1, :]), met[..., :-1, :]], -2)


def marked(x: Tensor, spoilt: Tensor) -> Tensor:
    """x, and NaN where it is ``spoilt``. A graph has no place for the gradient's own NaN."""
    if torch.compiler.is_compiling() or forward_ad._current_level >= 0:
        return x.masked_fill(spoilt, torch.nan)
    made: Tensor = _Marked.apply(x, spoilt)
    return made


class _Marked(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, spoilt: Tensor) -> Tensor:
        ctx.save_for_backward(spoilt)
        return x.masked_fill(spoilt, torch.nan)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        (spoilt,) = ctx.saved_tensors
        return g.masked_fill(spoilt & (g != 0), torch.nan), None
