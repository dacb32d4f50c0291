"""A draft's way back where writes wait beside the state, and states of two bytes a number: a slot for each
row of the batch."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from . import _library
from ._arguments import arrange, count_tokens, slice_tokens
from ._pool import StatePool, pool_of


@dataclasses.dataclass
class _Kept:
    """A call behind which the pool could not go back as far: where decays are strong it writes at
    once."""

    memory: Tensor  #: as before the call
    inputs: dict[str, Any]
    could: int  #: tokens that could be taken back then
    tokens: int = 0  #: read since then, of the call and of later ones


class Drafts:
    """The pool, and the memory before calls that had to write before their time. A copy of it a call."""

    def __init__(
        self,
        recipe: str,
        info: Any,
        draft: int,
        inputs: dict[str, Any],
        state: Any,
        dtype: torch.dtype | None = None,
    ) -> None:
        others = {name: t for name, t in inputs.items() if name not in ("q", "k", "v")}
        q, k, v = (inputs.get(name) for name in ("q", "k", "v"))
        tensors, given = arrange(recipe, q, k, v, others)
        sizes = _library.sizes_of(recipe, tensors, given)
        wide = any(t is not None and t.dtype == torch.float64 for t in (v, *state.values()))
        self._info, self._draft = info, draft
        self._pool: StatePool = pool_of(
            recipe, sizes, dtype or (torch.float64 if wide else torch.float32), draft
        )
        self._kept: list[_Kept] = []
        for slot in range(sizes["B"] if state else 0):
            self._pool.start_(slot, {name: t[slot : slot + 1] for name, t in state.items()})

    def _slots(self) -> range:
        return range(len(self._pool.memory))

    def _waiting(self) -> int:
        """Tokens that the pool itself can take back."""
        return min(self._pool.pending(slot) for slot in self._slots())

    def step(self, inputs: dict[str, Any]) -> Tensor:
        if self._draft == 0:
            return self._pool.step_(torch.arange(len(self._pool.memory)), **inputs)
        before, could = self._pool.memory.clone(), self._waiting()
        y = self._pool.step_(torch.arange(len(before)), **inputs)
        tokens = count_tokens(self._info, inputs)
        if self._waiting() < min(self._draft, could + tokens):
            own = {name: t.clone() if isinstance(t, Tensor) else t for name, t in inputs.items()}
            self._kept.append(_Kept(before, own, could))
        for kept in self._kept:
            kept.tokens += tokens
        while len(self._kept) > 1 and self._kept[1].tokens >= self._draft:
            self._kept.pop(0)
        return y

    @property
    def pending(self) -> int:
        if not self._kept:
            return self._waiting()
        return min(self._draft, self._kept[0].could + self._kept[0].tokens)

    def roll_back(self, tokens: int) -> None:
        while tokens > self._waiting():
            kept = self._kept.pop()
            self._pool.memory = kept.memory
            for earlier in self._kept:
                earlier.tokens -= kept.tokens
            if tokens <= kept.tokens:
                if tokens < kept.tokens:
                    self.step(slice_tokens(self._info, kept.inputs, 0, kept.tokens - tokens))
                return
            tokens -= kept.tokens
        for slot in self._slots() if tokens else ():
            self._pool.roll_back_(slot, tokens)
        for kept in self._kept:
            kept.tokens -= tokens

    def reorder(self, rows: Tensor) -> None:
        self._pool.memory, self._kept = self._pool.memory[rows], []

    def state(self) -> dict[str, Tensor]:
        """Nothing can be taken back then."""
        self._kept = []
        rows = [self._pool.state(slot) for slot in self._slots()]
        return {name: torch.cat([row[name] for row in rows]) for name in rows[0]}
