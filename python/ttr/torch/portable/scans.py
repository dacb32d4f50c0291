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


def chunked_linear_scan(
    factors: Tensor, terms: Tensor, start: Tensor, chunk: int = 64
) -> tuple[Tensor, Tensor]:
    """linear_scan from h = ``start`` [..., D]: all h [..., T, D], and the last.

    Chunks are scanned together, then the chunks' last states one after another.
    """
    length = terms.shape[-2]
    whole = length // chunk * chunk
    pieces = [terms[..., :0, :]]
    for begin, end, size in ((0, whole, chunk), (whole, length, length - whole)):
        if begin == end:
            continue
        cut = (x[..., begin:end, :].unflatten(-2, (-1, size)) for x in (factors, terms))
        local, products = linear_scan(*cut)
        for n in range(local.shape[-3]):
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
        terms = torch.cat(
            [terms[..., :shift], torch.maximum(late, _sum(old, terms[..., :-shift]))], -1
        )
        decays = torch.cat([decays[..., :shift], _sum(old, decays[..., :-shift])], -1)
        shift *= 2
    return torch.maximum(terms, _sum(decays, start.unsqueeze(-1)))


def _sum(decay: Tensor, value: Tensor) -> Tensor:
    return torch.where(decay == -torch.inf, -torch.inf, decay + value)
