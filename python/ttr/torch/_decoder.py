"""Token by token, in place and without gradients."""

from __future__ import annotations

import copy
from typing import Any, Iterable, Mapping, Sequence, overload

import torch
from torch import Tensor

import ttr

from . import _library
from ._arguments import State, all_entries, arrange, count_tokens, slice_tokens
from ._derivatives import refuse_gradients, refuse_tangents
from ._drafts import Drafts
from ._pool import check_dtype
from ._pairs import reserve_pairs, room_for_pairs
from ._recipes import info_of, text_of
from ._regress import regress, run_in_place


def step_(
    recipe: Any,
    memory: Tensor | Mapping[str, Tensor],
    q: Tensor | None = None,
    k: Tensor | None = None,
    v: Tensor | None = None,
    **inputs: Tensor | None,
) -> Tensor:
    """One token (T = 1) of `regress`, in place; returns y [B, 1, max(H, Hq), Dv].

    `memory` is either a state, all of its entries by their names, contiguous in their last axis: they
    are updated. Kept pairs need room for one more (`reserve_pairs`). Or it is the memory of a decoder,
    uint8, zeros at the beginning, of as many bytes as `decoder_bytes` says: it holds more than a state
    and passes less traffic (`Decoder` looks after one). On a GPU it is a state that keeps its shape:
    delta rules, linear attention and exact least squares, of float32, take one launch each, which CUDA
    graphs may hold. No gradients: what requires them raises a RuntimeError. ValueError, and nothing
    written: whatever `regress` refuses, memory of another recipe or of other sizes, pairs without room.
    """
    text = recipe if type(recipe) is str else text_of(recipe)
    tensors, given = arrange(text, q, k, v, inputs)
    held = [memory] if isinstance(memory, Tensor) else [t for t in memory.values() if t is not None]
    refuse_tangents("step_", (*tensors, *held))
    refuse_gradients("step_", (*tensors, *held), "regress")
    if isinstance(memory, Tensor):
        if not memory.is_cpu and not memory.is_meta:
            raise ValueError(f"[step_] memory must be a state on {memory.device} but is that of a decoder")
        y: Tensor = run_in_place(_library.step_, [memory], text, memory, tensors, given)
        return y
    entries = all_entries("step_", info_of(text), memory)
    y = run_in_place(_library.step_state_, entries, text, entries, tensors, given)
    return y


def decoder_bytes(
    recipe: Any,
    q: Tensor | None = None,
    k: Tensor | None = None,
    v: Tensor | None = None,
    **inputs: Tensor | None,
) -> int:
    """Bytes of a decoder's memory for tokens like these; 0 where the memory keeps its pairs."""
    text = text_of(recipe)
    tensors, given = arrange(text, q, k, v, inputs)
    size: int = _library.decoder_bytes(text, _record(text, tensors, given, v))
    return size


def _record(
    text: str, tensors: list[Tensor], given: int, v: Tensor | None, dtype: torch.dtype | None = None
) -> str:
    """The record of a memory for tokens like these: where nothing is said of its dtype, a state of float64
    goes with a float64 v."""
    wide = v is not None and v.dtype == torch.float64
    said = dtype or (torch.float64 if wide else torch.float32)
    return _library.record(_library.sizes_of(text, tensors, given), said)


def _is_wide(tensors: Iterable[Tensor]) -> bool:
    return any(t.dtype == torch.float64 for t in tensors)


