"""The prefix solve of a chunk, from W with W A_0 W^T = 1 and c, what is left of A_0 at each token:

    U = sqrt(w / c) K W^T,   V (1 + U U^T) V^T = 1,   N = V U W
    X = 1/c (Q W^T W - tril(Q N^T) N)

V's leading blocks are the inverse factors of every prefix.
"""

# mypy: ignore-errors
import triton
import triton.language as tl

from .rows import left_of_start, load_matrix, load_rows, product, store_rows, weights


@triton.jit
def _lower(x, P: tl.constexpr, first, ROWS: tl.constexpr, SIZE: tl.constexpr):
    """Rows from ``first`` on of a lower triangular P x P."""
    row, column = first + tl.arange(0, ROWS), tl.arange(0, SIZE)
    return tl.where(row[:, None] >= column[None, :], load_matrix(x, P, row, P, column), 0.0)


@triton.jit
def gram(
    k, w, g, factors, rows, out, bad, chunks, least,
    H: tl.constexpr, HEADS: tl.constexpr, K: tl.constexpr, P: tl.constexpr, C: tl.constexpr,
    SIZE: tl.constexpr, BLOCK: tl.constexpr, WEIGHTED: tl.constexpr, FADES: tl.constexpr,
):  # fmt: skip
    """rows [R, H, K] = U W of a chunk, and out[chunk, head] = 1 + U U^T, [C, C]. ``bad`` is set to 1
    where not more than ``least`` of the memory is left at the chunk's end."""
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
    back = tl.zeros([C, SIZE], tl.float32)
    for first in range(0, P, BLOCK):
        lower = _lower(factors + memory * P * P, P, first, BLOCK, SIZE)
        part = product(keys, tl.trans(lower)) * scale[:, None]
        total += product(part, tl.trans(part))
        back += product(part, lower)
    store_rows(rows, back, begin, end, head, H, K, C, 0, SIZE)
    tl.store(out + memory * C * C + t * C + i, total)


@triton.jit
def inner(
    inners, rows, chunks,
    H: tl.constexpr, K: tl.constexpr, C: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """rows of a chunk, TILE channels, become V rows."""
    chunk, head = tl.program_id(0), tl.program_id(1)
    first = tl.program_id(2) * TILE
    begin, end = tl.load(chunks + 2 * chunk), tl.load(chunks + 2 * chunk + 1)
    lower = _lower(inners + (chunk.to(tl.int64) * H + head) * C * C, C, 0, C, C)
    part = load_rows(rows, begin, end, head, H, K, C, first, TILE)
    store_rows(rows, product(lower, part), begin, end, head, H, K, C, first, TILE)


@triton.jit
def solve(
    q, n, g, factors, x, chunks,
    H: tl.constexpr, QUERIES: tl.constexpr, GROUPS: tl.constexpr,
    K: tl.constexpr, P: tl.constexpr, C: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr,
    BEFORE: tl.constexpr, FADES: tl.constexpr,
):  # fmt: skip
    """x_t = A_t^-1 q_t for a chunk of one query head, n [R, H, K]."""
    chunk, query = tl.program_id(0), tl.program_id(1)
    head = query // GROUPS
    begin, end = tl.load(chunks + 2 * chunk), tl.load(chunks + 2 * chunk + 1)
    factors += (chunk.to(tl.int64) * H + head) * P * P
    rows = load_rows(q, begin, end, query // (H * GROUPS // QUERIES), QUERIES, K, C, 0, SIZE)
    total = tl.zeros([C, SIZE], tl.float32)
    for first in range(0, P, BLOCK):
        lower = _lower(factors, P, first, BLOCK, SIZE)
        total += product(product(rows, tl.trans(lower)), lower)
    found = load_rows(n, begin, end, head, H, K, C, 0, SIZE)
    t, i = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    if BEFORE:
        sees = i < t
    else:
        sees = i <= t
    seen = tl.where(sees, product(rows, tl.trans(found)), 0.0)
    total -= product(seen, found)
    left = left_of_start(g, begin, end, head, H, C, FADES, BEFORE)
    store_rows(x, total / left[:, None], begin, end, query, H * GROUPS, K, C, 0, SIZE)
