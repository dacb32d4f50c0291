"""What kernels load: a chunk's rows and how its memory fades, and products in full precision.

Tensors by token are [R, heads, D], R the rows of all sequences one after another; ``chunks`` [n, 2]
has the first row of each chunk and the one after its last. Rows and columns beyond the end are 0.
"""

# mypy: ignore-errors
import triton
import triton.language as tl


#: Triton's interpreter multiplies the bits of bfloat16, not what they say.
_INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)


@triton.jit
def _dot(a, b):
    if _INTERPRETED:
        return tl.dot(a.to(tl.float32), b.to(tl.float32))
    else:
        return tl.dot(a, b)


@triton.jit
def _pieces(a):
    """Three bfloat16 whose sum is a, but for the last bits of a float32."""
    high = a.to(tl.bfloat16)
    rest = a - high.to(tl.float32)
    middle = rest.to(tl.bfloat16)
    return high, middle, (rest - middle.to(tl.float32)).to(tl.bfloat16)


@triton.jit
def product(a, b):
    """a b in float32 to rounding, on the tensor cores: three products of their narrow types; one
    where both are bfloat16."""
    if a.dtype == tl.bfloat16 and b.dtype == tl.bfloat16:
        return _dot(a, b)
    elif b.dtype == tl.bfloat16:
        high, middle, low = _pieces(a)
        return _dot(low, b) + _dot(middle, b) + _dot(high, b)
    elif a.dtype == tl.bfloat16:
        high, middle, low = _pieces(b)
        return _dot(a, low) + _dot(a, middle) + _dot(a, high)
    else:
        return tl.dot(a, b, input_precision="tf32x3")


@triton.jit
def load_rows(
    x, begin, end, head, HEADS: tl.constexpr, D: tl.constexpr, C: tl.constexpr, first,
    SIZE: tl.constexpr,
):  # fmt: skip
    """[C, SIZE] in bfloat16, or else float32: channels from ``first`` on of rows from ``begin``
    on."""
    row = begin + tl.arange(0, C)
    channel = first + tl.arange(0, SIZE)
    at = (row.to(tl.int64) * HEADS + head)[:, None] * D + channel[None, :]
    inside = (row < end)[:, None] & (channel < D)[None, :]
    rows = tl.load(x + at, mask=inside, other=0.0)
    # Triton 3.6 makes code for narrower tiles of bfloat16 that reads beyond them.
    if rows.dtype == tl.bfloat16 and C >= 64 and SIZE >= 64:
        return rows
    else:
        return rows.to(tl.float32)


@triton.jit
def store_rows(
    x, value, begin, end, head, HEADS: tl.constexpr, D: tl.constexpr, C: tl.constexpr, first,
    SIZE: tl.constexpr,
):  # fmt: skip
    """Writes [C, SIZE] to where load_rows reads, in the type of x."""
    row = begin + tl.arange(0, C)
    channel = first + tl.arange(0, SIZE)
    at = (row.to(tl.int64) * HEADS + head)[:, None] * D + channel[None, :]
    inside = (row < end)[:, None] & (channel < D)[None, :]
    tl.store(x + at, value.to(x.dtype.element_ty), mask=inside)


