"""Rows of a state that a call takes by index."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

#: Rows from so many bytes on are stepped where they lie, one by one: a copy would cost more.
_LARGE = 1 << 17


def by_rows(
    argument: str,
    indices: Tensor,
    pad: int,
    state: Tensor,
    like: Tensor,
    inputs: Sequence[Tensor | None],
    call: Callable[..., Tensor],
) -> Tensor:
    """`call(rows, *inputs)`, which updates its rows, with state[indices[b]] for row b of the inputs.

    Rows of the batch with index `pad` are not looked at, and their answers are 0. `argument` is the
    function and the name of the indices, as "function indices". ValueError, before any work: indices
    out of range, or equal; another shape or dtype.
    """
    kept, rows = _taken(argument, indices, pad, len(like), len(state))
    out = torch.zeros_like(like)
    if kept and state[0].nbytes >= _LARGE:
        for b, row in zip(kept, rows):
            part = (None if t is None else t[b : b + 1] for t in inputs)
            out[b : b + 1] = call(state[row : row + 1], *part)
    elif kept:
        all_of_them = len(kept) == len(like)
        part = (t if t is None or all_of_them else t[kept] for t in inputs)
        held = state[rows]
        out[kept] = call(held, *part)
        state[rows] = held
    return out


def _taken(
    argument: str, indices: Tensor, pad: int, batch: int, count: int
) -> tuple[list[int], list[int]]:
    """The rows of the batch that are no padding, and the rows of the state that are theirs."""
    function, name = argument.split()

    def refuse(required: str, given: object) -> None:
        raise ValueError(f"[{function}] {name} must be {required} but is {given}")

    if indices.dtype not in (torch.int32, torch.int64) or indices.shape != (batch,):
        given = f"{indices.dtype} {list(indices.shape)}"
        refuse(f"int32 or int64 [{batch}], one for each row of the batch,", given)
    kept = [(b, row) for b, row in enumerate(indices.tolist()) if row != pad]
    seen: set[int] = set()
    for _, row in kept:
        if not 0 <= row < count:
            refuse(f"from 0 to {count - 1}, or {pad} for padding,", row)
        if row in seen:
            refuse("different ones", f"twice {row}")
        seen.add(row)
    return [b for b, _ in kept], [row for _, row in kept]
