"""The cross entropy of a head whose logits are never there as a whole."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

#: Logits that are there at a time: 16 MiB of float32. More of them gain no speed.
MOST_LOGITS = 1 << 22


def is_large(rows: int, vocabulary: int) -> bool:
    """Whether so many rows of logits are made in pieces."""
    return rows * vocabulary > MOST_LOGITS


def in_pieces(
    loss_of: Callable[[Tensor, Tensor], Tensor], features: Tensor, targets: Tensor, vocabulary: int
) -> Tensor:
    """The sum of loss_of(rows of features [N, D], their targets [N]) over pieces of at most `MOST_LOGITS`
    logits, each of which gradients run a second time: four products of matrices in place of three, and memory
    for a piece in place of N V logits and their gradients. (PyTorch's own linear_cross_entropy takes five
    times as long on a CPU, and has no torch.compile.)"""
    total = features.new_zeros((), dtype=torch.promote_types(features.dtype, torch.float32))
    size = max(1, MOST_LOGITS // vocabulary)
    for some, theirs in zip(features.split(size), targets.split(size)):
        total = total + checkpoint(loss_of, some, theirs, use_reentrant=False)
    return total


def cross_entropy(
    features: Tensor, head: Callable[[Tensor], Tensor], vocabulary: int, targets: Tensor
) -> Tensor:
    """The mean over rows of -log softmax(head(f))[target], in nats.

    features [N, D], head(features) [N, V], targets [N] of whole numbers in 0 .. V - 1; in pieces where there
    are more logits than `MOST_LOGITS`.
    """
    rows = len(features)
    if not is_large(rows, vocabulary):
        return F.cross_entropy(head(features), targets)

    def sum_of(some: Tensor, theirs: Tensor) -> Tensor:
        return F.cross_entropy(head(some), theirs, reduction="sum")

    return (in_pieces(sum_of, features, targets, vocabulary) / rows).to(features.dtype)
