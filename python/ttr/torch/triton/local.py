"""Local linear regression around every query: three passes over the keys that it sees, nothing stored.

    p_i = softmax of scale q . k_i,   c = sum_i p_i k_i,   d_i = k_i - c
    (sum_i p_i d_i d_i^T + ridge) u = c - q,   y = sum_i p_i (1 - d_i . u) v_i
"""

# mypy: ignore-errors
import torch
import triton
import triton.language as tl
from torch import Tensor

from ..portable.inputs import Call
from ..portable.passes import least_pivot
from ..portable.recipe import query_scale
from . import launches
from .passes import power
from .rows import load_rows, product
from .token import row_of, solved

#: What the kernel takes nothing else of.
_PLAIN = {
    "degree": 1, "kernel": "exponential", "decay": "none", "importance": "none", "window": 0, "features": "none",
    "causal": True, "output_norm": "none", "normalise_qk": False, "correction": 0.0,
}  # fmt: skip


@triton.jit
def _log_shares(keys, asked, first, last, C: tl.constexpr, SCALE: tl.constexpr):
    seen = first + tl.arange(0, C) < last
    return tl.where(seen, SCALE * tl.sum(keys * asked[None, :], 1), float("-inf"))


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
    asked = row_of(q, row.to(tl.int64) * Q_HEADS + query // (H * GROUPS // Q_HEADS), K, SIZE)
    top, total = float("-inf"), 0.0
    centre = tl.zeros([SIZE], tl.float32)
    for first in range(begin, last, C):
        keys = load_rows(k, first, last, head // (H // K_HEADS), K_HEADS, K, C, 0, SIZE).to(tl.float32)
        logs = _log_shares(keys, asked, first, last, C, SCALE)
        most = tl.maximum(top, tl.max(logs, 0))
        left, p = tl.exp(top - most), tl.exp(logs - most)
        centre = left * centre + tl.sum(p[:, None] * keys, 0)
        total = left * total + tl.sum(p, 0)
        top = most
    total = tl.where(total == 0, 1.0, total)
    centre /= total
    a = tl.zeros([SIZE, SIZE], tl.float32)
    for first in range(begin, last, C):
        keys = load_rows(k, first, last, head // (H // K_HEADS), K_HEADS, K, C, 0, SIZE).to(tl.float32)
        p = tl.exp(_log_shares(keys, asked, first, last, C, SCALE) - top) / total
        d = keys - centre[None, :]
        a += product(tl.trans(p[:, None] * d), d)
    i = tl.arange(0, SIZE)
    own = RIDGE
    if ridge is not None:
        own = tl.load(ridge + head).to(tl.float32)
    a += tl.where(i[:, None] == i[None, :], own, 0.0)
    u = tl.sum(solved(a, (centre - asked)[:, None], K, SIZE, least), 1)
    answer = tl.zeros([WIDTH], tl.float32)
    for first in range(begin, last, C):
        keys = load_rows(k, first, last, head // (H // K_HEADS), K_HEADS, K, C, 0, SIZE).to(tl.float32)
        values = load_rows(v, first, last, head // (H // V_HEADS), V_HEADS, V, C, 0, WIDTH).to(tl.float32)
        p = tl.exp(_log_shares(keys, asked, first, last, C, SCALE) - top) / total
        shares = p * (1 - tl.sum((keys - centre[None, :]) * u[None, :], 1))
        answer += tl.sum(shares[:, None] * values, 0)
    j = tl.arange(0, WIDTH)
    at = y + (row.to(tl.int64) * H * GROUPS + query) * V + j
    tl.store(at, answer.to(y.dtype.element_ty), mask=j < V)


def takes(call: Call) -> bool:
    """Whether the kernel has this call; sums of float32 are enough for rows of two bytes."""
    choices = call.choices
    narrow = call.tensors["v"].dtype in (torch.bfloat16, torch.float16)
    plain = all(getattr(choices, name) == value for name, value in _PLAIN.items())
    return narrow and plain and choices.ridge > 0 and not call.state and call.sequences is None


def run(call: Call) -> Tensor:
    """y [B, T, max(H, Hq), Dv], without gradients."""
    choices, sizes = call.choices, call.sizes
    heads, queries = sizes["H"], max(sizes["H"], sizes["Hq"])
    q, k, v = (call.tensors[name].contiguous() for name in ("q", "k", "v"))
    ridge = call.tensors.get("ridge")
    y = v.new_empty(sizes["B"], sizes["T"], queries, sizes["Dv"])
    launches.launch(
        linear, (sizes["B"] * sizes["T"], queries),
        q, k, v, None if ridge is None else ridge.contiguous(), y, sizes["T"],
        least_pivot(sizes["Dk"], torch.float32), H=heads, Q_HEADS=sizes["Hq"], K_HEADS=sizes["Hk"],
        V_HEADS=sizes["Hv"], GROUPS=queries // heads, K=sizes["Dk"], V=sizes["Dv"], C=64, SIZE=power(sizes["Dk"]),
        WIDTH=power(sizes["Dv"]), SCALE=query_scale(choices, sizes["Dk"]), RIDGE=choices.ridge,
        BEFORE=choices.read == "before", num_warps=4 if sizes["Dk"] <= 64 else 8, num_stages=1,
    )  # fmt: skip
    return y