class Decoder:
    """A memory and what an engine keeps beside it from token to token.

        decoder = ttr.torch.Decoder("gated_deltanet")
        y, state = ttr.torch.regress("gated_deltanet", q, k, v, ..., return_state=True)
        decoder.start(state)                       # else from the recipe's start
        for ...: y = decoder.step(q, k, v, ...)    # [B, 1, H, D] each
        state = decoder.state()

    With ``draft`` (0 to 64) a step takes any number of tokens, and as many of the last ones can be taken
    back: later answers are, bit for bit, those of a decoder that never saw them.

        decoder = ttr.torch.Decoder("gated_deltanet", draft=4)
        y = decoder.step(q, k, v, ...)             # [B, 4, H, D]: four tokens that are guessed
        decoder.roll_back(3)                       # one was right

    Everything that it knows is in tensors: it is copied, pickled, and sent to other processes as
    they are, and goes on bit for bit. Sizes are those of its first token. Kept pairs are written in
    place; when there is no more room their tensors grow to twice their size. A state of float64 stays
    that, also beside narrower tokens; with ``dtype`` torch.bfloat16 or torch.float16 it lies in two
    bytes a number where writes can wait, rounded every 8 tokens (`state` is float32). No gradients: a token or
    a state that requires one raises a RuntimeError.
    """

    def __init__(self, recipe: Any, draft: int = 0, dtype: torch.dtype | None = None) -> None:
        check_dtype("Decoder", dtype or torch.float32)
        most = ttr.Decoder.most_draft
        if not isinstance(draft, int) or not 0 <= draft <= most:
            raise ValueError(f"[Decoder] draft must be from 0 to {most} but is {draft!r}")
        self.recipe = text_of(recipe)
        self._info = info_of(self.recipe)
        self._memory: Tensor | None = None
        self._record, self._float64 = "", False  # of the memory
        self._state: dict[str, Tensor] = {}  # until the first token, and of pairs
        self._room = 0  # tokens that `_state` is known to take without growing
        self._draft, self._dtype = draft, dtype
        self._drafts: Drafts | None = None  # of writes that wait
        self._kept: list[dict[str, Any]] = []  # what was before each of the last tokens

    def start(self, state: State | None) -> None:
        """Goes on from a copy of `state`; None or empty: from the recipe's start."""
        held = all_entries("Decoder", self._info, state) if state else []
        refuse_tangents("Decoder", held)
        refuse_gradients("Decoder", held, "regress")
        copies = [t.detach().clone(memory_format=torch.contiguous_format) for t in held]
        self._kept, self._drafts = [], None
        wider = not self._float64 and _is_wide(copies)
        if self._memory is None or wider:
            self._state, self._room = dict(zip(self._info.states, copies)), 0
            self._memory = None
        else:
            self._start(copies)

    def _start(self, state: list[Tensor]) -> None:
        assert self._memory is not None
        _library.decoder_start_(self.recipe, self._memory, self._record, state)

    @overload
    def step(
        self, q: Tensor | None = ..., k: Tensor | None = ..., v: Tensor | None = ..., *,
        reports: None = None, **inputs: Any,
    ) -> Tensor: ...  # fmt: skip

    @overload
    def step(
        self, q: Tensor | None = ..., k: Tensor | None = ..., v: Tensor | None = ..., *,
        reports: Sequence[str], **inputs: Any,
    ) -> tuple[Tensor, dict[str, Tensor]]: ...  # fmt: skip

    def step(
        self,
        q: Tensor | None = None,
        k: Tensor | None = None,
        v: Tensor | None = None,
        *,
        reports: Sequence[str] | None = None,
        **inputs: Any,
    ) -> Any:
        """Memorizes one token and answers its query: `regress` of T = 1; of any T with a draft. With `reports`,
        names as in `regress`, the pair (y, reports by name), for which the state is copied."""
        if reports is not None:
            state = copy.deepcopy(self).state() or None
            with torch.no_grad():
                _, found = regress(self.recipe, q, k, v, state=state, reports=reports, **inputs)
            return self.step(q, k, v, **inputs), found
        if self._draft == 0 and self._dtype in (None, torch.float32, torch.float64):
            return self._step(q, k, v, inputs)
        if self._info.keeps_drafts:
            return self._step_draft(q, k, v, inputs)
        given = {"q": q, "k": k, "v": v, **inputs}
        answers = []
        if (count := count_tokens(self._info, given)) == 0:
            nothing: Tensor = regress(self.recipe, **given)
            return nothing
        for t in range(count):
            token = slice_tokens(self._info, given, t, t + 1)
            self._kept = [*self._kept, self._snapshot()][-self._draft :]
            rows = (token.pop(name) for name in ("q", "k", "v"))
            answers.append(self._step(*rows, token))
        return torch.cat(answers, 1)

    def _step_draft(
        self, q: Tensor | None, k: Tensor | None, v: Tensor | None, inputs: dict[str, Any]
    ) -> Tensor:
        given = {name: t for name, t in {"q": q, "k": k, "v": v, **inputs}.items() if t is not None}
        if self._drafts is None:
            self._drafts = Drafts(
                self.recipe, self._info, self._draft, given, self._state, self._dtype
            )
            self._state = {}
        return self._drafts.step(given)

    @property
    def pending(self) -> int:
        """Tokens that `roll_back` can take back now."""
        return len(self._kept) if self._drafts is None else self._drafts.pending

    def roll_back(self, tokens: int) -> None:
        """Forgets the last tokens, at most `pending`, as if they had never been."""
        if not 0 <= tokens <= self.pending:
            raise ValueError(
                f"[Decoder] tokens must be from 0 to {self.pending} to be taken back but are {tokens}"
            )
        if self._drafts is not None:
            self._drafts.roll_back(tokens)
        elif tokens > 0:
            before = self._kept[-tokens]
            self._kept = self._kept[:-tokens]
            self._memory, self._state, self._room = before["memory"], before["state"], 0

    def reorder(self, rows: Tensor) -> None:
        """Row b of the batch becomes what row `rows[b]` was: beams that go on, a selection of the batch
        (fewer rows), repetition (more). Tokens of a draft can be taken back afterwards where its writes wait
        beside the state, as those of the delta and Hebbian families do, and else not."""
        if self._drafts is not None:
            self._drafts.reorder(rows)
            return
        state = {name: t.index_select(0, rows.to(t.device)) for name, t in self.state().items()}
        # The memory is made again, as its size is that of the batch.
        self._memory, self._state, self._room, self._kept = None, state, 0, []

    def _snapshot(self) -> dict[str, Any]:
        """What a token will change. For pairs that only grow it is how many count."""
        pairs = self._info.window == 0 and self._info.counts_pairs
        state = {
            name: t if pairs and t.is_floating_point() else t.clone()
            for name, t in self._state.items()
        }
        return {"memory": None if self._memory is None else self._memory.clone(), "state": state}

    def _step(
        self, q: Tensor | None, k: Tensor | None, v: Tensor | None, inputs: dict[str, Any]
    ) -> Tensor:
        if self._info.keeps_pairs:
            return self._step_pairs(q, k, v, inputs)
        if self._memory is None:
            # The type of an engine's own memory is that of v: a wider state is stepped itself.
            if _is_wide(self._state.values()) and (v is None or v.dtype != torch.float64):
                return self._step_pairs(q, k, v, inputs)
            self._begin(q, k, v, inputs)
        assert self._memory is not None
        return step_(self.recipe, self._memory, q, k, v, **inputs)

    def _step_pairs(
        self, q: Tensor | None, k: Tensor | None, v: Tensor | None, inputs: dict[str, Any]
    ) -> Tensor:
        if not self._state:
            refuse_gradients("Decoder", (q, k, v, *inputs.values()), "regress")
            with torch.no_grad():
                y, self._state = regress(self.recipe, q, k, v, return_state=True, **inputs)
            return y
        if self._room == 0:
            self._state = reserve_pairs(self.recipe, self._state, 1)
            self._room = room_for_pairs(self._info, self._state)
        y = step_(self.recipe, self._state, q, k, v, **inputs)
        self._room -= 1
        return y

    def _begin(
        self, q: Tensor | None, k: Tensor | None, v: Tensor | None, inputs: dict[str, Any]
    ) -> None:
        """Makes the memory, for the first token."""
        tensors, given = arrange(self.recipe, q, k, v, inputs)
        record = _record(self.recipe, tensors, given, v, self._dtype)
        size = _library.decoder_bytes(self.recipe, record)
        memory = torch.zeros(size, dtype=torch.uint8)
        if self._state:
            entries = list(self._state.values())
            _library.decoder_start_(self.recipe, memory, record, entries)
        self._memory, self._record, self._state = memory, record, {}
        self._float64 = v is not None and v.dtype == torch.float64

    def state(self) -> dict[str, Tensor]:
        """A copy of the state as after the last token; empty before the first. Where writes wait, nothing
        can be taken back then."""
        if self._drafts is not None:
            return self._drafts.state()
        if self._memory is None:
            return {name: t.clone() for name, t in self._state.items()}
        entries = _library.decoder_state_(self.recipe, self._memory, self._record)
        return dict(zip(self._info.states, entries))

    def __deepcopy__(self, memo: dict[int, Any]) -> Decoder:
        made = Decoder(self.recipe, self._draft, self._dtype)
        made.__setstate__(self.__getstate__())
        return made

    def __getstate__(self) -> dict[str, Any]:
        return {
            "recipe": self.recipe,
            "memory": None if self._memory is None else self._memory.clone(),
            "record": self._record,
            "float64": self._float64,
            "state": {name: t.clone() for name, t in self._state.items()},
            "draft": self._draft,
            "dtype": self._dtype,
            "drafts": copy.deepcopy(self._drafts),
            "kept": copy.deepcopy(self._kept),
        }

    def __setstate__(self, held: dict[str, Any]) -> None:
        self.recipe = held["recipe"]
        self._info = info_of(self.recipe)
        self._memory = held["memory"]
        self._state, self._room, self._float64 = held["state"], 0, held["float64"]
        # Those of earlier versions kept sizes in the order of their names, and no drafts.
        self._record = held["record"] if "record" in held else _earlier_record(held)
        self._draft, self._drafts = held.get("draft", 0), held.get("drafts")
        self._kept, self._dtype = held.get("kept", []), held.get("dtype")


def _earlier_record(held: dict[str, Any]) -> str:
    dtype = torch.float64 if held["float64"] else torch.float32
    return _library.record(dict(zip(_library.SIZES, held["dims"])), dtype)
