"""Packed sequences in the two ways that they are written."""

from __future__ import annotations

import torch
from torch import Tensor


def cu_seqlens_of(seq_idx: Tensor) -> Tensor:
    """The bounds [N + 1] (int64) of packed sequences whose tokens are numbered: `seq_idx` [1, T] or
    [T], in which a sequence is a run of one number.

    ValueError: of several rows, or of no whole numbers.
    """
    if seq_idx.dim() == 2 and seq_idx.shape[0] == 1:
        seq_idx = seq_idx[0]
    if seq_idx.dim() != 1 or seq_idx.is_floating_point() or seq_idx.is_complex():
        raise ValueError(
            "seq_idx must be [1, T] or [T] of whole numbers but is "
            f"{seq_idx.dtype} {list(seq_idx.shape)}"
        )
    tokens = seq_idx.shape[0]
    starts = torch.nonzero(seq_idx[1:] != seq_idx[:-1])[:, 0] + 1
    ends = starts.new_tensor([tokens])
    return torch.cat([starts.new_zeros(1), starts, ends])
