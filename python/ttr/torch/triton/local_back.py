"""The gradient of local linear regression (local.py), from dy. With h_i = v_i . dy and r_i = 1 - d_i . u,

    H = sum_i p_i h_i,   A w = -sum_i p_i h_i d_i,   D = H + ridge (w . u)
    ds_i = p_i (r_i h_i + (1 - d_i . u) (d_i . w) + H (d_i . u) - D)
    dq = scale sum_i ds_i d_i - w,   dridge = -w . u
    dv_i = sum_t p_i r_i dy,   dk_i = sum_t p_i r_i w + p_i (H - h_i - d_i . w) u + scale ds_i q

First a program a query finds u, w and five numbers, then a program a block of keys sums over the queries
that see it. p and all products of d_i are formed anew, a block of queries and keys at a time.
"""

# mypy: ignore-errors
import triton
import triton.language as tl

from .local import centre_of, ridge_of, shares
from .rows import load_rows, product, store_rows
from .token import row_of, solved


@triton.jit
def of_queries(
    q, k, v, dy, ridge, dq, us, ws, numbers, tokens, rows, least,
    H: tl.constexpr, Q_HEADS: tl.constexpr, K_HEADS: tl.constexpr, V_HEADS: tl.constexpr, GROUPS: tl.constexpr,
    K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr,
    SCALE: tl.constexpr, RIDGE: tl.constexpr, BEFORE: tl.constexpr,
):  # fmt: skip
    """One query of one head. dq, us, ws [rows, H GROUPS, K]; numbers [5, rows, H GROUPS]: the logarithm of
    the sum of weights, H, D, u . c and w . c."""
    row, query = tl.program_id(0), tl.program_id(1)
    head = query // GROUPS
    begin = row // tokens * tokens
    last = row + 1
    if BEFORE:
        last = row
    key_head, value_head = head // (H // K_HEADS), head // (H // V_HEADS)
    out = row.to(tl.int64) * H * GROUPS + query
    asked = row_of(q, row.to(tl.int64) * Q_HEADS + query // (H * GROUPS // Q_HEADS), K, SIZE)
    given = row_of(dy, out, V, WIDTH)
    top, total, centre = centre_of(k, asked, begin, last, key_head, K_HEADS, K, C, SIZE, SCALE)
    a = tl.zeros([SIZE, SIZE], tl.float32)
    along, whole = tl.zeros([SIZE], tl.float32), 0.0
    for first in range(begin, last, C):
        keys = load_rows(k, first, last, key_head, K_HEADS, K, C, 0, SIZE).to(tl.float32)
        values = load_rows(v, first, last, value_head, V_HEADS, V, C, 0, WIDTH).to(tl.float32)
        p, d = shares(keys, asked, first, last, C, SCALE, top, total), keys - centre[None, :]
        of_values = p * tl.sum(values * given[None, :], 1)
        a += product(tl.trans(p[:, None] * d), d)
        along += tl.sum(of_values[:, None] * d, 0)
        whole += tl.sum(of_values, 0)
    i, side = tl.arange(0, SIZE), tl.arange(0, 2)
    own = ridge_of(ridge, head, RIDGE)
    a += tl.where(i[:, None] == i[None, :], own, 0.0)
    right = tl.where(side[None, :] == 0, (centre - asked)[:, None], -along[:, None])
    x = solved(a, right, K, SIZE, least)
    u, w = tl.sum(tl.where(side[None, :] == 0, x, 0.0), 1), tl.sum(tl.where(side[None, :] == 1, x, 0.0), 1)
    mean = whole + own * tl.sum(u * w, 0)
    slope = tl.zeros([SIZE], tl.float32)
    for first in range(begin, last, C):
        keys = load_rows(k, first, last, key_head, K_HEADS, K, C, 0, SIZE).to(tl.float32)
        values = load_rows(v, first, last, value_head, V_HEADS, V, C, 0, WIDTH).to(tl.float32)
        p, d = shares(keys, asked, first, last, C, SCALE, top, total), keys - centre[None, :]
        by_u, by_w = tl.sum(d * u[None, :], 1), tl.sum(d * w[None, :], 1)
        h = tl.sum(values * given[None, :], 1)
        ds = p * ((1 - by_u) * (h + by_w) + whole * by_u - mean)
        slope += tl.sum(ds[:, None] * d, 0)
    tl.store(dq + out * K + i, SCALE * slope - w, mask=i < K)
    tl.store(us + out * K + i, u, mask=i < K)
    tl.store(ws + out * K + i, w, mask=i < K)
    step = rows.to(tl.int64) * H * GROUPS
    tl.store(numbers + out, tl.where(last > begin, top + tl.log(total), 0.0))
    tl.store(numbers + step + out, whole)
    tl.store(numbers + 2 * step + out, mean)
    tl.store(numbers + 3 * step + out, tl.sum(u * centre, 0))
    tl.store(numbers + 4 * step + out, tl.sum(w * centre, 0))


@triton.jit
def _number(numbers, which, first, end, rows, query, QUERIES: tl.constexpr, C: tl.constexpr):
    """[C, 1] of a head's queries from ``first`` on."""
    row = first + tl.arange(0, C)
    at = numbers + (which * rows.to(tl.int64) + row) * QUERIES + query
    return tl.load(at, mask=row < end, other=0.0)[:, None]


@triton.jit
def of_pairs(
    q, k, v, dy, us, ws, numbers, dk, dv, tokens, rows,
    H: tl.constexpr, Q_HEADS: tl.constexpr, K_HEADS: tl.constexpr, V_HEADS: tl.constexpr, GROUPS: tl.constexpr,
    K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, ASKED: tl.constexpr, SIZE: tl.constexpr,
    WIDTH: tl.constexpr, SCALE: tl.constexpr, BEFORE: tl.constexpr,
):  # fmt: skip
    """C keys and values of one memory, for ASKED queries at a time. dk and dv [rows, H, .] in float32."""
    blocks = tl.cdiv(tokens, C)
    sequence, head = tl.program_id(0) // blocks, tl.program_id(1)
    begin, end = sequence * tokens + tl.program_id(0) % blocks * C, (sequence + 1) * tokens
    keys = load_rows(k, begin, end, head // (H // K_HEADS), K_HEADS, K, C, 0, SIZE)
    values = load_rows(v, begin, end, head // (H // V_HEADS), V_HEADS, V, C, 0, WIDTH)
    of_keys, of_values = tl.zeros([C, SIZE], tl.float32), tl.zeros([C, WIDTH], tl.float32)
    pair = begin + tl.arange(0, C)[None, :]
    for group in range(GROUPS):
        query = head * GROUPS + group
        for first in range(begin, end, ASKED):
            asked = load_rows(q, first, end, query // (H * GROUPS // Q_HEADS), Q_HEADS, K, ASKED, 0, SIZE)
            u = load_rows(us, first, end, query, H * GROUPS, K, ASKED, 0, SIZE)
            w = load_rows(ws, first, end, query, H * GROUPS, K, ASKED, 0, SIZE)
            given = load_rows(dy, first, end, query, H * GROUPS, V, ASKED, 0, WIDTH)
            row = first + tl.arange(0, ASKED)[:, None]
            seen = (pair <= row) & (row < end)
            if BEFORE:
                seen = (pair < row) & (row < end)
            logs = SCALE * product(asked, tl.trans(keys))
            logs -= _number(numbers, 0, first, end, rows, query, H * GROUPS, ASKED)
            p = tl.where(seen, tl.exp(logs), 0.0)
            by_u = product(u, tl.trans(keys)) - _number(numbers, 3, first, end, rows, query, H * GROUPS, ASKED)
            by_w = product(w, tl.trans(keys)) - _number(numbers, 4, first, end, rows, query, H * GROUPS, ASKED)
            h = product(given, tl.trans(values))
            whole = _number(numbers, 1, first, end, rows, query, H * GROUPS, ASKED)
            mean = _number(numbers, 2, first, end, rows, query, H * GROUPS, ASKED)
            left = p * (1 - by_u)
            ds = left * (h + by_w) + p * (whole * by_u - mean)
            of_values += product(tl.trans(left), given)
            of_keys += product(tl.trans(left), w) + product(tl.trans(p * (whole - h - by_w)), u)
            of_keys += SCALE * product(tl.trans(ds), asked)
    store_rows(dk, of_keys, begin, end, head, H, K, C, 0, SIZE)
    store_rows(dv, of_values, begin, end, head, H, V, C, 0, WIDTH)
