"""How what was written fades inside of a chunk of C rows and over it.

A memory's state has shape [B, H, 1, Ks, V]; rows of a chunk are [B, H, G, n, C, K], n chunks at a
time. Each class answers the same five questions. ``at`` says as of when a row sees the memory:

    "after"    as row i left it
    "before"   as row i - 1 left it
    "decayed"  between: faded by row i, not yet written

No factor is ever divided by, and no sum of logarithms is a difference of two larger ones: a decay
of 0 (-inf), and 70 orders of magnitude within a chunk, are as exact as any.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor


class Decay(Protocol):
    """What a chunk asks of a decay."""

    def scores(self, rows: Tensor, columns: Tensor, at: str) -> Tensor:
        """[..., C, C]: row i . (column j, faded from j to i), 0 where row i does not see j yet."""

    def to_rows(self, rows: Tensor, at: str) -> Tensor:
        """[..., C, Ks]: rows that read the state of the chunk's start as it is at each of them."""

    def to_end(self, columns: Tensor) -> Tensor:
        """[..., C, Ks]: columns, faded to the chunk's end."""

    def keep(self, state: Tensor, n: int) -> Tensor:
        """The state at the start of chunk n, faded to its end."""


def _shifted(x: Tensor, first: float) -> Tensor:
    """Row i - 1 of [..., C, D] in the place of row i; ``first`` in that of the first."""
    return torch.cat([torch.full_like(x[..., :1, :], first), x[..., :-1, :]], -2)


def reverse_cumsum(x: Tensor) -> Tensor:
    """Sums over the rows after each one, itself left out."""
    later = torch.cat([x[..., 1:, :], torch.zeros_like(x[..., :1, :])], -2)
    return later.flip(-2).cumsum(-2).flip(-2)


class NoDecay:
    """Everything is kept."""

    def scores(self, rows: Tensor, columns: Tensor, at: str) -> Tensor:
        return (rows @ columns.transpose(-1, -2)).tril(0 if at == "after" else -1)

    def to_rows(self, rows: Tensor, at: str) -> Tensor:
        return rows

    def to_end(self, columns: Tensor) -> Tensor:
        return columns

    def keep(self, state: Tensor, n: int) -> Tensor:
        return state


class ScalarDecay:
    """One factor exp(g) for the whole memory: ``log_decay`` [B, H, 1, n, C, 1]."""

    def __init__(self, log_decay: Tensor) -> None:
        size = log_decay.shape[-2]
        # Column j of row i: the sum of g over j+1 .. i.
        later = log_decay.expand(*log_decay.shape[:-1], size).tril(-1)
        self._between = later.cumsum(-2).exp().tril()
        self._start = log_decay.cumsum(-2).exp()

    def scores(self, rows: Tensor, columns: Tensor, at: str) -> Tensor:
        return rows @ columns.transpose(-1, -2) * self.between(at)

    def between(self, at: str) -> Tensor:
        """[..., C, C]: the factor from column j to row i, 0 where row i does not see j."""
        if at == "before":
            return _shifted(self._between, 0)
        return self._between if at == "after" else self._between.tril(-1)

    def from_start(self, at: str) -> Tensor:
        """[..., C, 1]: the factor from the chunk's start to row i."""
        return _shifted(self._start, 1) if at == "before" else self._start

    def to_rows(self, rows: Tensor, at: str) -> Tensor:
        return rows * self.from_start(at)

    def to_end(self, columns: Tensor) -> Tensor:
        return columns * self._between[..., -1, :, None]

    def keep(self, state: Tensor, n: int) -> Tensor:
        return state * self._start[..., n, -1:, :]


class ChannelDecay:
    """A factor exp(g) for each key channel: ``log_decay`` [B, H, 1, n, C, K].

    Scores are taken by halves: rows of a later half meet columns of an earlier one where the halves
    touch, so that both only fade. log2(C) products of matrices, none with an axis more.
    """

    def __init__(self, log_decay: Tensor) -> None:
        self._g = log_decay

    def scores(self, rows: Tensor, columns: Tensor, at: str) -> Tensor:
        size = rows.shape[-2]
        missing = (1 << (size - 1).bit_length()) - size
        g, rows, columns = (
            torch.nn.functional.pad(x, (0, 0, 0, missing)) for x in (self._g, rows, columns)
        )
        met = (rows * columns).sum(-1) if at == "after" else (rows * columns).sum(-1) * 0
        blocks = met[..., None, None]
        half = 1
        while half < rows.shape[-2]:
            blocks = self._doubled(blocks, g, rows, columns, half, at)
            half *= 2
        return blocks[..., 0, :size, :size]

    @staticmethod
    def _doubled(
        blocks: Tensor, g: Tensor, rows: Tensor, columns: Tensor, half: int, at: str
    ) -> Tensor:
        """Diagonal blocks of twice the size from those of ``half`` rows."""
        g, rows, columns = (x.unflatten(-2, (-1, 2, half)) for x in (g, rows, columns))
        own = g[..., 1, :, :].cumsum(-2)
        late = rows[..., 1, :, :] * (_shifted(own, 0) if at == "before" else own).exp()
        early = columns[..., 0, :, :] * reverse_cumsum(g[..., 0, :, :]).exp()
        corner = late @ early.transpose(-1, -2)
        first, second = blocks[..., 0::2, :, :], blocks[..., 1::2, :, :]
        upper = torch.cat([first, torch.zeros_like(first)], -1)
        return torch.cat([upper, torch.cat([corner, second], -1)], -2)

    def to_rows(self, rows: Tensor, at: str) -> Tensor:
        own = self._g.cumsum(-2)
        return rows * (_shifted(own, 0) if at == "before" else own).exp()

    def to_end(self, columns: Tensor) -> Tensor:
        return columns * reverse_cumsum(self._g).exp()

    def keep(self, state: Tensor, n: int) -> Tensor:
        return state * self._g[..., n, :, :].sum(-2).exp().unsqueeze(-1)


