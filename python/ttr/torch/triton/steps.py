"""Memories that take a step for each pair: D = V - E, E what erase keys found (portable/step_rule.py) in
the faded memory or, UNDECAYED, in the one before."""

# mypy: ignore-errors
import triton
import triton.language as tl

from .channels import from_start, load_gates, mixed, to_end
from .rows import below, between, load_numbers, load_rows, load_square, of_earlier, product, store_rows


@triton.jit
def _inverse(
    e, k, g, found, chunk, begin, end, head, H: tl.constexpr, K: tl.constexpr, C: tl.constexpr,
    SIZE: tl.constexpr, FADES: tl.constexpr, UNDECAYED: tl.constexpr,
):  # fmt: skip
    """(1 + S)^-1 of a chunk, [C, C], in the place of S: rows below take row after row. Where channels
    fade each for itself S is there, ``found`` [n, H, C, C]."""
    if FADES == 2:
        a = load_square(found + (chunk.to(tl.int64) * H + head) * C * C, C)
    else:
        erase = load_rows(e, begin, end, head, H, K, C, 0, SIZE)
        keys = load_rows(k, begin, end, head, H, K, C, 0, SIZE)
        a = product(erase, tl.trans(keys)) * between(g, begin, end, head, H, C, FADES, UNDECAYED, True)
        a = below(a, C, True)
    row, column = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    for j in range(C):
        along = tl.sum(tl.where((row == j) & (column < j), a, 0.0), 0)
        down = tl.sum(tl.where(column == j, a, 0.0), 1)
        later = tl.where(column == j, 0.0, a) - down[:, None] * tl.where(column == j, 1.0, along[None, :])
        a = tl.where(row > j, later, a)
    return tl.where(row == column, 1.0, a)


@triton.jit
def prepare(
    e, k, v, g, found, from_values, from_erase, chunks,
    H: tl.constexpr, K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, SIZE: tl.constexpr,
    WIDTH: tl.constexpr, FADES: tl.constexpr, UNDECAYED: tl.constexpr,
):  # fmt: skip
    """D = from_values - from_erase M_0: (1 + S)^-1 V [R, H, V] and (1 + S)^-1 (c e) [R, H, K]."""
    chunk, head = tl.program_id(0), tl.program_id(1)
    begin, end = tl.load(chunks + 2 * chunk), tl.load(chunks + 2 * chunk + 1)
    inverse = _inverse(e, k, g, found, chunk, begin, end, head, H, K, C, SIZE, FADES, UNDECAYED)
    values = load_rows(v, begin, end, head, H, V, C, 0, WIDTH)
    store_rows(from_values, of_earlier(inverse, values, C), begin, end, head, H, V, C, 0, WIDTH)
    left = from_start(g, begin, end, head, H, K, C, 0, SIZE, FADES, UNDECAYED)
    erase = load_rows(e, begin, end, head, H, K, C, 0, SIZE).to(tl.float32) * left
    store_rows(from_erase, of_earlier(inverse, erase, C), begin, end, head, H, K, C, 0, SIZE)


@triton.jit
def prepare_back(
    q, e, k, dy, g, found, read, from_outputs, from_end, chunks,
    H: tl.constexpr, GROUPS: tl.constexpr, K: tl.constexpr, V: tl.constexpr, C: tl.constexpr,
    SIZE: tl.constexpr, WIDTH: tl.constexpr, BEFORE: tl.constexpr, FADES: tl.constexpr, UNDECAYED: tl.constexpr,
):  # fmt: skip
    """dD = from_outputs + from_end R: (1 + S^T)^-1 of what the chunk's queries give, [R, H, V], and of
    k faded to the chunk's end, [R, H, K]. Where channels fade each for itself the scores of q are there,
    ``read`` [n, H GROUPS, C, C]."""
    chunk, head = tl.program_id(0), tl.program_id(1)
    begin, end = tl.load(chunks + 2 * chunk), tl.load(chunks + 2 * chunk + 1)
    inverse = tl.trans(_inverse(e, k, g, found, chunk, begin, end, head, H, K, C, SIZE, FADES, UNDECAYED))
    keys = load_rows(k, begin, end, head, H, K, C, 0, SIZE)
    if FADES < 2:
        later = tl.trans(between(g, begin, end, head, H, C, FADES, BEFORE, False))
    total = tl.zeros([C, WIDTH], tl.float32)
    for group in range(GROUPS):
        query = head * GROUPS + group
        given = load_rows(dy, begin, end, query, H * GROUPS, V, C, 0, WIDTH)
        if FADES == 2:
            scores = tl.trans(load_square(read + (chunk.to(tl.int64) * H * GROUPS + query) * C * C, C))
        else:
            scores = product(keys, tl.trans(load_rows(q, begin, end, query, H * GROUPS, K, C, 0, SIZE))) * later
        total += product(scores, given)
    store_rows(from_outputs, product(inverse, total), begin, end, head, H, V, C, 0, WIDTH)
    faded = keys.to(tl.float32) * to_end(g, begin, end, head, H, K, C, 0, SIZE, FADES)
    store_rows(from_end, product(inverse, faded), begin, end, head, H, K, C, 0, SIZE)


