"""What a layer remembers of the tokens before: `Cache`."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .._arguments import slice_tokens
from .._decoder import Decoder
from .._recipes import info_of
from .._regress import regress
from ._sizes import refuse, whole


class Cache:
    """A layer's memory of the tokens it has read, with its `ttr.torch.Decoder` and the rows that
    its convolutions look back at.

        cache = layer.new_cache()
        with torch.no_grad():
            y = layer(prompt, cache=cache)    # [B, T, hidden]
            y = layer(token, cache=cache)     # [B, 1, hidden], any number of times

        cache.reorder([1, 1, 0])              # row b goes on as row indices[b] would
        cache.repeat(4)                       # each row four times, side by side

    With ``draft`` (`new_cache(draft=8)`) as many of the last tokens can be forgotten (`roll_back`,
    `crop`), and later outputs are as if they had never been.

    Copy, deepcopy and pickle keep all of it. It serves the layer that made it: another one is
    refused, but a copy serves whichever layer of the same recipe and sizes takes it first (that is
    how a copied or a loaded model goes on). No gradients.
    """

    def __init__(self, layer: nn.Module, kind: str, recipe: str, draft: int = 0) -> None:
        self.kind = kind  #: recipe and sizes of the layer that it serves
        self.draft = draft  #: tokens that can be taken back, at most
        self.batch = 0  #: rows, 0 until it has read something
        self.tokens = 0  #: tokens read; of calls with padding, those of their longest rows
        self.rows: dict[str, Tensor] = {}  #: what the convolutions of q, k and v look back at
        self._rows_behind = 0  # of `rows`, those that are there for the way back
        self.memory = Decoder(recipe, draft)
        self.positions: Tensor | None = None  #: tokens of each row [B], where rotary positions are counted
        self._layer: weakref.ref[nn.Module] | None = weakref.ref(layer)

    def serves(self, layer: nn.Module, kind: str) -> bool:
        """Whether `layer` may read it. A copy becomes that layer's."""
        if self.kind != kind:
            return False
        if self._layer is None:
            self._layer = weakref.ref(layer)
        return self._layer() is layer

    def state(self) -> dict[str, Tensor]:
        """A copy of the memory's state by the names of `ttr.state_specs`; empty before any
        token."""
        return self.memory.state()

    # ---- Rows of the batch -----------------------------------------------------------------------

    def reorder(self, indices: Tensor | Sequence[int]) -> None:
        """Row b of the batch becomes what row `indices[b]` was; as many rows as there are indices, so
        that it selects and repeats as well. Behind it tokens can be taken back where a `Decoder` of
        the recipe says so. ValueError: what are no rows of the batch."""
        rows = torch.as_tensor(indices, device="cpu")
        rows = rows.long() if rows.numel() == 0 else rows
        if rows.dim() != 1 or rows.is_floating_point() or rows.is_complex() or rows.dtype == torch.bool:
            given = f"{rows.dtype} {list(rows.shape)}"
            refuse("indices", "whole numbers, one for each row that there shall be,", given, "Cache")
        if rows.numel() and not 0 <= int(rows.min()) <= int(rows.max()) < self.batch:
            refuse("indices", f"rows of the batch, 0 .. {self.batch - 1},", rows.tolist(), "Cache")
        if self.batch:
            rows = rows.long()
            self.memory.reorder(rows)
            self.rows = {n: t.index_select(0, rows.to(t.device)) for n, t in self.rows.items()}
            if self.positions is not None:
                self.positions = self.positions[rows.to(self.positions.device)]
            self.batch = len(rows)

    def repeat(self, times: int) -> None:
        """Every row of the batch `times` times, side by side."""
        self.reorder(torch.arange(self.batch).repeat_interleave(whole("times", times, op="Cache")))

    # ---- The way back ----------------------------------------------------------------------------

    @property
    def pending(self) -> int:
        """Tokens that can be taken back now: the last ones, at most `draft`. None behind a call with
        padding, nor behind `state()` where writes wait."""
        return min(self.memory.pending, self._rows_behind)

    def roll_back(self, tokens: int) -> None:
        """Forgets the last tokens of every row, at most `pending`. ValueError: more."""
        tokens = whole("tokens", tokens, 0, "Cache")
        if not 0 <= tokens <= self.pending:
            how = f" (draft = {self.draft})" if tokens > self.draft else ""
            refuse("tokens", f"in 0 .. {self.pending}, those that can be taken back{how},", tokens, "Cache")
        self.memory.roll_back(tokens)
        self.tokens -= tokens
        self._rows_behind -= tokens
        if self.positions is not None:
            self.positions = self.positions - tokens
        # The rows in front are of tokens so far ago that they are looked at by none.
        self.rows = {n: F.pad(t[:, : t.shape[1] - tokens], (0, 0, tokens, 0)) for n, t in self.rows.items()}

    def crop(self, tokens: int) -> None:
        """Forgets all but the first tokens. ValueError: more than `pending` would have to go."""
        tokens, least = whole("tokens", tokens, 0, "Cache"), self.tokens - self.pending
        if not least <= tokens <= self.tokens:
            refuse("tokens", f"in {least} .. {self.tokens}, as draft = {self.draft},", tokens, "Cache")
        self.roll_back(self.tokens - tokens)

    # ---- What a layer does with it ---------------------------------------------------------------

    def before(self, name: str, z: Tensor, taps: int, cu_seqlens: Tensor | None) -> Tensor | None:
        """The rows before z [B, T, C] that a convolution goes on from; None: zeros."""
        held = self.rows.get(name)
        if held is not None or self.draft == 0:
            return held
        batch = z.shape[0] if cu_seqlens is None else len(cu_seqlens) - 1
        return z.new_zeros(batch, taps - 1 + self.draft, z.shape[2])

    def go_on(
        self, inputs: dict[str, Any], tokens: int, start: Mapping[str, Tensor], cu_seqlens: Tensor | None
    ) -> Tensor:
        """y of some tokens, which the memory has then read; `start`: what the layer starts from."""
        recipe, info = self.memory.recipe, info_of(self.memory.recipe)
        if tokens == 0 and self.batch:  # the memory, and its way back, stay as they are
            nothing: Tensor = regress(recipe, cu_seqlens=cu_seqlens, **inputs)
            return nothing
        alone = 0  # of them, at the end, are stepped
        if cu_seqlens is None and inputs["v"].is_cpu:
            begun = self.batch > 0
            alone = min(self.draft, tokens) or int(begun and tokens == 1)
            if begun and alone == tokens:
                return self.memory.step(**inputs)
        head = slice_tokens(info, inputs, 0, tokens - alone) if alone else inputs
        state = self.state() if self.batch else start
        y, state = regress(recipe, state=state, cu_seqlens=cu_seqlens, return_state=True, **head)
        self.memory.start(state)
        if not alone:
            answers: Tensor = y
            return answers
        return torch.cat([y, self.memory.step(**slice_tokens(info, inputs, tokens - alone, tokens))], 1)

    def has_read(
        self, x: Tensor, rows: dict[str, Tensor], cu_seqlens: Tensor | None, rotary: bool = False
    ) -> None:
        """Counts what has been read, and keeps what convolutions look back at next."""
        self.rows = rows
        if rotary:
            count = x.new_full((len(x),), x.shape[1], dtype=torch.long)
            count = count if cu_seqlens is None else cu_seqlens.diff().to(count)
            self.positions = count if self.positions is None else self.positions + count
        if cu_seqlens is None:
            self.batch, self.tokens = x.shape[0], self.tokens + x.shape[1]
            self._rows_behind = min(self._rows_behind + x.shape[1], self.draft)
        else:
            lengths = cu_seqlens.diff()
            self.batch, self._rows_behind = len(lengths), 0
            self.tokens += int(lengths.max()) if self.batch else 0

    def __copy__(self) -> Cache:
        return copy.deepcopy(self)  # a step writes in place: nothing may be shared

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "rows": {n: t.clone() for n, t in self.rows.items()}, "_layer": None}

    def __setstate__(self, held: dict[str, Any]) -> None:
        vars(self).update({"positions": None, **held})
        if "draft" not in held:  # one of an earlier version
            self.draft = self._rows_behind = 0
            self.batch = len(next(iter(self.state().values()))) if self.tokens else 0

    def __repr__(self) -> str:
        return f"Cache({self.tokens} tokens, {self.kind})"