class ComplexDecay:
    """exp(g + i phase) for each key channel: a real decay of twice the channels.

    Rows and columns are seen from a frame that rotates with the phases of their chunk. The state is
    its real part above its imaginary part.
    """

    def __init__(self, log_decay: Tensor, phase: Tensor) -> None:
        self._real = ChannelDecay(torch.cat([log_decay, log_decay], -1))
        self._angle = phase.cumsum(-2)

    @staticmethod
    def _turned(x: Tensor, angle: Tensor) -> Tensor:
        return torch.cat([x * angle.cos(), x * angle.sin()], -1)

    def _rows(self, rows: Tensor, at: str) -> Tensor:
        return self._turned(rows, -(_shifted(self._angle, 0) if at == "before" else self._angle))

    def scores(self, rows: Tensor, columns: Tensor, at: str) -> Tensor:
        return self._real.scores(self._rows(rows, at), self._turned(columns, -self._angle), at)

    def to_rows(self, rows: Tensor, at: str) -> Tensor:
        return self._real.to_rows(self._rows(rows, at), at)

    def to_end(self, columns: Tensor) -> Tensor:
        return self._real.to_end(self._turned(columns, self._angle[..., -1:, :] - self._angle))

    def keep(self, state: Tensor, n: int) -> Tensor:
        re, im = self._real.keep(state, n).chunk(2, -2)
        cos, sin = self._angle[..., n, -1, :, None].cos(), self._angle[..., n, -1, :, None].sin()
        return torch.cat([re * cos - im * sin, re * sin + im * cos], -2)


class ShrinkingDecay:
    """Weight decay and momentum, of one number a row each, beside a decay of the whole memory:

        M~ = exp(g) M',   G = momentum G' + update(M~),   M = shrink M~ + G

    ``factors`` [B, H, 1, n, C, 1] are any numbers, so they are multiplied and not summed as
    logarithms. With momentum the state is M above G.
    """

    def __init__(
        self, log_decay: Tensor | None, shrink: Tensor | None, momentum: Tensor | None
    ) -> None:
        given = next(x for x in (log_decay, shrink, momentum) if x is not None)
        self._own = torch.ones_like(given) if log_decay is None else log_decay.exp()
        self._between, self._start = self._products(
            self._own if shrink is None else self._own * shrink
        )
        self._momenta = None if momentum is None else self._products(momentum)
        if self._momenta is not None:
            between, start = self._momenta
            self._started = self._between @ start  # of G, in M
            self._between = self._between @ between

    @staticmethod
    def _products(factors: Tensor) -> tuple[Tensor, Tensor]:
        """[..., C, C], the product of the factors j+1 .. i, and [..., C, 1], that of 0 .. i."""
        size = factors.shape[-2]
        eye = torch.eye(size, dtype=factors.dtype, device=factors.device)
        steps = eye - factors * eye.roll(-1, -1).tril()
        products = torch.linalg.solve_triangular(
            steps, eye.expand_as(steps), upper=False, unitriangular=True
        )
        return products, products[..., :, :1] * factors[..., :1, :]

    def _at(self, x: Tensor, first: float, at: str) -> Tensor:
        if at == "after":
            return x
        before = _shifted(x, first)
        return before if at == "before" else before * self._own

    def scores(self, rows: Tensor, columns: Tensor, at: str) -> Tensor:
        return rows @ columns.transpose(-1, -2) * self._at(self._between, 0, at)

    def to_rows(self, rows: Tensor, at: str) -> Tensor:
        of_memory = rows * self._at(self._start, 1, at)
        if self._momenta is None:
            return of_memory
        return torch.cat([of_memory, rows * self._at(self._started, 0, at)], -1)

    def to_end(self, columns: Tensor) -> Tensor:
        of_memory = columns * self._between[..., -1, :, None]
        if self._momenta is None:
            return of_memory
        return torch.cat([of_memory, columns * self._momenta[0][..., -1, :, None]], -1)

    def keep(self, state: Tensor, n: int) -> Tensor:
        if self._momenta is None:
            return state * self._start[..., n, -1:, :]
        memory, momentum = state.chunk(2, -2)
        kept = memory * self._start[..., n, -1:, :] + momentum * self._started[..., n, -1:, :]
        return torch.cat([kept, momentum * self._momenta[1][..., n, -1:, :]], -2)