@triton.jit
def chain(
    along, from_values, from_state, g, sums, start, last, d, chunks, firsts,
    H: tl.constexpr, K: tl.constexpr, V: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    C: tl.constexpr, SIZE: tl.constexpr, TILE: tl.constexpr, BACK: tl.constexpr, FADES: tl.constexpr,
    UNDECAYED: tl.constexpr,
):  # fmt: skip
    """The memory from chunk to chunk, TILE columns of it:

        D = from_values - from_state M,   M <- c_end M + (k faded to the end)^T D
        BACK, from the last chunk to the first:
        D = from_values + from_state M,   M <- c_end M + sums - (e faded from the start)^T D

    ``along`` are k or, BACK, e. ``sums`` [chunk, head, ROWS, COLUMNS] become M as each chunk finds it;
    ``start`` and ``last`` [N, H, K, V].
    """
    of, first = tl.program_id(0), tl.program_id(1) * TILE
    sequence, head = of // H, of % H
    i, j = tl.arange(0, SIZE), first + tl.arange(0, TILE)
    own = of.to(tl.int64) * K * V + i[:, None] * V + j[None, :]
    held = (i < K)[:, None] & (j < V)[None, :]
    kept = (i < ROWS)[:, None] & (j < COLUMNS)[None, :]
    state = tl.load(start + own, mask=held, other=0.0)
    one, after = tl.load(firsts + sequence), tl.load(firsts + sequence + 1)
    for n in range(one, after):
        chunk = n
        if BACK:
            chunk = one + after - 1 - n
        begin, end = tl.load(chunks + 2 * chunk), tl.load(chunks + 2 * chunk + 1)
        at = sums + (chunk.to(tl.int64) * H + head) * ROWS * COLUMNS + i[:, None] * COLUMNS + j[None, :]
        seen = product(load_rows(from_state, begin, end, head, H, K, C, 0, SIZE), state)
        values = load_rows(from_values, begin, end, head, H, V, C, first, TILE)
        if BACK:
            values += seen
            factor = from_start(g, begin, end, head, H, K, C, 0, SIZE, FADES, UNDECAYED)
            term = tl.load(at, mask=kept, other=0.0)
        else:
            values -= seen
            factor = to_end(g, begin, end, head, H, K, C, 0, SIZE, FADES)
            term = tl.zeros([SIZE, TILE], tl.float32)
        store_rows(d, values, begin, end, head, H, V, C, first, TILE)
        tl.store(at, state, mask=kept)
        rows = load_rows(along, begin, end, head, H, K, C, 0, SIZE).to(tl.float32) * factor
        if FADES == 2:
            shares = tl.exp(tl.sum(load_gates(g, begin, end, head, H, K, C, 0, SIZE, 0), 0))[:, None]
            state = tl.where(shares == 0, 0.0, shares * state)
        elif FADES == 1:
            share = tl.exp(tl.sum(load_numbers(g, begin, end, head, H, C, 0), 0))
            state = tl.where(share == 0, 0.0, share * state)
        if BACK:
            state += term - product(tl.trans(rows), values)
        else:
            state += product(tl.trans(rows), values)
    tl.store(last + own, state, mask=held)


@triton.jit
def of_written(
    q, e, dy, d, dd, g, later, dk, chunks,
    H: tl.constexpr, GROUPS: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, C: tl.constexpr, TILE: tl.constexpr,
    WIDTH: tl.constexpr, BEFORE: tl.constexpr, FADES: tl.constexpr, UNDECAYED: tl.constexpr,
):  # fmt: skip
    """TILE channels of dk_i = sum_{t>=i} (D_i . dy_t) q_t - sum_{t>i} (D_i . dD_t) e_t + R D_i, each
    faded; ``later`` [ROWS, COLUMNS]: R behind the chunk."""
    chunk, head = tl.program_id(0), tl.program_id(1)
    first = tl.program_id(2) * TILE
    begin, end = tl.load(chunks + 2 * chunk), tl.load(chunks + 2 * chunk + 1)
    later += (chunk.to(tl.int64) * H + head) * ROWS * COLUMNS
    i, j = first + tl.arange(0, TILE), tl.arange(0, WIDTH)
    inside = (i < ROWS)[None, :] & (j < COLUMNS)[:, None]
    state = tl.load(later + i[None, :] * COLUMNS + j[:, None], mask=inside, other=0.0)
    written = load_rows(d, begin, end, head, H, V, C, 0, WIDTH)
    total = product(written, state) * to_end(g, begin, end, head, H, K, C, first, TILE, FADES)
    scores = product(written, tl.trans(load_rows(dd, begin, end, head, H, V, C, 0, WIDTH)))
    erased = load_rows(e, begin, end, head, H, K, C, first, TILE)
    if FADES == 2:
        total -= mixed(scores, erased, g, begin, end, head, H, K, C, first, TILE, True, UNDECAYED, True)
    else:
        scores *= tl.trans(between(g, begin, end, head, H, C, FADES, UNDECAYED, True))
        total -= product(scores, erased)
        factors = tl.trans(between(g, begin, end, head, H, C, FADES, BEFORE, False))
    for group in range(GROUPS):
        query = head * GROUPS + group
        given = load_rows(dy, begin, end, query, H * GROUPS, V, C, 0, WIDTH)
        scores = product(written, tl.trans(given))
        rows = load_rows(q, begin, end, query, H * GROUPS, K, C, first, TILE)
        if FADES == 2:
            total += mixed(scores, rows, g, begin, end, head, H, K, C, first, TILE, True, BEFORE, False)
        else:
            total += product(scores * factors, rows)
    store_rows(dk, total, begin, end, head, H, K, C, first, TILE)
