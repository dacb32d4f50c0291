"""Local linear regression around every query: three passes over the keys that it sees, nothing stored.

    p_i = softmax of scale q . k_i,   c = sum_i p_i k_i,   d_i = k_i - c
    (sum_i p_i d_i d_i^T + ridge) u = c - q,   y = sum_i p_i (1 - d_i . u) v_i

``local_back.py`` has the gradient. Rows are read in the types that they have; all sums are float32.
"""

# mypy: ignore-errors
import triton
import triton.language as tl

from .rows import load_rows, product
from .token import row_of, solved


@triton.jit
def _log_shares(keys, asked, first, last, C: tl.constexpr, SCALE: tl.constexpr):
    seen = first + tl.arange(0, C) < last
    return tl.where(seen, SCALE * tl.sum(keys * asked[None, :], 1), float("-inf"))


@triton.jit
def shares(keys, asked, first, last, C: tl.constexpr, SCALE: tl.constexpr, top, total):
    """p [C] of keys from ``first`` on, 0 from ``last`` on."""
    return tl.exp(_log_shares(keys, asked, first, last, C, SCALE) - top) / total


@triton.jit
def centre_of(
    k, asked, begin, last, head, HEADS: tl.constexpr, K: tl.constexpr, C: tl.constexpr, SIZE: tl.constexpr,
    SCALE: tl.constexpr,
):  # fmt: skip
    """The greatest logarithm of a share, the sum of the shares over that one, and the mean key."""
    top, total = float("-inf"), 0.0
    centre = tl.zeros([SIZE], tl.float32)
    for first in range(begin, last, C):
        keys = load_rows(k, first, last, head, HEADS, K, C, 0, SIZE).to(tl.float32)
        logs = _log_shares(keys, asked, first, last, C, SCALE)
        most = tl.maximum(top, tl.max(logs, 0))
        left, p = tl.exp(top - most), tl.exp(logs - most)
        centre = left * centre + tl.sum(p[:, None] * keys, 0)
        total = left * total + tl.sum(p, 0)
        top = most
    total = tl.where(total == 0, 1.0, total)
    return top, total, centre / total


@triton.jit
def ridge_of(ridge, head, RIDGE: tl.constexpr):
    if ridge is None:
        return RIDGE
    else:
        return tl.load(ridge + head).to(tl.float32)


@triton.jit
def linear(
    q, k, v, ridge, y, tokens, least,
    H: tl.constexpr, Q_HEADS: tl.constexpr, K_HEADS: tl.constexpr, V_HEADS: tl.constexpr, GROUPS: tl.constexpr,
    K: tl.constexpr, V: tl.constexpr, C: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr,
    SCALE: tl.constexpr, RIDGE: tl.constexpr, BEFORE: tl.constexpr,
):  # fmt: skip
    """One query of one head."""
    row, query = tl.program_id(0), tl.program_id(1)
    head = query // GROUPS
    begin = row // tokens * tokens
    last = row + 1
    if BEFORE:
        last = row
    key_head = head // (H // K_HEADS)
    asked = row_of(q, row.to(tl.int64) * Q_HEADS + query // (H * GROUPS // Q_HEADS), K, SIZE)
    top, total, centre = centre_of(k, asked, begin, last, key_head, K_HEADS, K, C, SIZE, SCALE)
    a = tl.zeros([SIZE, SIZE], tl.float32)
    for first in range(begin, last, C):
        keys = load_rows(k, first, last, key_head, K_HEADS, K, C, 0, SIZE).to(tl.float32)
        p, d = shares(keys, asked, first, last, C, SCALE, top, total), keys - centre[None, :]
        a += product(tl.trans(p[:, None] * d), d)
    i = tl.arange(0, SIZE)
    a += tl.where(i[:, None] == i[None, :], ridge_of(ridge, head, RIDGE), 0.0)
    u = tl.sum(solved(a, (centre - asked)[:, None], K, SIZE, least), 1)
    answer = tl.zeros([WIDTH], tl.float32)
    for first in range(begin, last, C):
        keys = load_rows(k, first, last, key_head, K_HEADS, K, C, 0, SIZE).to(tl.float32)
        values = load_rows(v, first, last, head // (H // V_HEADS), V_HEADS, V, C, 0, WIDTH).to(tl.float32)
        p = shares(keys, asked, first, last, C, SCALE, top, total)
        left = p * (1 - tl.sum((keys - centre[None, :]) * u[None, :], 1))
        answer += tl.sum(left[:, None] * values, 0)
    j = tl.arange(0, WIDTH)
    at = y + (row.to(tl.int64) * H * GROUPS + query) * V + j
    tl.store(at, answer.to(y.dtype.element_ty), mask=j < V)
