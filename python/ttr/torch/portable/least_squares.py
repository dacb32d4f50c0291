"""Weighted linear least squares by its normal equations:

    A_t = g_t A_{t-1} + w_t k_t k_t^T,   B_t = g_t B_{t-1} + w_t v_t k_t^T
    y_t = B_t x,   (A_t + R) x = q_t

Exact solutions are a prefix solve (prefix_solve.py): a few products of matrices a token. For
iterations that stop early, a ridge relative to A, and where systems are singular to rounding, a
system is formed for every token (token_systems.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._derivatives import refuse_tangents
from . import kernels, token_systems
from .inputs import Call
from .kernels import CHUNK
from .layout import by_memory, by_token
from .normalise import read_out
from .not_finite import apart
from .operands import log_decay_rows, mapped_keys, positions_so_far, scalars
from .passes import Passes, least_left
from .prefix_solve import Pairs, recall


def obstacle(call: Call) -> str | None:
    """What of the recipe this form does not take; None where it takes all."""
    if call.choices.preconditioner == "low_rank":
        return "preconditioner: low_rank, whose eigenvectors have no gradient of their own"
    return None


@torch.compiler.disable  # type: ignore[untyped-decorator,unused-ignore]
def run(call: Call) -> tuple[Tensor, dict[str, Tensor]]:
    """y [B, T, max(H, Hq), Dv] and the final state. Whether a system is singular is asked of its
    numbers, which no graph can."""
    refuse_tangents("regress", (*call.tensors.values(), *call.state.values()), "")
    if _kernels(call) is None:
        return apart(_run, call)
    found = run_packed(call)  # kernels know by themselves what is not finite
    return apart(_run_by_token, call) if found is None else found


def _run(call: Call) -> tuple[Tensor, dict[str, Tensor]]:
    ridge = _ridge(call)
    found = _by_prefixes(call, ridge, *_start(call, ridge)) if _nested(call) else None
    return _run_by_token(call) if found is None else _answers(call, *found)


def _run_by_token(call: Call) -> tuple[Tensor, dict[str, Tensor]]:
    ridge = _ridge(call)
    return _answers(call, *_by_token(call, ridge, *_start(call, ridge)))


def _answers(call: Call, y: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    return read_out(call.choices, y, None), _final(call, a, b)


@torch.compiler.disable  # type: ignore[untyped-decorator,unused-ignore]
def run_packed(call: Call) -> tuple[Tensor, dict[str, Tensor]] | None:
    """What run does, for sequences one after another, in one call of kernels. None where there are none
    for the recipe or the device, or where systems are singular to rounding."""
    if not _nested(call) or _kernels(call) is None:
        return None
    refuse_tangents("regress", (*call.tensors.values(), *call.state.values()), "")
    ridge = _ridge(call)
    found = _by_prefixes(call, ridge, *_start(call, ridge))
    return None if found is None else _answers(call, *found)


def _nested(call: Call) -> bool:
    """Whether every system is the one before it, scaled, and a pair, but for a ridge; solved
    exactly."""
    choices = call.choices
    if not choices.causal:
        return False
    exact = choices.optimizer == "exact" or (
        choices.optimizer == "conjugate_gradient" and choices.preconditioner == "chunk_factor"
    )
    return exact and choices.ridge_kind != "relative"


def _by_prefixes(
    call: Call, ridge: Tensor, a: Tensor, b: Tensor
) -> tuple[Tensor, Tensor, Tensor] | None:
    """None where systems are singular to rounding."""
    added = None if call.choices.ridge_kind == "fading" else ridge.squeeze(1)
    q, pairs = _operands(call)
    batches, heads = (1, 1) if _kernels(call) is not None else _parts(call)
    some = call.sizes["H"] // heads
    for passes in _passes(call, pairs, some):
        given = _Memories(q, *pairs, a, b, added)
        found = [_recall(passes, part.cut(heads, by_head=True)) for part in given.cut(batches, by_head=False)]
        made = [rows for rows in found if rows is not None]
        if len(made) == len(found):
            return _joined(made, (0, 0, 0))
    return None


class _Memories(NamedTuple):
    """What recall takes, by name."""

    q: Tensor
    k: Tensor
    v: Tensor
    w: Tensor | None
    g: Tensor | None
    a: Tensor
    b: Tensor
    ridge: Tensor | None

    def cut(self, parts: int, by_head: bool) -> list[_Memories]:
        """As many parts, of some sequences or, ``by_head``, of some heads each."""
        if parts == 1:
            return [self]
        axes = (2, 2, 2, 2, 2, 1, 1, 0) if by_head else (0, 0, 0, 0, 0, 0, 0, None)
        columns = [
            [x] * parts if x is None or axis is None else x.split(-(-x.shape[axis] // parts), axis)
            for x, axis in zip(self, axes)
        ]
        return [_Memories._make(row) for row in zip(*columns)]


def _recall(maker: Callable[[Pairs], Any], parts: list[_Memories]) -> tuple[Tensor, Tensor, Tensor] | None:
    """Part by part, so that what one forms is gone before the next, backward as well. None where systems
    are singular to rounding."""
    made = []
    for q, k, v, w, g, a, b, ridge in parts:
        y, a, b, sound = recall(maker, q, Pairs(k, v, w, g), a, b, ridge)
        if not sound:
            return None
        made.append((y, a, b))
    return _joined(made, (2, 1, 1))


def _joined(
    parts: list[tuple[Tensor, Tensor, Tensor]], axes: tuple[int, int, int]
) -> tuple[Tensor, Tensor, Tensor]:
    if len(parts) == 1:
        return parts[0]
    y, a, b = (torch.cat(x, axis) for x, axis in zip(zip(*parts), axes))
    return y, a, b


#: Numbers of the keys and values that are taken together: on a CPU what its caches hold.
_TOGETHER = {"cpu": 1 << 18}
_TOGETHER_ELSEWHERE = 1 << 26


def _parts(call: Call) -> tuple[int, int]:
    """Parts of the sequences, and of the heads, that are taken one after another."""
    sizes = call.sizes
    numbers = sizes["B"] * sizes["T"] * sizes["H"] * (sizes["Dphi"] + sizes["Dv"])
    wanted = -(-numbers // _TOGETHER.get(call.device.type, _TOGETHER_ELSEWHERE))
    each = -(-sizes["B"] // max(1, min(sizes["B"], wanted)))  # sequences of a part
    batches = -(-sizes["B"] // max(1, each)) or 1
    most = math.gcd(sizes["Hq"], sizes["Hk"], sizes["Hv"], sizes["H"])
    heads = max(n for n in range(1, most + 1) if most % n == 0 and n <= max(1, -(-wanted // batches)))
    return batches, heads


def _operands(call: Call) -> tuple[Tensor, Pairs]:
    g, w = log_decay_rows(call), scalars(call, "importance")
    rows = kernels.plain_rows(call)
    if rows is None:
        keys = mapped_keys(call)
        assert keys.k is not None
        rows = by_token(keys.q), by_token(keys.k)
    pairs = Pairs(
        rows[1],
        call.tensors["v"],
        None if w is None else by_token(w).squeeze(-1),
        None if g is None else by_token(g).squeeze(-1),
    )
    return rows[0], pairs


def _kernels(call: Call) -> Any | None:
    return kernels.made_for(call, max(call.sizes["Dphi"], call.sizes["Dv"]))


def _passes(call: Call, pairs: Pairs, heads: int) -> list[Callable[[Pairs], Any]]:
    """What makes the passes of so many memories; where their chunks may be too long, also shorter ones."""
    at = call.choices.read
    made = _kernels(call)
    if made is None:
        size = _chunk_size(pairs, call.choices.ridge_kind)
        return [lambda pairs: Passes(pairs, heads, call.work, at, size)]
    ends = kernels.ends(call)

    def kernel_passes(size: int) -> Callable[[Pairs], Any]:
        return lambda pairs: made.Passes(pairs, heads, ends, at, size)

    return [kernel_passes(size) for size in ((CHUNK,) if pairs.g is None else (CHUNK, CHUNK // 4))]


def _chunk_size(pairs: Pairs, ridge_kind: str) -> int:
    """The longest chunk, from 64 tokens to 16, whose memory keeps its digits, and of which there is
    enough left that a ridge which does not fade takes few steps."""
    if pairs.g is None:
        return min(CHUNK, max(1, pairs.k.shape[1]))
    for size in (CHUNK, CHUNK // 2):
        g = torch.nn.functional.pad(pairs.g.detach(), (0, 0, 0, -pairs.g.shape[1] % size))
        left = g.unflatten(1, (-1, size)).sum(2).exp()
        least = least_left(pairs.g.dtype) if ridge_kind == "fading" else 0.25
        if bool((left > least).all()):
            return size
    return CHUNK // 4


def _by_token(
    call: Call, ridge: Tensor, a: Tensor, b: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    keys = mapped_keys(call)
    assert keys.k is not None
    v = by_memory(call.need("v"), call.sizes["H"])
    w = scalars(call, "importance")
    g = log_decay_rows(call)
    g = torch.zeros_like(keys.k[..., :1]) if g is None else g
    given = call.get("step")
    steps = g[..., :0] if given is None else by_memory(given, call.sizes["H"])
    momentum = scalars(call, "momentum")
    if momentum is None:
        momentum = g[..., :0]
    written = keys.k if w is None else w * keys.k
    rows = token_systems.Rows(keys.q, keys.k, written, v, g, steps, momentum)
    y, a, b = token_systems.run(call.choices, rows, a.unsqueeze(2), b.unsqueeze(2), ridge)
    return by_token(y), a.squeeze(2), b.squeeze(2)


def _ridge(call: Call) -> Tensor:
    """[H, 1, Dphi]; none on the 1 of an affine memory."""
    choices, sizes = call.choices, call.sizes
    shape = (sizes["H"], sizes["Dphi"])
    given = call.get("ridge")
    if given is None:
        ridge = torch.full(shape, choices.ridge, dtype=call.work, device=call.device)
    elif given.dim() == 1:
        ridge = given.unsqueeze(-1).expand(shape)
    else:
        ridge = torch.nn.functional.pad(given, (0, sizes["Dphi"] - given.shape[-1]))
    if choices.function == "affine":
        ridge = torch.cat([ridge[..., :-1], torch.zeros_like(ridge[..., -1:])], -1)
    return ridge.unsqueeze(1)


def _start(call: Call, ridge: Tensor) -> tuple[Tensor, Tensor]:
    """A [N, H, K, K], with a ridge that fades, and B^T [N, H, K, V]."""
    sizes = call.sizes
    shape = (sizes["N"], sizes["H"], sizes["Dphi"])
    a, b = call.initial("state.a"), call.initial("state")
    if a is None:
        fading = ridge if call.choices.ridge_kind == "fading" else torch.zeros_like(ridge)
        a = torch.diag_embed(fading.squeeze(1)).expand(*shape, shape[-1])
    else:
        a = (a + a.transpose(-1, -2)) / 2  # solvers read either half: so does the gradient
    if b is None:
        b = torch.zeros(*shape, sizes["Dv"], dtype=call.work, device=call.device)
    return a, b


def _final(call: Call, a: Tensor, b: Tensor) -> dict[str, Tensor]:
    if not call.choices.causal:
        return {}
    final = {"state": b, "state.a": a}
    if call.choices.features == "cosformer":
        final["state.position"] = positions_so_far(call) + call.sizes["T"]
    return {name: call.stored(name, tensor) for name, tensor in final.items()}
