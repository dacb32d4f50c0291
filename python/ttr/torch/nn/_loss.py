"""The cross entropy of a head whose logits are never there as a whole."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

#: Logits that are there at a time: 16 MiB of float32. More of them gain no speed.
MOST_LOGITS = 1 << 22


def cross_entropy(features: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """The mean over rows of -log softmax(W f)[target], in nats.

    features [N, D], weight W [V, D], targets [N] of whole numbers in 0 .. V - 1. Where N V is above
    `MOST_LOGITS`, rows go through the head in pieces, which gradients run a second time: four products of
    matrices in place of three, and memory for a piece in place of N V logits and their gradients.
    (PyTorch's own linear_cross_entropy takes five times as long on a CPU, and has no torch.compile.)
    """
    rows, vocabulary = len(features), len(weight)
    if rows * vocabulary <= MOST_LOGITS:
        return F.cross_entropy(F.linear(features, weight), targets)
    total = features.new_zeros((), dtype=torch.promote_types(features.dtype, torch.float32))
    size = max(1, MOST_LOGITS // vocabulary)
    for some, theirs in zip(features.split(size), targets.split(size)):
        total = total + checkpoint(_sum, some, weight, theirs, use_reentrant=False)
    return (total / rows).to(features.dtype)


def _sum(features: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(features, weight), targets, reduction="sum")
