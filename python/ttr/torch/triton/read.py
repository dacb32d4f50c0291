"""What tokens read of the sums before them: linear attention with scalar decay."""

# mypy: ignore-errors
import triton
import triton.language as tl

from .channels import from_start, mixed
from .rows import below, between, load_rows, load_square, of_earlier, product, store_rows, weights


@triton.jit
def read(
    x, k, v, w, g, faded, states, y, chunks,
    H: tl.constexpr, GROUPS: tl.constexpr, X_HEADS: tl.constexpr, K_HEADS: tl.constexpr, V_HEADS: tl.constexpr,
    K: tl.constexpr, V: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    C: tl.constexpr, SIZE: tl.constexpr, TILE: tl.constexpr,
    ACROSS: tl.constexpr, STRICT: tl.constexpr, BEFORE: tl.constexpr, WEIGHTED: tl.constexpr, FADES: tl.constexpr,
):  # fmt: skip
    """y_t = S_t^T x_t, S_t = e^{G_t} S_0 + sum_{i<=t} e^{G_t - G_i} w_i k_i v_i^T as token t leaves it,
    finds it BEFORE, or, STRICT, has faded and not yet written it; for a chunk and TILE channels of one
    query head. states [ROWS, COLUMNS] hold S_0 or, ACROSS, its transpose. Where channels fade each for
    itself (FADES == 2) their scores are there, ``faded`` [n, H GROUPS, C, C], but ACROSS, where the
    channels are those of v."""
    chunk, query = tl.program_id(0), tl.program_id(1)
    first = tl.program_id(2) * TILE
    head = query // GROUPS
    begin, end = tl.load(chunks + 2 * chunk), tl.load(chunks + 2 * chunk + 1)
    states += (chunk.to(tl.int64) * H + head) * ROWS * COLUMNS
    rows = load_rows(x, begin, end, query // (H * GROUPS // X_HEADS), X_HEADS, K, C, 0, SIZE)
    keys = load_rows(k, begin, end, head // (H // K_HEADS), K_HEADS, K, C, 0, SIZE)
    if FADES == 2 and not ACROSS:
        scores = load_square(faded + (chunk.to(tl.int64) * H * GROUPS + query) * C * C, C)
    elif FADES == 2:
        scores = below(product(rows, tl.trans(keys)), C, BEFORE or STRICT)
    else:
        scores = product(rows, tl.trans(keys)) * between(g, begin, end, head, H, C, FADES, BEFORE, STRICT)
        scores = below(scores, C, BEFORE or STRICT)
    scores *= weights(w, begin, end, head, H, C, WEIGHTED)[None, :]
    i, j = tl.arange(0, SIZE), first + tl.arange(0, TILE)
    if ACROSS:
        inside = (i < COLUMNS)[:, None] & (j < ROWS)[None, :]
        state = tl.load(states + i[:, None] + j[None, :] * COLUMNS, mask=inside, other=0.0)
    else:
        inside = (i < ROWS)[:, None] & (j < COLUMNS)[None, :]
        state = tl.load(states + i[:, None] * COLUMNS + j[None, :], mask=inside, other=0.0)
    values = load_rows(v, begin, end, head // (H // V_HEADS), V_HEADS, V, C, first, TILE)
    if FADES == 2 and not ACROSS:
        total = product(rows * from_start(g, begin, end, head, H, K, C, 0, SIZE, FADES, BEFORE), state)
    else:
        total = product(rows, state) * from_start(g, begin, end, head, H, V, C, first, TILE, FADES, BEFORE)
    if FADES == 2 and ACROSS:
        total += mixed(scores, values, g, begin, end, head, H, V, C, first, TILE, False, BEFORE, STRICT)
    else:
        total += of_earlier(scores, values, C)
    store_rows(y, total, begin, end, query, H * GROUPS, V, C, first, TILE)
