"""The memory before each piece, from the summaries of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

import torch
import torch.distributed as dist
from torch import Tensor

from .._derivatives import once

#: (memory before a piece, its summary) -> memory behind it.
Fold = Callable[[Sequence[Tensor], Sequence[Tensor]], "list[Tensor]"]


def carry(
    fold: Fold, start: Sequence[Tensor], summary: Sequence[Tensor], group: Any
) -> list[Tensor]:
    """The memory before this rank's piece: `start` folded with the summaries of the ranks before.

    `start` is the same on every rank; its gradient is on rank 0, zero on the others. Collective,
    backward too: every rank of the group calls backward, once.
    """
    return list(_Carry.apply(fold, group, len(start), *start, *summary))  # type: ignore[no-untyped-call]


class _Carry(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, fold: Fold, group: Any, count: int, *tensors: Tensor) -> Any:
        start, summary = tensors[:count], tensors[count:]
        summaries = _gathered(summary, group)
        before = list(start)
        for earlier in summaries[: dist.get_rank(group)]:
            before = fold(before, earlier)
        ctx.set_materialize_grads(False)
        ctx.fold, ctx.group, ctx.count = fold, group, count
        ctx.save_for_backward(*start, *(t for piece in summaries for t in piece))
        return tuple(t.clone() if t is s else t for t, s in zip(before, start))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        # What each rank's piece asks of the memory before it; then every rank has all that it takes
        # to go back through the fold.
        rank, count = dist.get_rank(ctx.group), ctx.count
        saved = [t.detach() for t in ctx.saved_tensors]
        start, flat = saved[:count], saved[count:]
        size = len(flat) // dist.get_world_size(ctx.group)
        summaries = [flat[i : i + size] for i in range(0, len(flat), size)]
        asked = _gathered(
            [torch.zeros_like(s) if g is None else g.detach() for s, g in zip(start, gradients)], ctx.group
        )
        with torch.enable_grad():
            leaves = [t.requires_grad_() for t in (*start, *summaries[rank])]
            before, ends = list(start), list(start)
            for summary in summaries[:-1]:
                before = ctx.fold(before, summary)
                ends += before
            of_leaves = torch.autograd.grad(
                ends, leaves, [g for piece in asked for g in piece], allow_unused=True
            )
        wanted = ctx.needs_input_grad[3:]
        made = [
            torch.zeros_like(leaf) if needed and (g is None or (i < count and rank > 0)) else g
            for i, (leaf, g, needed) in enumerate(zip(leaves, of_leaves, wanted))
        ]
        return (None, None, None, *once(made, (*ctx.saved_tensors, *gradients)))


def _gathered(tensors: Sequence[Tensor], group: Any) -> list[list[Tensor]]:
    """Those of every rank, by rank: one collective of one flat tensor."""
    flat = torch.cat([t.reshape(-1) for t in tensors])
    everywhere = [torch.empty_like(flat) for _ in range(dist.get_world_size(group))]
    dist.all_gather(everywhere, flat.contiguous(), group=group)
    sizes = [t.numel() for t in tensors]
    return [
        [part.view_as(t) for part, t in zip(torch.split(piece, sizes), tensors)] for piece in everywhere
    ]
