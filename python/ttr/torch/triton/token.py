"""One token: the memory is read once, changed, asked, and written, by one program for a tile of it."""

# mypy: ignore-errors
import triton
import triton.language as tl


@triton.jit
def row_of(x, at, D: tl.constexpr, SIZE: tl.constexpr):
    """Row ``at`` of D channels, [SIZE] in float32, 0 beyond."""
    channel = tl.arange(0, SIZE)
    return tl.load(x + at * D + channel, mask=channel < D, other=0.0).to(tl.float32)


@triton.jit
def unit(x, UNIT: tl.constexpr):
    if UNIT:
        return x * tl.rsqrt(tl.sum(x * x, 0) + 1e-6)
    else:
        return x


@triton.jit
def _complement(log):
    """1 - e^log, also of small ones to all digits."""
    left = tl.exp(log)
    exact = (1 - left) * log / tl.log(left)
    return tl.where(left == 1, -log, tl.where(left == 0, 1.0, exact))


@triton.jit
def _left(g, at, head, K: tl.constexpr, SIZE: tl.constexpr, DECAY: tl.constexpr, FACTOR: tl.constexpr):
    """What a token leaves of the memory, a number or one for each key channel, [SIZE]; FACTOR where that is
    constant."""
    if DECAY == "channel":
        return tl.exp(row_of(g, at, K, SIZE))
    elif DECAY == "scalar":
        return tl.exp(tl.load(g + at).to(tl.float32))
    elif DECAY == "retention":
        return 1 - tl.exp2(-5.0 - head)
    else:
        return FACTOR


@triton.jit
def _faded(memory, left, DECAY: tl.constexpr):
    if DECAY == "none":
        return memory
    elif DECAY == "channel":
        return tl.where(left[:, None] == 0, 0.0, left[:, None] * memory)
    else:
        return tl.where(left == 0, 0.0, left * memory)


@triton.jit
def _step_size(b, square, RULE: tl.constexpr, ETA: tl.constexpr, EPS: tl.constexpr):
    """What multiplies a key, from the input and |k|^2."""
    size = tl.where(square == 0, 1.0, square)
    if RULE == "nlms":
        return tl.where(square == 0, 0.0, ETA / (size + EPS))
    elif RULE == "longhorn":
        return b / (1 + b * square)
    elif RULE == "efla":
        return tl.where(square == 0, b, _complement(-b * size) / size)
    else:
        return b


