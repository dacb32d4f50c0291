"""Inverses of Cholesky factors, of many small matrices in place."""

# mypy: ignore-errors
import triton
import triton.language as tl

from .rows import product


@triton.jit
def _block(matrix, P: tl.constexpr, i, j, B: tl.constexpr):
    """Addresses of block (i, j), B x B, of a row-major P x P."""
    index = tl.arange(0, B)
    return matrix + (B * i + index)[:, None] * P + (B * j + index)[None, :]


@triton.jit
def _invert(a, B: tl.constexpr):
    """W and the pivots d of a symmetric B x B with W a W^T = 1, W lower triangular.

    Elimination in place: behind the pivot's column stands what is left of a, before it the rows of
    W so far.
    """
    index = tl.arange(0, B)
    row, column = index[:, None], index[None, :]
    d = tl.zeros([B], tl.float32)
    for j in range(B):
        along = tl.sum(tl.where(row == j, a, 0.0), 0)
        down = tl.sum(tl.where(column == j, a, 0.0), 1)
        pivot = tl.sum(tl.where(index == j, along, 0.0), 0)
        times = tl.where(index > j, down / pivot, 0.0)
        below = tl.where(column == j, -times[:, None], a - times[:, None] * along[None, :])
        a = tl.where(row > j, below, a)
        d = tl.where(index == j, pivot, d)
    w = tl.where(row > column, a, tl.where(row == column, 1.0, 0.0))
    return w * tl.rsqrt(d)[:, None], d


@triton.jit
def factor(matrices, bad, rounding, SIZE: tl.constexpr, P: tl.constexpr, B: tl.constexpr):
    """W = L^-1 of A = L L^T takes the place of A's lower half, [.., P, P]; a program a matrix.

    Rows from SIZE on are those of a 1. ``bad`` [..] is set to 1 where a pivot is not above
    ``rounding`` times its diagonal entry.
    """
    a = matrices + tl.program_id(0).to(tl.int64) * P * P
    index = tl.arange(0, B)
    row, column = index[:, None], index[None, :]
    good = 1
    for j in range(P // B):
        block = tl.load(_block(a, P, j, j, B))
        diagonal = tl.sum(tl.where(row == column, block, 0.0), 0)
        for p in range(j):
            lower = tl.load(_block(a, P, j, p, B))
            block -= product(lower, tl.trans(lower))
        own = B * j + index < SIZE
        block = tl.where(own[:, None] & own[None, :], block, tl.where(row == column, 1.0, 0.0))
        w, d = _invert(block, B)
        above = (d > rounding * diagonal) | (B * j + index >= SIZE)
        good = tl.minimum(good, tl.min(above.to(tl.int32), 0))
        tl.store(_block(a, P, j, j, B), w)
        for i in range(j + 1, P // B):
            block = tl.load(_block(a, P, i, j, B))
            for p in range(j):
                block -= product(tl.load(_block(a, P, i, p, B)), tl.trans(tl.load(_block(a, P, j, p, B))))
            block = product(block, tl.trans(w))
            tl.debug_barrier()
            tl.store(_block(a, P, i, j, B), block)
        tl.debug_barrier()
    for j in range(P // B):
        first = tl.load(_block(a, P, j, j, B))
        for i in range(j + 1, P // B):
            block = product(tl.load(_block(a, P, i, j, B)), first)
            for p in range(j + 1, i):
                block += product(tl.load(_block(a, P, i, p, B)), tl.load(_block(a, P, p, j, B)))
            block = -product(tl.load(_block(a, P, i, i, B)), block)
            tl.debug_barrier()
            tl.store(_block(a, P, i, j, B), block)
            tl.debug_barrier()
    if good == 0:
        tl.store(bad, 1)
