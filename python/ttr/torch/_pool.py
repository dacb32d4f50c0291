"""The memories of many streams, taken by index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from . import _library
from ._arguments import State, all_entries, arrange
from ._derivatives import refuse_gradients, refuse_tangents
from ._recipes import info_of, text_of
from ._regress import run, run_in_place


def check_dtype(who: str, dtype: torch.dtype) -> None:
    if dtype not in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        raise ValueError(f"[{who}] dtype must be float32, float64, bfloat16 or float16 but is {dtype}")


class StatePool:
    """Slots of streams, of which a call takes some.

        pool = ttr.torch.StatePool("gated_deltanet", 1024, heads=4, key_dim=64, value_dim=64)
        y = pool.step_(slots, q, k, v, log_decay=g, step=beta)      # [B, 1, H, D]: a token each
        y = pool.step_(slots, q, k, v, ..., cu_seqlens=bounds)      # prompts, packed
        pool.copy_(17, 18)                                          # the stream goes on in both
        pool.free_(17)                                              # the recipe's start again

    `slots` int32 or int64 [sequences]; -1: none, that row is not looked at and its answers are 0. A slot
    is what a `Decoder` of one stream keeps, with pending tokens of its own: with ``draft`` the last
    tokens of each can be taken back (`roll_back_`). All of it is `memory`, uint8 [slots, bytes], which
    may be copied, saved and sent; rows of it are slots. Works under `torch.compile`. No gradients:
    what requires one raises a RuntimeError.

    Parameters: heads that are not said are as many as memories (``heads``); ``features``: rows of
    `features_w`, where the recipe takes it; ``dtype``: of the states, float32 or float64, or where writes
    can wait bfloat16 or float16: two bytes a number, rounded every 8 tokens (or ``window``), and `state`
    is float32 then; ``draft``: tokens that can be taken back, 0 to 64; ``window``: tokens after which what
    waits beside those is written, 0: as the engine chooses. ValueError: out of range; a recipe that keeps its pairs, whose
    memory grows, or with ``draft`` one whose writes cannot wait.
    """

    def __init__(
        self,
        recipe: Any,
        slots: int,
        *,
        key_dim: int,
        value_dim: int,
        heads: int = 1,
        query_heads: int | None = None,
        key_heads: int | None = None,
        value_heads: int | None = None,
        features: int = 0,
        dtype: torch.dtype = torch.float32,
        draft: int = 0,
        window: int = 0,
    ) -> None:
        check_dtype("StatePool", dtype)
        self.recipe = text_of(recipe)
        self._info = info_of(self.recipe)
        sizes = {
            "H": heads, "Hq": query_heads, "Hk": key_heads, "Hv": value_heads,
            "Dk": key_dim, "Dv": value_dim, "F": features,
        }  # fmt: skip
        self._record = _library.record(sizes, dtype, draft=draft, window=window)
        size = _library.pool_bytes(self.recipe, self._record, slots)
        self.memory = torch.zeros(slots, size, dtype=torch.uint8)

    def step_(
        self,
        slots: Tensor | Sequence[int],
        q: Tensor | None = None,
        k: Tensor | None = None,
        v: Tensor | None = None,
        **inputs: Tensor | None,
    ) -> Tensor:
        """Memorizes the tokens of each row of the batch (of each packed sequence, with `cu_seqlens`) in its
        slot, and answers each: y [B, T, max(H, Hq), Dv]. ValueError, and nothing written: slots out
        of range or equal, and whatever `regress` refuses."""
        tensors, given = arrange(self.recipe, q, k, v, inputs)
        refuse_tangents("StatePool", tensors)
        refuse_gradients("StatePool", tensors, "regress")
        if not isinstance(slots, Tensor):
            slots = torch.tensor(slots, dtype=torch.int64)
        held = (self.recipe, self.memory, self._record)
        y: Tensor = run_in_place(_library.pool_step_, [self.memory], *held, slots, tensors, given)
        return y

    def start_(self, slot: int, state: State | None = None) -> None:
        """The slot goes on from a copy of `state`; None or empty: from the recipe's start."""
        entries = all_entries("StatePool", self._info, state) if state else []
        refuse_tangents("StatePool", entries)
        refuse_gradients("StatePool", entries, "regress")
        run_in_place(_library.pool_start_, [self.memory], *self._at(slot), entries)

    def state(self, slot: int) -> dict[str, Tensor]:
        """A copy of the state as after the slot's last token; empty before the first. Nothing is pending
        then."""
        entries = run_in_place(_library.pool_state_, [self.memory], *self._at(slot))
        return dict(zip(self._info.states, entries))

    def pending(self, slot: int) -> int:
        """Tokens of a slot that `roll_back_` can take back now."""
        count: int = run(_library.pool_pending, *self._at(slot))
        return count

    def roll_back_(self, slot: int, tokens: int) -> None:
        """Forgets the last tokens of a slot, as if they had never been."""
        run_in_place(_library.pool_roll_back_, [self.memory], *self._at(slot), tokens)

    def copy_(self, source: int | Sequence[int] | Tensor, target: int | Sequence[int] | Tensor) -> None:
        """Copies slots: the streams go on in both."""
        self.memory[target] = self.memory[source]

    def free_(self, slots: int | Sequence[int] | Tensor) -> None:
        """Forgets all of some slots."""
        for slot in torch.as_tensor(slots).flatten().tolist():
            self.start_(slot)

    def _at(self, slot: int) -> tuple[Any, ...]:
        return self.recipe, self.memory, self._record, slot


def pool_of(recipe: str, sizes: Mapping[str, int], dtype: torch.dtype, draft: int) -> StatePool:
    """A pool with a slot for each row of a call of these sizes, as `_library.sizes_of` has them."""
    return StatePool(
        recipe,
        sizes["B"],
        key_dim=sizes["Dk"],
        value_dim=sizes["Dv"],
        heads=sizes["H"],
        query_heads=sizes["Hq"],
        key_heads=sizes["Hk"],
        value_heads=sizes["Hv"],
        features=sizes["F"],
        dtype=dtype,
        draft=draft,
    )
