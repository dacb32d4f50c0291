"""Sums of outer products over the tokens before, or after, each chunk."""

# mypy: ignore-errors
import triton
import triton.language as tl

from .channels import from_start, load_gates, to_end
from .rows import load_numbers, load_rows, product, weights


@triton.jit
def chunk_sums(
    left, right, w, g, out, kept, chunks,
    H: tl.constexpr, LEFT_HEADS: tl.constexpr, RIGHT_HEADS: tl.constexpr, GROUPS: tl.constexpr,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    C: tl.constexpr, TILE: tl.constexpr, SIZE: tl.constexpr,
    LATER: tl.constexpr, BEFORE: tl.constexpr, WEIGHTED: tl.constexpr, FADES: tl.constexpr,
):  # fmt: skip
    """out[chunk, head] = sum over the chunk of f w left right^T, [ROWS, COLUMNS].

    f is what is left at the chunk's end or, LATER, what of the start is left at each row. kept
    [n, H] or, FADES == 2, [n, H, LEFT]: the factor over the whole chunk. A program makes TILE columns of
    one memory's sum.
    """
    chunk, head = tl.program_id(0), tl.program_id(1)
    first = tl.program_id(2) * TILE
    begin, end = tl.load(chunks + 2 * chunk), tl.load(chunks + 2 * chunk + 1)
    total = tl.zeros([SIZE, TILE], tl.float32)
    if LATER:
        factor = from_start(g, begin, end, head, H, LEFT, C, 0, SIZE, FADES, BEFORE)
    else:
        factor = to_end(g, begin, end, head, H, LEFT, C, 0, SIZE, FADES)
        factor *= weights(w, begin, end, head, H, C, WEIGHTED)[:, None]
    for group in range(GROUPS):
        of = head * GROUPS + group
        a = load_rows(left, begin, end, of // (H * GROUPS // LEFT_HEADS), LEFT_HEADS, LEFT, C, 0, SIZE)
        b = load_rows(right, begin, end, of // (H * GROUPS // RIGHT_HEADS), RIGHT_HEADS, RIGHT, C, first, TILE)
        total += product(tl.trans(a.to(tl.float32) * factor), b)
    row, column = tl.arange(0, SIZE), first + tl.arange(0, TILE)
    at = out + (chunk.to(tl.int64) * H + head) * ROWS * COLUMNS
    inside = (row < ROWS)[:, None] & (column < COLUMNS)[None, :]
    tl.store(at + row[:, None] * COLUMNS + column[None, :], total, mask=inside)
    if FADES == 2:
        logs = tl.sum(load_gates(g, begin, end, head, H, LEFT, C, 0, SIZE, 0), 0)
        tl.store(kept + (chunk * H + head) * LEFT + row, tl.exp(logs), mask=row < LEFT)
    elif FADES == 1:
        log = tl.sum(load_numbers(g, begin, end, head, H, C, 0), 0)
        tl.store(kept + chunk * H + head, tl.exp(log))


@triton.jit
def _ahead(at, row, there, ROWS: tl.constexpr):
    return tl.load(at, mask=row < tl.where(there, ROWS, 0), other=0.0)


@triton.jit
def scan(
    sums, start, last, kept, firsts,
    H: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr,
    LATER: tl.constexpr, FADES: tl.constexpr,
):  # fmt: skip
    """A chunk's sum becomes the state before it (LATER: after it), in place; ``last`` is what the
    scan ends with. firsts [N + 1]: the first chunk of each sequence. A factor of 0 leaves nothing,
    not even of what is infinite."""
    of = tl.program_id(0)
    sequence, head = of // H, of % H
    entry = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row, column = entry // COLUMNS, entry % COLUMNS
    held = (row < LEFT) & (column < RIGHT)
    own = of.to(tl.int64) * LEFT * RIGHT + row * RIGHT + column
    state = tl.load(start + own, mask=held, other=0.0)
    begin, end = tl.load(firsts + sequence), tl.load(firsts + sequence + 1)
    step = H * ROWS * COLUMNS
    if LATER:
        at = sums + ((end - 1).to(tl.int64) * H + head) * ROWS * COLUMNS + entry
        chunk = end - 1
        step = -step
        over = -H
    else:
        at = sums + (begin.to(tl.int64) * H + head) * ROWS * COLUMNS + entry
        chunk = begin
        over = H
    factors = kept + chunk * H + head
    if FADES == 2:
        factors = kept + (chunk * H + head) * LEFT + row
        over *= LEFT
    # Terms are read four chunks ahead of their use.
    inside = row < ROWS
    a = _ahead(at, row, begin < end, ROWS)
    b = _ahead(at + step, row, begin + 1 < end, ROWS)
    c = _ahead(at + 2 * step, row, begin + 2 < end, ROWS)
    d = _ahead(at + 3 * step, row, begin + 3 < end, ROWS)
    for n in range(begin, end):
        term = a
        a, b, c = b, c, d
        d = _ahead(at + 4 * step, row, n + 4 < end, ROWS)
        tl.store(at, state, mask=inside)
        if FADES:
            if FADES == 2:
                factor = tl.load(factors, mask=row < LEFT, other=1.0)
            else:
                factor = tl.load(factors)
            state = tl.where(factor == 0, 0.0, factor * state)
            factors += over
        state += term
        at += step
    tl.store(last + own, state, mask=held)
