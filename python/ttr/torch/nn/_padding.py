"""Which tokens of a batch are real: `attention_mask` and `lengths`.

The tokens of all rows that are real, side by side, are one packed sequence, which every recipe takes:
a token that is not in it is not memorized, decays nothing, moves no position and is in no window of a
convolution. Wherever padding stands, left, right or between, nothing else has to know of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ._sizes import refuse


class Padding:
    """A batch [B, T, ...] as its real tokens [1, N, ...], and the way back.

    mask is bool [B, T]. `cu_seqlens` [B + 1] has the bounds of every row among the N.
    """

    def __init__(self, mask: Tensor) -> None:
        self.shape = mask.shape
        self.places = mask.flatten().nonzero()[:, 0]
        self.cu_seqlens = F.pad(mask.sum(1).cumsum(0), (1, 0))

    def pack(self, x: Tensor) -> Tensor:
        return x.flatten(0, 1).index_select(0, self.places)[None]

    def unpack(self, y: Tensor) -> Tensor:
        """[B, T, ...], zeros at padding."""
        rows = y.new_zeros(self.shape.numel(), *y.shape[2:])
        return rows.index_copy(0, self.places, y[0]).view(*self.shape, *y.shape[2:])


def whole_tokens(tokens: Any, argument: str, op: str) -> Tensor:
    """tokens [B, T] as an embedding and a loss take them. ValueError: what are no whole numbers [B, T]."""
    if not isinstance(tokens, Tensor):
        refuse(argument, "a tensor [B,T] of whole numbers", type(tokens).__name__, op)
    if tokens.dim() != 2 or tokens.is_floating_point() or tokens.is_complex() or tokens.dtype == torch.bool:
        refuse(argument, "[B,T] of whole numbers", f"{tokens.dtype} {list(tokens.shape)}", op)
    return tokens.long()


def bounds_of(op: str, cu_seqlens: Tensor | Sequence[int] | None, rows: Tensor) -> Tensor | None:
    """The bounds of packed sequences as a tensor; which numbers they are is the operators' to check.
    ValueError: what is none."""
    if cu_seqlens is None:
        return None
    bounds = _tensor(cu_seqlens, rows)
    if bounds.dim() != 1 or len(bounds) < 2 or bounds.dtype not in (torch.int32, torch.int64):
        given = f"{bounds.dtype} {list(bounds.shape)}"
        refuse("cu_seqlens", "[N+1] of int32 or int64, N >= 1,", given, op)
    return bounds


def real_tokens(
    op: str,
    rows: Tensor,
    attention_mask: Tensor | Sequence[Any] | None,
    lengths: Tensor | Sequence[Any] | None,
) -> Tensor | None:
    """Which tokens of rows [B, T, ...] are real, bool [B, T]; None where all are.

    ValueError that names the argument.
    """
    batch, tokens = rows.shape[:2]
    if attention_mask is not None:
        if lengths is not None:
            refuse("lengths", "absent where an attention_mask is given", lengths, op)
        mask = _of_mask(op, _tensor(attention_mask, rows), batch, tokens)
    elif lengths is not None:
        mask = _of_lengths(op, _tensor(lengths, rows), batch, tokens)
    else:
        return None
    return None if bool(mask.all()) else mask


def padding_of(
    op: str,
    rows: Tensor,
    cu_seqlens: Tensor | None,
    attention_mask: Tensor | Sequence[Any] | None,
    lengths: Tensor | Sequence[Any] | None,
) -> Padding | None:
    """The padding of rows [B, T, ...]; None where all tokens are real. ValueError that names the
    argument."""
    if cu_seqlens is not None and not (attention_mask is None and lengths is None):
        refuse("cu_seqlens", "absent where padding is given", list(cu_seqlens.shape), op)
    mask = real_tokens(op, rows, attention_mask, lengths)
    return None if mask is None else Padding(mask)


def _tensor(given: Any, rows: Tensor) -> Tensor:
    """What a caller may have as numbers in a list as well."""
    return given if isinstance(given, Tensor) else torch.as_tensor(given, device=rows.device)


def _of_mask(op: str, mask: Tensor, batch: int, tokens: int) -> Tensor:
    if mask.shape != (batch, tokens):
        refuse("attention_mask", f"[B,T] = [{batch},{tokens}]", list(mask.shape), op)
    if mask.is_floating_point() or mask.is_complex():
        refuse("attention_mask", "of bool, or of the whole numbers 0 and 1,", mask.dtype, op)
    if mask.dtype == torch.bool:
        return mask
    if bool(((mask != 0) & (mask != 1)).any()):
        low, high = int(mask.min()), int(mask.max())
        refuse("attention_mask", "of 0 and 1", f"of {low} .. {high}", op)
    return mask != 0


def _of_lengths(op: str, lengths: Tensor, batch: int, tokens: int) -> Tensor:
    whole = not (lengths.is_floating_point() or lengths.is_complex() or lengths.dtype == torch.bool)
    if lengths.shape != (batch,) or not whole:
        refuse(
            "lengths",
            f"whole numbers [B] = [{batch}]",
            f"{lengths.dtype} {list(lengths.shape)}",
            op,
        )
    if batch and not 0 <= int(lengths.min()) <= int(lengths.max()) <= tokens:
        refuse("lengths", f"in 0 .. T = {tokens}", lengths.tolist(), op)
    return torch.arange(tokens, device=lengths.device) < lengths[:, None]