@triton.jit
def _answer(
    memory, q, k, v, erase, bonus, y, n, head, first,
    H: tl.constexpr, Q_HEADS: tl.constexpr, K_HEADS: tl.constexpr, V_HEADS: tl.constexpr, GROUPS: tl.constexpr,
    K: tl.constexpr, V: tl.constexpr, SIZE: tl.constexpr, TILE: tl.constexpr, UNIT: tl.constexpr,
    SCALE: tl.constexpr, ETA: tl.constexpr, CORRECTION: tl.constexpr, BONUS: tl.constexpr,
):  # fmt: skip
    """y = M^T q, for the queries of one memory."""
    column = first + tl.arange(0, TILE)
    for group in range(GROUPS):
        query = head * GROUPS + group
        x = unit(row_of(q, n * Q_HEADS + query // (H * GROUPS // Q_HEADS), K, SIZE), UNIT)
        if CORRECTION != 0:
            x -= CORRECTION * row_of(erase, n * H + head, K, SIZE)
        x *= SCALE
        answer = ETA * tl.sum(x[:, None] * memory, 0)
        if BONUS:
            key = unit(row_of(k, n * K_HEADS + head // (H // K_HEADS), K, SIZE), UNIT)
            own = tl.sum(row_of(bonus, head, K, SIZE) * key * x, 0)
            at = v + (n * V_HEADS + head // (H // V_HEADS)) * V + column
            answer += ETA * own * tl.load(at, mask=column < V, other=0.0).to(tl.float32)
        at = y + (n * H * GROUPS + query) * V + column
        tl.store(at, answer.to(y.dtype.element_ty), mask=column < V)


@triton.jit
def step(
    q, k, v, g, weight, erase, gate, shrink, bonus, memories, y,
    H: tl.constexpr, Q_HEADS: tl.constexpr, K_HEADS: tl.constexpr, V_HEADS: tl.constexpr, GROUPS: tl.constexpr,
    K: tl.constexpr, V: tl.constexpr, SIZE: tl.constexpr, TILE: tl.constexpr, UNIT: tl.constexpr,
    SCALE: tl.constexpr, ETA: tl.constexpr, CORRECTION: tl.constexpr, BONUS: tl.constexpr,
    BEFORE: tl.constexpr, ROWS: tl.constexpr, DECAY: tl.constexpr, FACTOR: tl.constexpr, RULE: tl.constexpr,
    ERASE: tl.constexpr, SHRINK: tl.constexpr, RATE: tl.constexpr, EPS: tl.constexpr,
):  # fmt: skip
    """A memory [N, H, K, V] that is written by a rank-one step, or unread: TILE columns of one.

    RULE is how steps are sized ("input", "one", "nlms", ...), or what weighs what is written without
    being read ("unread", "weighted", "complement", "root_complement"); ERASE what keys erase by, SHRINK
    the kind of weight decay.
    """
    of, first = tl.program_id(0).to(tl.int64), tl.program_id(1) * TILE
    n, head = of // H, (of % H).to(tl.int32)
    channel, column = tl.arange(0, SIZE), first + tl.arange(0, TILE)
    at = memories + of * K * V + channel[:, None] * V + column[None, :]
    inside = (channel < K)[:, None] & (column < V)[None, :]
    memory = tl.load(at, mask=inside, other=0.0)
    if BEFORE:
        _answer(memory, q, k, v, erase, bonus, y, n, head, first, H, Q_HEADS, K_HEADS, V_HEADS, GROUPS, K, V,
                SIZE, TILE, UNIT, SCALE, ETA, CORRECTION, BONUS)  # fmt: skip
    for row in range(ROWS):
        r = n * ROWS + row
        before = memory
        if row == 0:
            memory = _faded(memory, _left(g, of, head, K, SIZE, DECAY, FACTOR), DECAY)
        value = tl.load(v + (r * V_HEADS + head // (H // V_HEADS)) * V + column, mask=column < V, other=0.0)
        value = value.to(tl.float32)
        if RULE == "complement":
            key = _complement(row_of(g, of, K, SIZE))
        elif RULE == "root_complement":
            key = tl.sqrt(_complement(2 * row_of(g, of, K, SIZE)))
        else:
            key = unit(row_of(k, r * K_HEADS + head // (H // K_HEADS), K, SIZE), UNIT)
        if RULE == "unread" or RULE == "complement" or RULE == "root_complement":
            memory += key[:, None] * value[None, :]
        elif RULE == "weighted":
            w = tl.load(weight + r * H + head).to(tl.float32)
            memory += tl.where(w == 0, 0.0, (w * key)[:, None] * value[None, :])
        else:
            b = 1.0
            if RULE != "one" and RULE != "nlms":
                b = tl.load(weight + r * H + head).to(tl.float32)
            beta = _step_size(b, tl.sum(key * key, 0), RULE, RATE, EPS)
            if ERASE == "key":
                erased = key
            elif ERASE == "gated_key":
                erased = row_of(gate, r * H + head, K, SIZE) * key
            else:
                erased = row_of(erase, r * H + head, K, SIZE)
            if ERASE == "undecayed":
                along = row_of(gate, r * H + head, K, SIZE) * erased
                found = along[:, None] * tl.sum(erased[:, None] * before, 0)[None, :]
                change = beta * key[:, None] * value[None, :] - found
            else:
                found = tl.sum(erased[:, None] * memory, 0)
                change = beta * key[:, None] * (value - found)[None, :]
                change = tl.where(beta == 0, 0.0, change)
            if SHRINK == "coupled":
                memory *= 1 - tl.where(beta == 0, 0.0, beta * tl.load(shrink + r * H + head).to(tl.float32))
            elif SHRINK == "decoupled":
                memory *= 1 - tl.load(shrink + r * H + head).to(tl.float32)
            memory += change
    tl.store(at, memory, mask=inside)
    if not BEFORE:
        _answer(memory, q, k, v, erase, bonus, y, n, head, first, H, Q_HEADS, K_HEADS, V_HEADS, GROUPS, K, V,
                SIZE, TILE, UNIT, SCALE, ETA, CORRECTION, BONUS)  # fmt: skip


@triton.jit
def solved(a, x, K: tl.constexpr, SIZE: tl.constexpr, least):
    """A^-1 x of a symmetric positive definite A, [SIZE, SIZE], and x [SIZE, queries], by elimination below
    and above each pivot. A channel whose pivot is not above ``least`` times its diagonal entry is left
    out."""
    i = tl.arange(0, SIZE)
    row, column = i[:, None], i[None, :]
    diagonal = tl.sum(tl.where(row == column, a, 0.0), 1)
    inverses = tl.zeros([SIZE], tl.float32)
    for j in range(K):
        along = tl.sum(tl.where(row == j, a, 0.0), 0)
        down = tl.sum(tl.where(column == j, a, 0.0), 1)
        right = tl.sum(tl.where(row == j, x, 0.0), 0)
        pivot = tl.sum(tl.where(i == j, along, 0.0), 0)
        least_pivot = least * tl.sum(tl.where(i == j, diagonal, 0.0), 0)
        inverse = tl.where(pivot <= least_pivot, 0.0, 1 / pivot)
        inverses = tl.where(i == j, inverse, inverses)
        times = tl.where(i == j, 0.0, down * inverse)
        a -= times[:, None] * along[None, :]
        x -= times[:, None] * right[None, :]
    return x * inverses[:, None]


@triton.jit
def solve(
    q, k, v, g, weight, ridge, matrices, memories, y, least,
    H: tl.constexpr, Q_HEADS: tl.constexpr, K_HEADS: tl.constexpr, V_HEADS: tl.constexpr, GROUPS: tl.constexpr,
    QUERIES: tl.constexpr, K: tl.constexpr, V: tl.constexpr, SIZE: tl.constexpr, TILE: tl.constexpr,
    UNIT: tl.constexpr, SCALE: tl.constexpr, BEFORE: tl.constexpr, DECAY: tl.constexpr,
    FACTOR: tl.constexpr, WEIGHTED: tl.constexpr, RIDGE: tl.constexpr, RIDGES: tl.constexpr,
):  # fmt: skip
    """Exact least squares: A [N, H, K, K] and B [N, H, K, V] of one memory, and y = B^T (A + R)^-1 q.

    RIDGE is R's number where RIDGES, the axes of ``ridge`` [H] or [H, K], are none.
    """
    of = tl.program_id(0).to(tl.int64)
    n, head = of // H, (of % H).to(tl.int32)
    i, column = tl.arange(0, SIZE), tl.arange(0, TILE)
    at = matrices + of * K * K + i[:, None] * K + i[None, :]
    held = (i < K)[:, None] & (i < K)[None, :]
    found = tl.load(at, mask=held, other=0.0)
    left = _left(g, of, head, K, SIZE, DECAY, FACTOR)
    key = unit(row_of(k, n * K_HEADS + head // (H // K_HEADS), K, SIZE), UNIT)
    w = 1.0
    if WEIGHTED:
        w = tl.load(weight + of).to(tl.float32)
    added = tl.where(w == 0, 0.0, w * key)
    key = tl.where(w == 0, 0.0, key)
    a = _faded(found, left, DECAY) + added[:, None] * key[None, :]
    tl.store(at, a, mask=held)
    if BEFORE:
        a = found
    if RIDGES == 1:
        own = tl.load(ridge + head).to(tl.float32) + tl.zeros([SIZE], tl.float32)
    elif RIDGES == 2:
        own = row_of(ridge, head, K, SIZE)
    else:
        own = tl.zeros([SIZE], tl.float32) + RIDGE
    a += tl.where(i[:, None] == i[None, :], own[:, None], 0.0)
    group = tl.arange(0, QUERIES)
    head_of = (head * GROUPS + group) // (H * GROUPS // Q_HEADS)
    asked = (i < K)[:, None] & (group < GROUPS)[None, :]
    x = tl.load(q + (n * Q_HEADS + head_of)[None, :] * K + i[:, None], mask=asked, other=0.0).to(tl.float32)
    if UNIT:
        x *= tl.rsqrt(tl.sum(x * x, 0) + 1e-6)[None, :]
    x = solved(a, x * SCALE, K, SIZE, least)
    for first in range(0, V, TILE):
        j = first + column
        inside = (i < K)[:, None] & (j < V)[None, :]
        place = memories + of * K * V + i[:, None] * V + j[None, :]
        b = tl.load(place, mask=inside, other=0.0)
        value = tl.load(v + (n * V_HEADS + head // (H // V_HEADS)) * V + j, mask=j < V, other=0.0).to(tl.float32)
        value = tl.where(w == 0, 0.0, value)
        new = _faded(b, left, DECAY) + added[:, None] * value[None, :]
        tl.store(place, new, mask=inside)
        if not BEFORE:
            b = new
        for one in range(GROUPS):
            rows = tl.sum(tl.where(group[None, :] == one, x, 0.0), 1)
            answer = tl.sum(rows[:, None] * b, 0)
            out = y + (n * H * GROUPS + head * GROUPS + one) * V + j
            tl.store(out, answer.to(y.dtype.element_ty), mask=j < V)
