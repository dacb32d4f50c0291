"""The passes of portable/step_rule.py, by kernels."""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from ..portable.prefix_solve import Pairs
from . import launches, steps
from .passes import Passes, padded, power


class Steps(Passes):
    """Pairs whose k and v [B, T, H, .] are those of each memory; tensors by token. ``undecayed``: erase
    keys read the memory before it fades."""

    def __init__(
        self, pairs: Pairs, heads: int, ends: tuple[int, ...], at: str, size: int, undecayed: bool
    ) -> None:
        super().__init__(pairs, heads, ends, at, size)
        self._undecayed = undecayed

    def write(self, e: Tensor, start: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """D, the memories before chunks and the last."""
        e = self._rows(e)
        self._found = self._scores(e, self._erases)
        from_values = torch.empty_like(self._v, dtype=torch.float32)
        from_erase = torch.empty_like(e, dtype=torch.float32)
        launches.launch(
            steps.prepare, (self._tables.count, self._heads), e, self._k, self._v, self._g, self._found,
            from_values, from_erase, self._tables.chunks, **self._shapes(),
        )  # fmt: skip
        return self._chain(self._k, from_values, from_erase, None, start)

    def _chain(
        self, along: Tensor, values: Tensor, from_state: Tensor, sums: Tensor | None, start: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        shape, back = self._shapes(), sums is not None
        key, value, heads = shape["K"], shape["V"], self._heads
        if sums is None:
            sums = values.new_empty(self._tables.count, heads, padded(key), padded(value))
        last, d = torch.empty_like(start, dtype=torch.float32), torch.empty_like(values)
        # Chunks wait for each other: columns of the memory are all that programs share out.
        tile = 32 if self._tables.sequences * heads >= 64 and value > 16 else 16
        shape.pop("WIDTH")
        launches.launch(
            steps.chain, (self._tables.sequences * heads, triton.cdiv(value, tile)), along, values,
            from_state, self._g, sums, start.float().contiguous(), last, d, self._tables.chunks,
            self._tables.firsts, ROWS=sums.shape[2], COLUMNS=sums.shape[3], TILE=tile, BACK=back,
            num_stages=1, **shape,
        )  # fmt: skip
        return self._tokens(d), sums, last

    @property
    def _erases(self) -> str:
        return "before" if self._undecayed else "decayed"

    def _shapes(self) -> dict[str, int | bool]:
        key, value = self._k.shape[-1], self._v.shape[-1]
        return {
            "H": self._heads, "K": key, "V": value, "C": self._size, "SIZE": power(key),
            "WIDTH": power(value), "FADES": self._common["FADES"],
            "UNDECAYED": self._undecayed,
        }  # fmt: skip

    def read_written(self, q: Tensor, d: Tensor, states: Tensor) -> Tensor:
        """M_t^T q_t, in the type of v."""
        return self._read(self._rows(q), self._k, self._rows(d), states, self._v.dtype, self._at, False)

    def found(self, dy: Tensor, d: Tensor, states: Tensor) -> Tensor:
        """M_t dy_t."""
        return self._read(self._rows(dy), self._rows(d), self._k, states, torch.float32, self._at, True)

    def erased(self, de: Tensor, d: Tensor, states: Tensor) -> Tensor:
        """M~_t of each token's own; M_{t-1} where that is ``undecayed``."""
        rows = (self._rows(de), self._rows(d), self._k)
        return self._read(*rows, states, torch.float32, self._erases, True)

    def when_erased(self, terms: Tensor) -> Tensor:
        """Terms by token of erase keys, moved to the tokens whose decays they have seen."""
        return self._moved(terms) if self._undecayed else terms

    def write_back(
        self, q: Tensor, e: Tensor, dy: Tensor, last: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """dD, the gradients of the memories behind chunks, and that of the first memory; after ``write``."""
        q, e, dy = self._rows(q), self._rows(e), self._rows(dy)
        from_outputs = torch.empty_like(self._v, dtype=torch.float32)
        from_end = torch.empty_like(self._k, dtype=torch.float32)
        launches.launch(
            steps.prepare_back, (self._tables.count, self._heads), q, e, self._k, dy, self._g,
            self._found, self._scores(q, self._at), from_outputs, from_end, self._tables.chunks,
            GROUPS=q.shape[1] // self._heads, BEFORE=self._before, **self._shapes(),
        )  # fmt: skip
        return self._chain(e, from_outputs, from_end, self._products(q, dy, later=True), last)

    def of_written(
        self, q: Tensor, e: Tensor, dy: Tensor, d: Tensor, dd: Tensor, later: Tensor
    ) -> Tensor:
        """dk."""
        dk = torch.empty_like(self._k, dtype=torch.float32)
        tile = min(self._mixes, power(dk.shape[-1]))
        shape = self._shapes()
        shape.pop("SIZE")
        grid = (self._tables.count, self._heads, triton.cdiv(dk.shape[-1], tile))
        rows = [self._rows(x) for x in (q, e, dy, d, dd)]
        launches.launch(
            steps.of_written, grid, *rows, self._g, later, dk, self._tables.chunks,
            GROUPS=rows[0].shape[1] // self._heads, ROWS=later.shape[2], COLUMNS=later.shape[3],
            TILE=tile, BEFORE=self._before, **shape,
        )  # fmt: skip
        return self._tokens(dk)
