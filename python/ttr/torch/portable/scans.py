"""First-order recurrences over one axis by doubling: log2(T) passes of whole tensors.

Factors are multiplied and never divided by, so that a decay of exactly zero forgets everything and
nothing overflows.
"""

from __future__ import annotations

import torch
from torch import Tensor


def linear_scan(factors: Tensor, terms: Tensor) -> tuple[Tensor, Tensor]:
    """h_t = f_t h_{t-1} + b_t from h = 0 over axis -2 (T), and the running products of f.

    ``factors`` and ``terms`` broadcast but in T, which both have. Cost: T log2(T) multiply-adds.
    """
    length, shift = terms.shape[-2], 1
    while shift < length:
        old, late = factors[..., shift:, :], terms[..., shift:, :]
        terms = torch.cat([terms[..., :shift, :], late + old * terms[..., :-shift, :]], -2)
        factors = torch.cat([factors[..., :shift, :], old * factors[..., :-shift, :]], -2)
        shift *= 2
    return terms, factors


def chunked_linear_scan(factors: Tensor, terms: Tensor, start: Tensor, chunk: int = 64) -> tuple[Tensor, Tensor]:
    """The same from h = ``start`` [..., D]: all h [..., T, D], and the last.

    Chunks are scanned together, then the chunks' last states one after another.
    """
    length = terms.shape[-2]
    if length == 0:
        return terms, start
    pieces, whole = [], length // chunk * chunk
    for begin, size in ((0, chunk), (whole, length - whole)):
        count = (whole if begin == 0 else size) // max(1, size)
        if count == 0 or (begin == 0 and whole == 0):
            continue
        span = slice(begin, begin + count * size)
        f = factors[..., span, :].unflatten(-2, (count, size))
        b = terms[..., span, :].unflatten(-2, (count, size))
        local, products = linear_scan(f, b)
        for n in range(count):
            h = local[..., n, :, :] + products[..., n, :, :] * start.unsqueeze(-2)
            pieces.append(h)
            start = h[..., -1, :]
    return torch.cat(pieces, -2), start


def max_plus_scan(decays: Tensor, terms: Tensor, start: Tensor) -> Tensor:
    """m_t = max(d_t + m_{t-1}, b_t) over the last axis, from m = ``start`` [...].

    A decay of -inf forgets an infinite maximum, too.
    """
    length, shift = terms.shape[-1], 1
    while shift < length:
        old, late = decays[..., shift:], terms[..., shift:]
        terms = torch.cat([terms[..., :shift], torch.maximum(late, _sum(old, terms[..., :-shift]))], -1)
        decays = torch.cat([decays[..., :shift], _sum(old, decays[..., :-shift])], -1)
        shift *= 2
    return torch.maximum(terms, _sum(decays, start.unsqueeze(-1)))


def _sum(decay: Tensor, value: Tensor) -> Tensor:
    return torch.where(decay == -torch.inf, -torch.inf, decay + value)
