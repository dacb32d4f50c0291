"""The passes of portable/prefix_solve.py, by kernels.

A batch of sequences, or packed ones, are rows one after another; a table says where chunks begin.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import triton
from torch import Tensor

from ..portable.passes import GROWTH, least_left, least_pivot
from ..portable.prefix_solve import Pairs
from . import channels, factor, gradients, launches, read, solve, sums

#: How far pairs may outgrow A_0 for so many rounds of refinement by V, an inverse itself. What is
#: solved for beside a ridge that does not fade is not refined.
_ROUNDS, _MOST_GROWTH, _MOST_GROWTH_WITH_RIDGE = 6, 2e4, 300.0


class Tables:
    """Where the sequences' chunks are: ``chunks`` [n, 2] their first rows and those after their
    last, ``firsts`` [N + 1] the first chunk of every sequence."""

    def __init__(self, ends: tuple[int, ...], size: int, device: torch.device) -> None:
        chunks, firsts = [], [0]
        for begin, end in zip(ends, ends[1:]):
            chunks += [(row, min(row + size, end)) for row in range(begin, end, size)]
            firsts.append(len(chunks))
        self.ends, self.size, self.count = ends, size, len(chunks)
        self.sequences = len(ends) - 1
        self.chunks = torch.tensor(chunks or [(0, 0)], dtype=torch.int32).to(device)
        self.firsts = torch.tensor(firsts, dtype=torch.int32).to(device)


@functools.lru_cache(maxsize=64)
def tables(ends: tuple[int, ...], size: int, device: torch.device) -> Tables:
    return Tables(ends, size, device)


def padded(n: int) -> int:
    """The size of a stored matrix of n rows or columns: whole blocks of 16."""
    return -(-n // 16) * 16


def power(n: int) -> int:
    """The size of a program's tile of n channels."""
    return max(16, 1 << (n - 1).bit_length())


