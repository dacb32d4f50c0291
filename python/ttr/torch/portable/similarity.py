"""How near a key is to a query: kernels, and the shares of a query's neighbours.

    exponential       exp(scale k . q)           epanechnikov    (1 - (d/b)^2)_+
    gaussian          exp(-d^2 / b)              biweight        (1 - (d/b)^2)_+^2
    laplace           exp(-d / b)                triweight       (1 - (d/b)^2)_+^3
    inverse_distance  1 / d                      linear          scale k . q

d = |k - q|, b the bandwidth. Distances are taken from differences, so that a key is at distance 0
of its equal, and no length of keys costs digits of what lies between them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .._derivatives import refuse_tangents
from .inputs import Call
from .kept_pairs import VisibleRange
from .recipe import known, query_scale

_POWERS = {"epanechnikov": 1, "biweight": 2, "triweight": 3}
#: log s of the distance d and u = d / b.
_LOGS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "gaussian": lambda d, u: -d * u,
    "laplace": lambda _, u: -u,
}
known("kernel", ("none", "exponential", "inverse_distance", "linear", *_POWERS, *_LOGS))
#: exp() of it is finite: what a weight of 0 would be worth, were it one.
_MOST = 80.0


def log_kernel(call: Call, q: Tensor, k: Tensor) -> Tensor:
    """log s of q [N, H, R, D] and k [N, H, P, D], [N, H, R, P]: of no neighbour -inf, of a hit of
    the inverse distance +inf."""
    kernel = call.choices.kernel
    if kernel == "exponential":
        return (query_scale(call.choices, call.sizes["Dk"]) * q) @ k.mT
    d = _distances(q, k)
    if kernel == "inverse_distance":
        hit = d == 0
        return torch.where(hit, torch.inf, -torch.where(hit, 1, d).log())
    b = _bandwidth(call, d)
    none = b == 0
    u = d / torch.where(none, 1, b)
    if kernel in _POWERS:
        outside = (u >= 1) | (none & (d != 0))
        near = torch.where(outside, 0, u)
        return torch.where(outside, -torch.inf, _POWERS[kernel] * torch.log1p(-near.square()))
    return torch.where(none & (d != 0), -torch.inf, _LOGS[kernel](d, u))


def kernel_matrix(call: Call, q: Tensor, k: Tensor) -> Tensor:
    """s of q [N, H, R, D] and k [N, H, P, D], [N, H, R, P]."""
    if call.choices.kernel == "linear":
        return (query_scale(call.choices, call.sizes["Dk"]) * q) @ k.mT
    return log_kernel(call, q, k).exp()


def _distances(q: Tensor, k: Tensor) -> Tensor:
    refuse_tangents("regress", (q, k), "")
    return torch.cdist(q, k, compute_mode="donot_use_mm_for_euclid_dist")


def _bandwidth(call: Call, like: Tensor) -> Tensor:
    given = call.get("bandwidth")
    if given is None:
        return like.new_full((1, 1, 1), call.choices.bandwidth)
    return given.to(like.dtype)[:, None, None]


def weights(call: Call, q: Tensor, k: Tensor, seen: VisibleRange, shares: bool) -> Tensor:
    """[N, H, C, G, p] of a block's queries [N, H, C, G, D] and the keys that it sees:

        w_i s(k_i, q), or, as ``shares``, over sum_j w_j s(k_j, q), and 0 where no pair has any

    w_i is that of the query, its bias included. A hit of the inverse distance leaves the others nothing.
    """
    logs = log_kernel(call, q.flatten(2, 3), k).unflatten(2, q.shape[2:4])
    there = seen.seen.unsqueeze(3)
    if seen.bias is not None:
        there = there & (seen.bias != -torch.inf)
    factor = None if seen.factor is None else seen.factor.unsqueeze(3)
    counts = there if factor is None else there & (factor != 0)
    if call.choices.kernel == "inverse_distance" and shares:
        hit = logs == torch.inf
        any_hit = (hit & counts).any(-1, keepdim=True)
        logs = torch.where(any_hit, torch.where(hit, 0, -torch.inf), logs)
        logs = torch.where(hit & ~any_hit, -torch.inf, logs)
    if seen.log_weight is not None:
        logs = logs + torch.where(there, seen.log_weight.unsqueeze(3), 0)
    if seen.bias is not None:
        logs = logs + torch.where(there, seen.bias, 0)
    logs = torch.where(there, logs, -torch.inf)
    if shares:
        top = torch.where(counts, logs.detach(), -torch.inf).amax(-1, keepdim=True)
        logs = logs - torch.where(top == -torch.inf, 0, top)
    w = logs.exp() if factor is None else logs.clamp(max=_MOST).exp() * factor
    if not shares:
        return w
    total = w.sum(-1, keepdim=True)
    nothing = total == 0
    return torch.where(nothing, 0, w / torch.where(nothing, 1, total))
