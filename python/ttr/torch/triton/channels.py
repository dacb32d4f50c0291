"""Memories of which each key channel fades for itself: factors, scores and products through them.

    P_ti = sum_c x_tc k_ic e^{G_tc - G_ic}        and the two sums over i and over t of its gradient

Neither e^{G_t} nor e^{-G_i} alone can be held. Rows of a later half therefore meet columns of the
earlier one where both touch, for halves of 1, 2, 4, ... tokens: both only fade up to there, by sums of
their own logarithms, of which none is a difference. portable/decays.py does the same.
"""

# mypy: ignore-errors
import triton
import triton.language as tl

from .rows import left_at_end, left_of_start, load_rows, product


@triton.jit
def load_gates(
    g, begin, end, head, HEADS: tl.constexpr, D: tl.constexpr, C: tl.constexpr, first, SIZE: tl.constexpr,
    SHIFT: tl.constexpr,
):  # fmt: skip
    """[C, SIZE] in float32: logarithms of rows SHIFT later; 0 beyond the chunk on either side."""
    row = begin + SHIFT + tl.arange(0, C)
    channel = first + tl.arange(0, SIZE)
    at = (row.to(tl.int64) * HEADS + head)[:, None] * D + channel[None, :]
    inside = ((row >= begin) & (row < end))[:, None] & (channel < D)[None, :]
    return tl.load(g + at, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def from_start(
    g, begin, end, head, HEADS: tl.constexpr, D: tl.constexpr, C: tl.constexpr, first, SIZE: tl.constexpr,
    FADES: tl.constexpr, BEFORE: tl.constexpr,
):  # fmt: skip
    """[C, 1] or, FADES == 2, [C, SIZE] channels from ``first`` on: the factor from the chunk's start to
    each row, as it was left or, BEFORE, found."""
    if FADES == 2:
        if BEFORE:
            log = load_gates(g, begin, end, head, HEADS, D, C, first, SIZE, -1)
        else:
            log = load_gates(g, begin, end, head, HEADS, D, C, first, SIZE, 0)
        return tl.exp(tl.cumsum(log, 0))
    else:
        return left_of_start(g, begin, end, head, HEADS, C, FADES, BEFORE)[:, None]


@triton.jit
def to_end(
    g, begin, end, head, HEADS: tl.constexpr, D: tl.constexpr, C: tl.constexpr, first, SIZE: tl.constexpr,
    FADES: tl.constexpr,
):  # fmt: skip
    """[C, 1] or, FADES == 2, [C, SIZE] channels from ``first`` on: the factor from each row to the chunk's
    end."""
    if FADES == 2:
        log = load_gates(g, begin, end, head, HEADS, D, C, first, SIZE, 1)
        return tl.exp(tl.cumsum(log, 0, reverse=True))
    else:
        return left_at_end(g, begin, end, head, HEADS, C, FADES)[:, None]


@triton.jit
def _finite(log):
    """Logarithms of which a product with 0 is 0; e to the least of them is 0, too."""
    return tl.maximum(log, -200.0)


@triton.jit
def _sum_within(log, half, C: tl.constexpr, KIND: tl.constexpr):
    """e to the sums of logarithms [C, SIZE] over rows of each row's own half: up to it (KIND 0), before
    it (1), behind it (2)."""
    t, s = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    own = t // half == s // half
    if KIND == 0:
        summed = own & (s <= t)
    elif KIND == 1:
        summed = own & (s < t)
    else:
        summed = own & (s > t)
    return tl.exp(product(tl.where(summed, 1.0, 0.0), log))


@triton.jit
def _touches(later, earlier, half):
    """Whether rows are of the later and of the earlier half of the same two."""
    return (later // half == earlier // half + 1) & ((later // half) % 2 == 1)


@triton.jit
def mixed(
    p, x, g, begin, end, head, HEADS: tl.constexpr, D: tl.constexpr, C: tl.constexpr, first,
    SIZE: tl.constexpr, BACK: tl.constexpr, BEFORE: tl.constexpr, STRICT: tl.constexpr,
):  # fmt: skip
    """Channels [C, SIZE] from ``first`` on of sum_i p_ti e^{G_t - G_i} x_i or, BACK, with p_it and x_t,
    of sum_t p_it e^{G_t - G_i} x_t."""
    READS: tl.constexpr = 1 if BEFORE else 0
    t, i = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    total = tl.zeros([C, SIZE], tl.float32)
    if not BEFORE and not STRICT:
        total += tl.sum(tl.where(t == i, p, 0.0), 1)[:, None] * x
    log = _finite(load_gates(g, begin, end, head, HEADS, D, C, first, SIZE, 0))
    half = 1
    while half < C:
        late, early = _sum_within(log, half, C, READS), _sum_within(log, half, C, 2)
        if BACK:
            total += early * product(tl.where(_touches(i, t, half), p, 0.0), late * x)
        else:
            total += late * product(tl.where(_touches(t, i, half), p, 0.0), early * x)
        half *= 2
    return total


@triton.jit
def scores(
    x, k, g, out, chunks,
    H: tl.constexpr, GROUPS: tl.constexpr, X_HEADS: tl.constexpr, K_HEADS: tl.constexpr,
    K: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr, BEFORE: tl.constexpr, STRICT: tl.constexpr,
):  # fmt: skip
    """P of a chunk of one query head, out [n, H GROUPS, C, C], 0 where row t does not see i."""
    READS: tl.constexpr = 1 if BEFORE else 0
    chunk, query = tl.program_id(0), tl.program_id(1)
    head = query // GROUPS
    begin, end = tl.load(chunks + 2 * chunk), tl.load(chunks + 2 * chunk + 1)
    t, i = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    total = tl.zeros([C, C], tl.float32)
    for first in range(0, K, BLOCK):
        rows = load_rows(x, begin, end, query // (H * GROUPS // X_HEADS), X_HEADS, K, C, first, BLOCK).to(tl.float32)
        keys = load_rows(k, begin, end, head // (H // K_HEADS), K_HEADS, K, C, first, BLOCK).to(tl.float32)
        if not BEFORE and not STRICT:
            total += tl.where(t == i, tl.sum(rows * keys, 1)[:, None], 0.0)
        log = _finite(load_gates(g, begin, end, head, H, K, C, first, BLOCK, 0))
        half = 1
        while half < C:
            late, early = _sum_within(log, half, C, READS), _sum_within(log, half, C, 2)
            met = product(late * rows, tl.trans(early * keys))
            total += tl.where(_touches(t, i, half), met, 0.0)
            half *= 2
    at = out + (chunk.to(tl.int64) * H * GROUPS + query) * C * C
    tl.store(at + t * C + i, total)
