"""From a call's inputs to the rows that a linear memory reads and writes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from . import low_rank
from .features import FeatureMap
from .inputs import Call
from .layout import by_memory, queries_by_memory
from .normalise import unit
from .recipe import known, query_scale
from .scans import chunked_linear_scan, max_plus_scan


@dataclasses.dataclass
class Rows:
    """Rows [B, H, G, R, D] (G = 1 but for q) of

        M~ = decay(M'),   M = M~ + v key^T - (M_ref erase) along^T,   y = M q

    ``erase`` is None where nothing is erased, ``along`` None where it is ``key``. M_ref is M~, or
    M' where ``undecayed``. Numbers a row are [B, H, 1, R, 1].
    """

    q: Tensor
    key: Tensor
    v: Tensor
    erase: Tensor | None = None
    along: Tensor | None = None
    undecayed: bool = False
    log_decay: Tensor | None = None
    phase: Tensor | None = None
    shrink: Tensor | None = None
    momentum: Tensor | None = None
    maximum: Tensor | None = None
    curvature: Tensor | None = None
    directions: Tensor | None = None


def root_complement(log_decay: Tensor) -> Tensor:
    """sqrt(1 - g^2), with a slope of 0 where nothing decays."""
    square = -torch.expm1(2 * log_decay)
    return torch.where(square == 0, 0, torch.where(square == 0, 1, square).sqrt())


@dataclasses.dataclass
class Keys:
    """Queries and keys as the memory meets them: normalised, corrected, mapped, scaled."""

    q: Tensor
    k: Tensor | None
    position: Tensor | None


def mapped_keys(call: Call) -> Keys:
    """phi of the call's queries (scaled) and keys."""
    choices, heads = call.choices, call.sizes["H"]
    q = queries_by_memory(call.need("q"), heads)
    k = call.get("k")
    k = None if k is None else by_memory(k, heads)
    if choices.normalise_qk:
        q, k = unit(q), None if k is None else unit(k)
    if choices.correction != 0 and choices.causal:
        q = q - choices.correction * by_memory(call.need("erase_key"), heads)
    features = FeatureMap(call)
    position = _positions(call)
    steps = choices.rows_per_token
    q = features(q, position) * query_scale(choices, call.sizes["Dk"])
    if k is not None:
        rows = None if position is None else position.repeat_interleave(steps, -2)
        k = features(k, rows)
    return Keys(q, k, position)


def _positions(call: Call) -> Tensor | None:
    """[N, H, 1, T, 1]: the tokens before each one."""
    if call.choices.features != "cosformer":
        return None
    tokens = torch.arange(call.sizes["T"], device=call.device)
    return (positions_so_far(call)[:, :, None, None, None] + tokens[:, None]).to(call.work)


def positions_so_far(call: Call) -> Tensor:
    """[N, H]: the tokens before this call (int64)."""
    start = call.state.get("state.position")
    if start is None:
        return torch.zeros(call.sizes["N"], call.sizes["H"], dtype=torch.int64, device=call.device)
    return start


def log_decay_rows(call: Call) -> Tensor | None:
    """The logarithm of the decay, [B, H, 1, T, 1 or K]; None where nothing fades."""
    decay, sizes = call.choices.decay, call.sizes
    if decay in ("none", "matrix"):
        return None
    if decay in ("scalar", "channel"):
        g = call.need("log_decay")
        return by_memory(g if decay == "channel" else g.unsqueeze(-1), sizes["H"])
    memories = torch.arange(sizes["H"], dtype=call.work, device=call.device)
    if decay == "constant":
        factors = torch.full_like(memories, call.choices.decay_factor).log()
    else:  # retention
        factors = torch.log1p(-torch.exp2(-5.0 - memories))
    return factors[:, None, None, None].expand(sizes["B"], sizes["H"], 1, sizes["T"], 1)


def scalars(call: Call, name: str) -> Tensor | None:
    """A number a row, [B, H, 1, R, 1]."""
    x = call.get(name)
    return None if x is None else by_memory(x.unsqueeze(-1), call.sizes["H"])


def hebbian_rows(call: Call, keys: Keys) -> Rows:
    """Rows of a memory that writes without reading: key = w k."""
    g = log_decay_rows(call)
    rows = Rows(keys.q, _hebbian_key(call, keys, g), by_memory(call.need("v"), call.sizes["H"]))
    rows.log_decay = g
    if call.choices.phase:
        rows.phase = by_memory(call.need("phase"), call.sizes["H"])
    if call.choices.importance == "log":
        _stabilise(call, rows)
    if call.choices.normalise_sum != "none":
        rows.v = torch.cat([rows.v, torch.ones_like(rows.v[..., :1])], -1)
    return rows


def _hebbian_key(call: Call, keys: Keys, log_decay: Tensor | None) -> Tensor:
    importance = call.choices.importance
    if importance == "complement":
        assert log_decay is not None
        return -torch.expm1(log_decay)
    if importance == "root_complement":
        assert log_decay is not None
        return root_complement(log_decay)
    assert keys.k is not None
    weight = scalars(call, "importance") if importance == "input" else None
    return keys.k if weight is None else weight * keys.k


def _stabilise(call: Call, rows: Rows) -> None:
    """Over exp(m), m the running maximum of the log-weights, the memory is written with exp(i - m) and
    fades by exp(m' - m) more, neither above 1 beside the decay."""
    g = rows.log_decay
    by_channel = g is not None and g.shape[-1] > 1
    found = stabilised(call, None if by_channel else g)
    rows.key = rows.key * found.weight
    rows.log_decay = found.log_decay + g if by_channel and g is not None else found.log_decay
    rows.maximum = found.maximum


class Stabilised(NamedTuple):
    """m [B, H, 1, R + 1, 1], from before the first row on, and numbers a row [B, H, 1, R, 1]."""

    maximum: Tensor
    weight: Tensor
    log_decay: Tensor


def stabilised(call: Call, log_decay: Tensor | None) -> Stabilised:
    """mLSTM: m = max(g + m', i). Decays of each channel's own are applied as they are: one maximum
    serves all."""
    written = scalars(call, "log_importance")
    assert written is not None
    written = written.squeeze(-1)
    decay = torch.zeros_like(written) if log_decay is None else log_decay.squeeze(-1).expand_as(written)
    start = call.initial("state.m")
    if start is None:
        start = torch.full(
            (call.sizes["N"], call.sizes["H"]), -torch.inf, dtype=call.work, device=call.device
        )
    start = start.unsqueeze(-1)
    maximum = max_plus_scan(decay, written, start)
    before = torch.cat([start.unsqueeze(-1), maximum], -1)[..., :-1]
    past = torch.where(decay == -torch.inf, -torch.inf, decay + before)
    return Stabilised(
        torch.cat([start.unsqueeze(-1), maximum], -1).unsqueeze(-1),
        _relative(written, maximum).exp().unsqueeze(-1),
        _relative(past, maximum).unsqueeze(-1),
    )


def _relative(weight: Tensor, maximum: Tensor) -> Tensor:
    """weight - maximum; a weight of -inf stays that beside any maximum."""
    nothing = weight == -torch.inf
    return torch.where(nothing, -torch.inf, weight - torch.where(nothing, 0, maximum))


def sgd_rows(call: Call, keys: Keys) -> Rows:
    """Rows of a memory that takes one step for each pair."""
    choices, heads = call.choices, call.sizes["H"]
    k = keys.k
    assert k is not None
    square = k.square().sum(-1, keepdim=True)
    beta = _STEP_SIZES[choices.step](call, square)
    rows = Rows(keys.q, beta * k, by_memory(call.need("v"), heads), erase=k)
    rows.log_decay = log_decay_rows(call)
    if choices.preconditioner == "low_rank":
        start = call.initial("state.u")
        divided, rows.directions = low_rank.divide(call, k, scalars(call, "importance"), start)
        rows.key = beta * divided
    elif choices.preconditioner != "none":
        rows.curvature, metric = _curvature(call, k)
        rows.key = rows.key * metric
    _ERASURES[choices.erase](call, rows)
    if choices.momentum:
        rows.momentum = scalars(call, "momentum")
    shrinking = scalars(call, "weight_decay")
    if shrinking is not None:
        rows.shrink = 1 - (beta * shrinking if choices.weight_decay == "coupled" else shrinking)
    if choices.steps > 1:
        _spread(choices.steps, rows, last=choices.read == "after")
    return rows


def _along_erase_key(call: Call, rows: Rows) -> None:
    rows.erase = by_memory(call.need("erase_key"), call.sizes["H"])


def _along_gated_key(call: Call, rows: Rows) -> None:
    assert rows.erase is not None
    rows.erase = by_memory(call.need("erase_gate"), call.sizes["H"]) * rows.erase


def _of_undecayed(call: Call, rows: Rows) -> None:
    _along_erase_key(call, rows)
    assert rows.erase is not None
    rows.along = by_memory(call.need("erase_gate"), call.sizes["H"]) * rows.erase
    rows.undecayed = True


#: What each word of `erase` makes of rows that erase along the key.
_ERASURES: dict[str, Callable[[Call, Rows], None]] = {
    "key": lambda call, rows: None,
    "erase_key": _along_erase_key,
    "gated_key": _along_gated_key,
    "undecayed": _of_undecayed,
}
known("erase", _ERASURES)


def _given_step(call: Call) -> Tensor:
    b = scalars(call, "step")
    assert b is not None
    return b


def _nlms(call: Call, square: Tensor) -> Tensor:
    nothing = square == 0
    size = torch.where(nothing, 1, square + call.choices.eps)
    return torch.where(nothing, 0, call.choices.eta / size)


def _longhorn(call: Call, square: Tensor) -> Tensor:
    b = _given_step(call)
    return b / (1 + b * square)


def _efla(call: Call, square: Tensor) -> Tensor:
    b, nothing = _given_step(call), square == 0
    size = torch.where(nothing, 1, square)
    return torch.where(nothing, b, -torch.expm1(-b * size) / size)


#: beta of each word of `step`, from |k|^2 [B, H, 1, R, 1].
_STEP_SIZES: dict[str, Callable[[Call, Tensor], Tensor]] = {
    "input": lambda call, _: _given_step(call),
    "one": lambda _, square: torch.ones_like(square),
    "nlms": _nlms,
    "longhorn": _longhorn,
    "efla": _efla,
}
known("step", _STEP_SIZES)


def _curvature(call: Call, k: Tensor) -> tuple[Tensor, Tensor]:
    """D = g D' + w k (.) k, and m(D) = 1.5^(-l / (1 + |l|)), l = log(D + 1e-6) - c."""
    square = k.square()
    weight = scalars(call, "importance")
    start = call.initial("state.d")
    if start is None:
        start = square.new_zeros(call.sizes["N"], call.sizes["H"], k.shape[-1])
    factors = torch.full_like(square, call.choices.curvature_decay)
    terms = square if weight is None else weight * square
    d, last = chunked_linear_scan(factors, terms, start.unsqueeze(2))
    logarithm = torch.log(d + 1e-6) - call.choices.curvature_centre
    return last, torch.pow(1.5, -logarithm / (1 + logarithm.abs()))


def _spread(steps: int, rows: Rows, last: bool) -> None:
    """Several rows a token: the first one fades, the last one (or, before, the first) is read
    at."""
    rows.q = _placed(rows.q, steps, steps - 1 if last else 0)
    if rows.log_decay is not None:
        rows.log_decay = _placed(rows.log_decay, steps, 0)


def _placed(x: Tensor, steps: int, place: int) -> Tensor:
    """[..., T, D] becomes [..., T steps, D] with x in one row of each token and 0 in the others."""
    nothing = torch.zeros_like(x)
    return torch.stack([x if row == place else nothing for row in range(steps)], -2).flatten(-3, -2)