@triton.jit
def load_numbers(x, begin, end, head, HEADS: tl.constexpr, C: tl.constexpr, SHIFT: tl.constexpr):
    """[C] in float32: those of rows SHIFT later; 0 beyond the chunk on either side."""
    row = begin + SHIFT + tl.arange(0, C)
    inside = (row >= begin) & (row < end)
    return tl.load(x + row.to(tl.int64) * HEADS + head, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def load_matrix(x, ROWS: tl.constexpr, row, COLUMNS: tl.constexpr, column):
    """[.., ..] at the index vectors ``row`` and ``column`` of a row-major matrix."""
    inside = (row < ROWS)[:, None] & (column < COLUMNS)[None, :]
    return tl.load(x + row[:, None] * COLUMNS + column[None, :], mask=inside, other=0.0)


@triton.jit
def load_square(x, C: tl.constexpr):
    """[C, C], row-major."""
    return tl.load(x + tl.arange(0, C)[:, None] * C + tl.arange(0, C)[None, :])


@triton.jit
def below(scores, C: tl.constexpr, STRICT: tl.constexpr):
    """[C, C]: what row t sees, i <= t or, STRICT, i < t; 0 in the place of all else, whatever it is."""
    t, i = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    if STRICT:
        return tl.where(i < t, scores, 0.0)
    else:
        return tl.where(i <= t, scores, 0.0)


@triton.jit
def _is_finite(x):
    return x - x == 0


@triton.jit
def of_earlier(scores, rows, C: tl.constexpr):
    """scores [C, C], 0 above the diagonal, times rows [C, SIZE]. A row with what is not finite makes NaN
    of its own channels in its own and in later rows, and leaves earlier ones alone."""
    finite = _is_finite(rows.to(tl.float32))
    total = product(scores, tl.where(finite, rows, 0.0))
    if tl.min(finite.to(tl.int32)) == 0:
        seen = tl.cumsum((~finite).to(tl.int32), 0)
        total = tl.where(seen > 0, float("nan"), total)
    return total


@triton.jit
def left_of_start(g, begin, end, head, HEADS: tl.constexpr, C: tl.constexpr, FADES: tl.constexpr, BEFORE: tl.constexpr):
    """[C]: the factor from the chunk's start to each row, as it was left or, BEFORE, found."""
    if FADES:
        if BEFORE:
            log = load_numbers(g, begin, end, head, HEADS, C, -1)
        else:
            log = load_numbers(g, begin, end, head, HEADS, C, 0)
        return tl.exp(tl.cumsum(log, 0))
    else:
        return tl.full([C], 1.0, tl.float32)


@triton.jit
def left_at_end(g, begin, end, head, HEADS: tl.constexpr, C: tl.constexpr, FADES: tl.constexpr):
    """[C]: the factor from each row to the chunk's end."""
    if FADES:
        return tl.exp(tl.cumsum(load_numbers(g, begin, end, head, HEADS, C, 1), 0, reverse=True))
    else:
        return tl.full([C], 1.0, tl.float32)


@triton.jit
def between(
    g, begin, end, head, HEADS: tl.constexpr, C: tl.constexpr, FADES: tl.constexpr, BEFORE: tl.constexpr,
    STRICT: tl.constexpr,
):  # fmt: skip
    """[C, C]: the factor from column i to row t as t reads it, 0 where it does not: BEFORE t has faded
    or written, or, STRICT, when it has faded. Sums of the
    logarithms from i to t themselves: differences of longer sums would lose what a strong decay
    leaves, and -inf."""
    t = tl.arange(0, C)[:, None]
    i = tl.arange(0, C)[None, :]
    if BEFORE or STRICT:
        seen = i < t
    else:
        seen = i <= t
    if FADES:
        if BEFORE:
            log = load_numbers(g, begin, end, head, HEADS, C, -1)
            terms = tl.where(i < t - 1, log[:, None], 0.0)
        else:
            log = load_numbers(g, begin, end, head, HEADS, C, 0)
            terms = tl.where(i < t, log[:, None], 0.0)
        return tl.where(seen, tl.exp(tl.cumsum(terms, 0)), 0.0)
    else:
        return tl.where(seen, 1.0, 0.0)


@triton.jit
def weights(w, begin, end, head, HEADS: tl.constexpr, C: tl.constexpr, WEIGHTED: tl.constexpr):
    """[C]: the importance of rows; 0 beyond the end."""
    if WEIGHTED:
        return load_numbers(w, begin, end, head, HEADS, C, 0)
    else:
        return tl.where(begin + tl.arange(0, C) < end, 1.0, 0.0)