class Passes:
    """Over chunks of ``size`` tokens: 16, 32 or 64. ``ends``: the first row of every sequence, and the
    number of rows. States are [n, H, rows, columns], filled up to whole blocks of 16. Where g is [B, T, H,
    K] each key channel fades for itself: FADES == 2."""

    def __init__(self, pairs: Pairs, heads: int, ends: tuple[int, ...], at: str, size: int) -> None:
        self._shape = pairs.k.shape[:2]
        self._k, self._v = self._rows(pairs.k), self._rows(pairs.v)
        self._w, self._g = self._numbers(pairs.w), self._numbers(pairs.g)
        self._heads, self._size = heads, size
        self._tables = tables(ends, size, pairs.k.device)
        self._at, self._before = at, at == "before"
        fades = 0 if self._g is None else self._g.dim() - 1
        kept = (self._tables.count, heads, self._k.shape[-1])[: 3 if fades == 2 else 2]
        self._kept = self._k.new_empty(kept, dtype=torch.float32)
        self._common = {"H": heads, "C": size, "BEFORE": self._before, "FADES": fades}
        #: Channels of a program that mixes rows: factors of each take registers.
        self._mixes = 32 if fades == 2 else 64
        self._weighted = {"WEIGHTED": pairs.w is not None}

    @staticmethod
    def _rows(x: Tensor) -> Tensor:
        return x.flatten(0, 1).contiguous()

    @staticmethod
    def _numbers(x: Tensor | None) -> Tensor | None:
        return None if x is None else x.flatten(0, 1).contiguous()

    def _tokens(self, x: Tensor) -> Tensor:
        return x.unflatten(0, self._shape)

    def _sums(self, left: Tensor, right: Tensor, start: Tensor, later: bool) -> tuple[Tensor, Tensor]:
        made = self._products(left, right, later)
        rows, columns, heads = left.shape[-1], right.shape[-1], self._heads
        last = left.new_empty(self._tables.sequences, heads, rows, columns, dtype=torch.float32)
        block = min(128, made.shape[2] * made.shape[3])
        grid = (self._tables.sequences * heads, triton.cdiv(made.shape[2] * made.shape[3], block))
        launches.launch(
            sums.scan, grid, made, start.float().contiguous(), last, self._kept, self._tables.firsts,
            H=heads, LEFT=rows, RIGHT=columns, ROWS=made.shape[2], COLUMNS=made.shape[3], BLOCK=block,
            LATER=later, FADES=self._common["FADES"], num_warps=1,
        )  # fmt: skip
        return made, last

    def _products(self, left: Tensor, right: Tensor, later: bool) -> Tensor:
        """The sums over each chunk [n, H, rows, columns], rows and columns filled up to sixteens."""
        n, heads = self._tables.count, self._heads
        rows, columns = left.shape[-1], right.shape[-1]
        made = left.new_empty(n, heads, padded(rows), padded(columns), dtype=torch.float32)
        tile = min(128, power(columns))
        launches.launch(
            sums.chunk_sums, (n, heads, triton.cdiv(columns, tile)),
            left, right, self._w, self._g, made, self._kept, self._tables.chunks,
            LEFT_HEADS=left.shape[1], RIGHT_HEADS=right.shape[1],
            GROUPS=max(1, left.shape[1] // heads) if later else 1, LEFT=rows, RIGHT=columns,
            ROWS=made.shape[2], COLUMNS=made.shape[3], TILE=tile, SIZE=power(rows), LATER=later,
            WEIGHTED=self._w is not None and not later, **self._common,
        )  # fmt: skip
        return made

    def _scores(self, x: Tensor, at: str) -> Tensor | None:
        """[n, queries, C, C], those of x [R, heads, K] and k where channels fade each for itself."""
        if self._common["FADES"] != 2:
            return None
        queries, size, key = max(self._heads, x.shape[1]), self._size, self._k.shape[-1]
        made = x.new_empty(self._tables.count, queries, size, size, dtype=torch.float32)
        launches.launch(
            channels.scores, (self._tables.count, queries), x, self._k, self._g, made, self._tables.chunks,
            H=self._heads, GROUPS=queries // self._heads, X_HEADS=x.shape[1], K_HEADS=self._k.shape[1], K=key,
            C=size, BLOCK=min(32, power(key)), BEFORE=at == "before", STRICT=at == "decayed", num_stages=1,
        )  # fmt: skip
        return made

    def sums(self, right: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        return self._sums(self._k, self._rows(right), start, later=False)

    def later_sums(self, left: Tensor, right: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
        return self._sums(self._rows(left), self._rows(right), end, later=True)

    def prefixes(self, states: Tensor, ridge: Tensor | None) -> _Prefixes:
        stays = None if ridge is None else ridge.float().contiguous()
        if stays is not None:
            held = stays if self._g is None else self._kept.rsqrt().unsqueeze(-1) * stays
            states.diagonal(dim1=-2, dim2=-1)[..., : stays.shape[-1]] += held
        return _Prefixes(self, states, None if self._g is None else stays)

    def read(self, x: Tensor, states: Tensor) -> Tensor:
        return self._read(self._rows(x), self._k, self._v, states, self._v.dtype, self._at, False)

    def read_back(self, dy: Tensor, states: Tensor) -> Tensor:
        return self._read(self._rows(dy), self._v, self._k, states, torch.float32, self._at, True)

    def _read(
        self,
        x: Tensor,
        k: Tensor,
        v: Tensor,
        states: Tensor,
        made: torch.dtype,
        at: str,
        across: bool,
    ) -> Tensor:
        queries, width = max(self._heads, x.shape[1]), v.shape[-1]
        y = x.new_empty(x.shape[0], queries, width, dtype=made)
        tile = min(self._mixes if across else 64, power(width))
        if y.numel():
            faded = None if across else self._scores(x, at)
            grid = (self._tables.count, queries, triton.cdiv(width, tile))
            launches.launch(read.read, grid,
                x, k, v, self._w, self._g, faded, states, y, self._tables.chunks,
                GROUPS=queries // self._heads, X_HEADS=x.shape[1], K_HEADS=k.shape[1],
                V_HEADS=v.shape[1], K=k.shape[-1], V=width, ROWS=states.shape[2],
                COLUMNS=states.shape[3], SIZE=power(k.shape[-1]), TILE=tile, ACROSS=across,
                STRICT=at == "decayed", **{**self._common, **self._weighted, "BEFORE": at == "before"},
            )  # fmt: skip
        return self._tokens(y)

    def gradients(
        self, x: Tensor, z: Tensor | None, dy: Tensor, of_a: Tensor | None, of_b: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        x, dy = self._rows(x), self._rows(dy)
        z = None if z is None else self._rows(z)
        k, v, heads, rows = self._k, self._v, self._heads, x.shape[0]
        key, value = k.shape[-1], v.shape[-1]
        dk = k.new_empty(rows, heads, key, dtype=k.dtype if k.shape[1] == heads else torch.float32)
        dv = v.new_empty(rows, heads, value, dtype=v.dtype if v.shape[1] == heads else torch.float32)
        key_tile = min(self._mixes, power(key))
        parts = k.new_empty(triton.cdiv(key, key_tile), rows, heads, dtype=torch.float32)
        tile, count = min(64, power(value)), self._tables.count
        shapes = {
            "GROUPS": x.shape[1] // heads, "K_HEADS": k.shape[1], "K": key, "V": value,
            "ROWS": of_b.shape[2], "COLUMNS": of_b.shape[3], "SIZE": power(key),
            **self._common, **self._weighted,
        }  # fmt: skip
        if rows:
            grid = (count, heads, triton.cdiv(value, tile))
            launches.launch(gradients.of_values, grid,
                x, dy, k, self._w, self._g, self._scores(x, self._at), of_b, dv, self._tables.chunks, TILE=tile,
                **shapes,
            )  # fmt: skip
            launches.launch(gradients.of_keys, (count, heads, parts.shape[0]),
                x, z, dy, k, v, self._w, self._g, of_a, of_b, dk, parts, self._tables.chunks, rows,
                V_HEADS=v.shape[1], WIDTH=power(value), TILE=key_tile, SOLVES=z is not None, **shapes,
            )  # fmt: skip
        return self._tokens(dk), self._tokens(dv), self._tokens(parts.sum(0))

    def when_read(self, terms: Tensor) -> Tensor:
        return self._moved(terms) if self._before else terms

    def _moved(self, terms: Tensor) -> Tensor:
        """Terms by token at the token before."""
        moved = torch.zeros_like(terms).flatten(0, 1)
        moved[:-1] = terms.flatten(0, 1)[1:]
        # What the first token of a sequence reads is no token's memory.
        moved[[end - 1 for end in self._tables.ends[1:] if end > 0]] = 0
        return moved.unflatten(0, self._shape)

    def later_tokens(self, terms: Tensor, last: Tensor) -> Tensor:
        """One sequence at a time: what is not finite stays with its own."""
        terms = terms.flatten(0, 1)
        parts = []
        for n, (begin, end) in enumerate(zip(self._tables.ends, self._tables.ends[1:])):
            parts.append(terms[begin:end].flip(0).cumsum(0).flip(0) + last[n])
        return torch.cat(parts).unflatten(0, self._shape)


class _Prefixes:
    def __init__(self, passes: Passes, states: Tensor, ridge: Tensor | None) -> None:
        self._passes, self._factors, self._ridge = passes, states, ridge
        k, heads, chunks = passes._k, passes._heads, passes._tables
        key, c = k.shape[-1], passes._size
        self._bad = torch.zeros(1, dtype=torch.int32, device=k.device)
        self._shapes: dict[str, Any] = {
            "K": key, "P": states.shape[2], "SIZE": power(key), "BLOCK": 64 if key <= 64 else 32,
            "H": heads, "C": c, "FADES": passes._g is not None,
        }  # fmt: skip
        self._inners = states.new_empty(chunks.count, heads, c, c)
        self._u = states.new_empty(k.shape[0], heads, key)
        self._growths = states.new_empty(chunks.count, heads)
        _factor(states, key, self._bad)
        launches.launch(
            solve.gram, (chunks.count, heads), k, passes._w, passes._g, states, self._u,
            self._inners, self._growths, self._bad, chunks.chunks, least_left(torch.float32),
            _MOST_GROWTH if ridge is None else _MOST_GROWTH_WITH_RIDGE, HEADS=k.shape[1],
            WEIGHTED=passes._w is not None, num_stages=1, **self._shapes,
        )  # fmt: skip
        _factor(self._inners, c, self._bad)

    def solve(self, q: Tensor) -> Tensor:
        passes = self._passes
        q = passes._rows(q)
        queries = max(passes._heads, q.shape[1])
        x = q.new_empty(q.shape[0], queries, q.shape[2], dtype=torch.float32)
        grid = (passes._tables.count, queries)
        shapes = {
            "QUERIES": q.shape[1], "GROUPS": queries // passes._heads, "BEFORE": passes._before,
            "num_stages": 1, **self._shapes,
        }  # fmt: skip
        launches.launch(
            solve.solve, grid, q, self._u, passes._g, self._ridge, self._factors, self._inners, x,
            passes._tables.chunks, least_left(torch.float32), STAYS=self._ridge is not None, **shapes,
        )  # fmt: skip
        if self._ridge is None:
            shapes.pop("BLOCK")
            launches.launch(
                solve.refine, grid, q, self._u, passes._g, self._growths, self._factors, self._inners, x,
                passes._tables.chunks, GROWTH, ROUNDS=_ROUNDS, num_warps=8, **shapes,
            )  # fmt: skip
        return passes._tokens(x)

    def sound(self) -> bool:
        return not bool(self._bad)


def _factor(matrices: Tensor, size: int, bad: Tensor) -> None:
    rounding = least_pivot(size, torch.float32)
    launches.launch(
        factor.factor, (matrices.shape[0] * matrices.shape[1],), matrices, bad, rounding,
        SIZE=size, P=matrices.shape[2], B=16, num_warps=1,
    )  # fmt: skip