def check_cache(
    cache: Cache, layer: nn.Module, kind: str, x: Tensor, cu_seqlens: Tensor | None
) -> None:
    """ValueError: a cache of another layer, or of another number of rows."""
    if not isinstance(cache, Cache):
        refuse("cache", "a Cache that new_cache() of this layer has made", type(cache).__name__)
    if not cache.serves(layer, kind):
        of = "that of another layer" if cache.kind == kind else cache
        refuse("cache", f"one that new_cache() of this layer has made ({kind})", of)
    rows, of = (x.shape[0], "x") if cu_seqlens is None else (len(cu_seqlens) - 1, "cu_seqlens")
    if cache.batch not in (0, rows):
        refuse("cache", f"of {rows} rows, as {of} is,", f"of {cache.batch}")
    if cache.draft and not x.is_cpu:
        refuse("cache.draft", f"0 on the device {x.device}", cache.draft)


def refuse_gradients(layer: nn.Module, x: Tensor) -> None:
    """RuntimeError: a gradient that x or a parameter asks for would end here without a word."""
    if not torch.is_grad_enabled():
        return
    named = (("x", x), *layer.named_parameters())
    name = next((name for name, tensor in named if tensor.requires_grad), None)
    if name is not None:
        raise RuntimeError(
            f"[TestTimeRegression] {name} must not require gradients where a cache is given, as a "
            "cache is written in place, but does: use torch.no_grad(), or no cache"
        )
