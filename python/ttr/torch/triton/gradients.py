"""Gradients of pairs from what later tokens found in them."""

# mypy: ignore-errors
import triton
import triton.language as tl

from .channels import mixed, to_end
from .rows import between, load_matrix, load_rows, load_square, product, store_rows, weights


@triton.jit
def of_values(
    x, dy, k, w, g, read, later, dv, chunks,
    H: tl.constexpr, GROUPS: tl.constexpr, K_HEADS: tl.constexpr,
    K: tl.constexpr, V: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    C: tl.constexpr, SIZE: tl.constexpr, TILE: tl.constexpr,
    BEFORE: tl.constexpr, WEIGHTED: tl.constexpr, FADES: tl.constexpr,
):  # fmt: skip
    """dv_i = w_i sum_{t>=i} e^{G_t - G_i} (k_i . x_t) dy_t; ``later`` [ROWS, COLUMNS]: the sums of
    x dy^T after the chunk. Where channels fade each for itself the scores of x are there, ``read``
    [n, H GROUPS, C, C]."""
    chunk, head = tl.program_id(0), tl.program_id(1)
    first = tl.program_id(2) * TILE
    begin, end = tl.load(chunks + 2 * chunk), tl.load(chunks + 2 * chunk + 1)
    keys = load_rows(k, begin, end, head // (H // K_HEADS), K_HEADS, K, C, 0, SIZE)
    kept = to_end(g, begin, end, head, H, K, C, 0, SIZE, FADES)
    later += (chunk.to(tl.int64) * H + head) * ROWS * COLUMNS
    state = load_matrix(later, ROWS, tl.arange(0, SIZE), COLUMNS, first + tl.arange(0, TILE))
    if FADES == 2:
        total = product(keys * kept, state)
    else:
        total = product(keys, state) * kept
        factors = tl.trans(between(g, begin, end, head, H, C, FADES, BEFORE, False))
    for group in range(GROUPS):
        query = head * GROUPS + group
        given = load_rows(dy, begin, end, query, H * GROUPS, V, C, first, TILE)
        if FADES == 2:
            scores = tl.trans(load_square(read + (chunk.to(tl.int64) * H * GROUPS + query) * C * C, C))
        else:
            scores = product(keys, tl.trans(load_rows(x, begin, end, query, H * GROUPS, K, C, 0, SIZE))) * factors
        total += product(scores, given)
    total *= weights(w, begin, end, head, H, C, WEIGHTED)[:, None]
    store_rows(dv, total, begin, end, head, H, V, C, first, TILE)


@triton.jit
def of_keys(
    x, z, dy, k, v, w, g, of_a, of_b, dk, dw, chunks, rows,
    H: tl.constexpr, GROUPS: tl.constexpr, K_HEADS: tl.constexpr, V_HEADS: tl.constexpr,
    K: tl.constexpr, V: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    C: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr,
    SOLVES: tl.constexpr, BEFORE: tl.constexpr, WEIGHTED: tl.constexpr, FADES: tl.constexpr,
):  # fmt: skip
    """TILE channels of dk_i = w_i (dB_i v_i + (dA_i + dA_i^T) k_i), and their part of
    dw_i = k_i . (dB_i v_i + dA_i k_i), [tiles, rows, H]; without dA unless something was solved.

    of_a [ROWS, ROWS] and of_b [ROWS, COLUMNS]: the sums of x z^T and of x dy^T after the chunk.
    """
    chunk, head = tl.program_id(0), tl.program_id(1)
    first = tl.program_id(2) * TILE
    begin, end = tl.load(chunks + 2 * chunk), tl.load(chunks + 2 * chunk + 1)
    memory = chunk.to(tl.int64) * H + head
    if SOLVES:
        of_a += memory * ROWS * ROWS
    of_b += memory * ROWS * COLUMNS
    keys = load_rows(k, begin, end, head // (H // K_HEADS), K_HEADS, K, C, 0, SIZE)
    values = load_rows(v, begin, end, head // (H // V_HEADS), V_HEADS, V, C, 0, WIDTH)
    kept = to_end(g, begin, end, head, H, K, C, first, TILE, FADES)
    if FADES < 2:
        factors = tl.trans(between(g, begin, end, head, H, C, FADES, BEFORE, False))
    i, own = tl.arange(0, SIZE), first + tl.arange(0, TILE)
    total = product(values, tl.trans(load_matrix(of_b, ROWS, own, COLUMNS, tl.arange(0, WIDTH))))
    if SOLVES:
        total -= product(keys, tl.trans(load_matrix(of_a, ROWS, own, ROWS, i)))
    total *= kept
    for group in range(GROUPS):
        query = head * GROUPS + group
        scores = product(values, tl.trans(load_rows(dy, begin, end, query, H * GROUPS, V, C, 0, WIDTH)))
        if SOLVES:
            scores -= product(keys, tl.trans(load_rows(z, begin, end, query, H * GROUPS, K, C, 0, SIZE)))
        rows_of_x = load_rows(x, begin, end, query, H * GROUPS, K, C, first, TILE)
        if FADES == 2:
            total += mixed(scores, rows_of_x, g, begin, end, head, H, K, C, first, TILE, True, BEFORE, False)
        else:
            total += product(scores * factors, rows_of_x)
    mine = load_rows(k, begin, end, head // (H // K_HEADS), K_HEADS, K, C, first, TILE)
    of_w = tl.sum(total * mine, 1)
    if SOLVES:
        total -= product(keys, load_matrix(of_a, ROWS, i, ROWS, own)) * kept
        for group in range(GROUPS):
            query = head * GROUPS + group
            scores = product(keys, tl.trans(load_rows(x, begin, end, query, H * GROUPS, K, C, 0, SIZE)))
            total -= product(scores * factors, load_rows(z, begin, end, query, H * GROUPS, K, C, first, TILE))
    total *= weights(w, begin, end, head, H, C, WEIGHTED)[:, None]
    store_rows(dk, total, begin, end, head, H, K, C, first, TILE)
    row = begin + tl.arange(0, C)
    part = dw + tl.program_id(2).to(tl.int64) * rows * H
    tl.store(part + row.to(tl.int64) * H + head, of_w, mask=row < end)
