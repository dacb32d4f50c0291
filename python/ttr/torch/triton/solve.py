"""The prefix solve of a chunk, from W with W A_0 W^T = 1 and c, what is left of A_0 at each token:

    U = sqrt(w / c) K W^T,   V (1 + U U^T) V^T = 1,   G = V U
    X = 1/c (Q W^T - tril(Q W^T G^T) G) W
"""

# mypy: ignore-errors
import math

import triton
import triton.language as tl

from .rows import left_of_start, load_matrix, load_numbers, load_rows, product, store_rows, weights


#: log(2 / eps) of float32: what an iteration has to make of its first error.
_DIGITS = tl.constexpr(math.log(2**24))


@triton.jit
def _lower(x, P: tl.constexpr, first, ROWS: tl.constexpr, SIZE: tl.constexpr):
    """Rows from ``first`` on of a lower triangular P x P."""
    row, column = first + tl.arange(0, ROWS), tl.arange(0, SIZE)
    return tl.where(row[:, None] >= column[None, :], load_matrix(x, P, row, P, column), 0.0)


@triton.jit
def gram(
    k, w, g, factors, u, out, growths, bad, chunks, least, most,
    H: tl.constexpr, HEADS: tl.constexpr, K: tl.constexpr, P: tl.constexpr, C: tl.constexpr,
    SIZE: tl.constexpr, BLOCK: tl.constexpr, WEIGHTED: tl.constexpr, FADES: tl.constexpr,
):  # fmt: skip
    """u [R, H, K] of a chunk, out[chunk, head] = 1 + U U^T, [C, C], and its greatest diagonal entry,
    growths [n, H]. ``bad`` is set to 1 where not more than ``least`` of the memory is left at the
    chunk's end, or the growth is not below ``most``."""
    chunk, head = tl.program_id(0), tl.program_id(1)
    begin, end = tl.load(chunks + 2 * chunk), tl.load(chunks + 2 * chunk + 1)
    memory = chunk.to(tl.int64) * H + head
    left = left_of_start(g, begin, end, head, H, C, FADES, False)
    if FADES:
        if (tl.min(left, 0) > least) == 0:
            tl.store(bad, 1)
    scale = tl.sqrt(weights(w, begin, end, head, H, C, WEIGHTED) / left)
    keys = load_rows(k, begin, end, head // (H // HEADS), HEADS, K, C, 0, SIZE)
    t, i = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    total = tl.where(t == i, 1.0, 0.0)
    for first in range(0, P, BLOCK):
        lower = _lower(factors + memory * P * P, P, first, BLOCK, SIZE)
        part = product(keys, tl.trans(lower)) * scale[:, None]
        total += product(part, tl.trans(part))
        store_rows(u, part, begin, end, head, H, K, C, first, BLOCK)
    tl.store(out + memory * C * C + t * C + i, total)
    growth = tl.max(tl.sum(tl.where(t == i, total, 0.0), 1), 0)
    tl.store(growths + memory, growth)
    if (growth < most) == 0:
        tl.store(bad, 1)


@triton.jit
def _nested(
    rows, inner, u, factors, left, begin, end, head,
    H: tl.constexpr, K: tl.constexpr, P: tl.constexpr, C: tl.constexpr, SIZE: tl.constexpr,
    BLOCK: tl.constexpr, BEFORE: tl.constexpr,
):  # fmt: skip
    """A_t^-1 of the rows t of a chunk, [C, SIZE]; inner: V."""
    t, i = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    if BEFORE:
        sees = i < t
    else:
        sees = i <= t
    if P <= BLOCK:
        lower = _lower(factors, P, 0, SIZE, SIZE)
        white = product(rows, tl.trans(lower))
        found = product(inner, load_rows(u, begin, end, head, H, K, C, 0, SIZE))
        seen = tl.where(sees, product(white, tl.trans(found)), 0.0)
        total = product(white - product(seen, found), lower)
    else:
        seen = tl.zeros([C, C], tl.float32)
        for first in range(0, P, BLOCK):
            white = product(rows, tl.trans(_lower(factors, P, first, BLOCK, SIZE)))
            found = product(inner, load_rows(u, begin, end, head, H, K, C, first, BLOCK))
            seen += product(white, tl.trans(found))
        seen = tl.where(sees, seen, 0.0)
        total = tl.zeros([C, SIZE], tl.float32)
        for first in range(0, P, BLOCK):
            lower = _lower(factors, P, first, BLOCK, SIZE)
            white = product(rows, tl.trans(lower))
            found = product(inner, load_rows(u, begin, end, head, H, K, C, first, BLOCK))
            total += product(white - product(seen, found), lower)
    return total / left[:, None]


@triton.jit
def solve(
    q, u, g, ridge, factors, inners, x, chunks, least,
    H: tl.constexpr, QUERIES: tl.constexpr, GROUPS: tl.constexpr,
    K: tl.constexpr, P: tl.constexpr, C: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr,
    BEFORE: tl.constexpr, FADES: tl.constexpr, STAYS: tl.constexpr,
):  # fmt: skip
    """x_t = A_t^-1 q_t for a chunk of one query head or, where a ridge STAYS while A fades,
    (A_t + R)^-1 q_t.

    The factors are then those of A_t + h R, h = c / sqrt(c at the chunk's end), and x is reached by
    Chebyshev's iteration on 1 + (A_t + h R)^-1 (1 - h) R, whose eigenvalues are between 1 and 1/h.
    """
    chunk, query = tl.program_id(0), tl.program_id(1)
    head = query // GROUPS
    begin, end = tl.load(chunks + 2 * chunk), tl.load(chunks + 2 * chunk + 1)
    memory = chunk.to(tl.int64) * H + head
    factors += memory * P * P
    rows = load_rows(q, begin, end, query // (H * GROUPS // QUERIES), QUERIES, K, C, 0, SIZE)
    inner = _lower(inners + memory * C * C, C, 0, C, C)
    left = left_of_start(g, begin, end, head, H, C, FADES, BEFORE)
    first = _nested(rows, inner, u, factors, left, begin, end, head, H, K, P, C, SIZE, BLOCK, BEFORE)
    if STAYS:
        last = tl.exp(tl.sum(load_numbers(g, begin, end, head, H, C, 0), 0))
        held = left * tl.rsqrt(last)
        channel = tl.arange(0, SIZE)
        own = tl.load(ridge + head * K + channel, mask=channel < K, other=0.0)
        missing = (1 - held)[:, None] * own[None, :]
        centre = ((1 + 1 / held) / 2)[:, None]
        square = (centre - 1) * (centre - 1) / (centre * centre)
        root = tl.exp(-0.25 * tl.log(tl.maximum(least, tl.minimum(last, 1 - 1e-6))))
        steps = 2 + (1 / tl.log((root + 1) / (root - 1)) * _DIGITS).to(tl.int32)
        before = tl.zeros([C, SIZE], tl.float32)
        total = first / centre
        weight = tl.full([C, 1], 2.0, tl.float32)
        for _ in range(1, steps):
            weight = 4 / (4 - square * weight)
            again = _nested(
                missing * total, inner, u, factors, left, begin, end, head, H, K, P, C, SIZE, BLOCK, BEFORE
            )
            step = weight * (total - before + (first - total - again) / centre)
            following = step + before
            before = total
            total = following
        first = total
    store_rows(x, first, begin, end, query, H * GROUPS, K, C, 0, SIZE)


@triton.jit
def _exact(a, b):
    """a b without tensor cores, whose pieces of matrices would not fit beside each other. Chunks that
    are refined are few."""
    return tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision="ieee")


@triton.jit
def _seen(rows, of, sees):
    """tril(rows of^T) of."""
    return _exact(tl.where(sees, _exact(rows, tl.trans(of)), 0.0), of)


@triton.jit
def refine(
    q, u, g, growths, factors, inners, x, chunks, outgrown,
    H: tl.constexpr, QUERIES: tl.constexpr, GROUPS: tl.constexpr,
    K: tl.constexpr, P: tl.constexpr, C: tl.constexpr, SIZE: tl.constexpr,
    BEFORE: tl.constexpr, FADES: tl.constexpr, ROUNDS: tl.constexpr,
):  # fmt: skip
    """x_t = A_t^-1 q_t anew for chunks whose growth is above ``outgrown``, X = 1/c Y W: Y is a small
    difference there, and its residuals are solved for, too."""
    chunk, query = tl.program_id(0), tl.program_id(1)
    head = query // GROUPS
    memory = chunk.to(tl.int64) * H + head
    if tl.load(growths + memory) <= outgrown:
        return
    begin, end = tl.load(chunks + 2 * chunk), tl.load(chunks + 2 * chunk + 1)
    t, i = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    if BEFORE:
        sees = i < t
    else:
        sees = i <= t
    rows = load_rows(q, begin, end, query // (H * GROUPS // QUERIES), QUERIES, K, C, 0, SIZE)
    lower = _lower(factors + memory * P * P, P, 0, SIZE, SIZE)
    white = _exact(rows, tl.trans(lower))
    written = load_rows(u, begin, end, head, H, K, C, 0, SIZE)
    found = _exact(_lower(inners + memory * C * C, C, 0, C, C), written)
    y = white - _seen(white, found, sees)
    for _ in range(ROUNDS):
        residual = white - y - _seen(y, written, sees)
        y += residual - _seen(residual, found, sees)
    left = left_of_start(g, begin, end, head, H, C, FADES, BEFORE)
    store_rows(x, _exact(y, lower) / left[:, None], begin, end, query, H * GROUPS, K, C, 0, SIZE)
