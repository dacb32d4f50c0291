"""Weighted linear least squares by its normal equations, a system for every token:

    A_t = g_t A_{t-1} + w_t k_t k_t^T,   B_t = g_t B_{t-1} + w_t v_t k_t^T
    y_t = B_t x,   (A_t + R) x = q_t

All A of a chunk are formed and solved together; B is not formed, for y_t is a sum over the chunk's
pairs. Cost a token and memory: C Dk^2 + Dk^3 / 3 multiply-adds, and C Dk^2 numbers at a time (the
backward pass computes them anew).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .._derivatives import refuse_tangents
from .decays import ScalarDecay
from .inputs import Call
from .layout import by_memory, by_token
from .normalise import read_out
from .operands import log_decay_rows, mapped_keys, positions_so_far, scalars
from .recipe import Choices
from .solvers import solve

_CHUNK = 32


def obstacle(call: Call) -> str | None:
    """What of the recipe this form does not take; None where it takes all."""
    if call.choices.preconditioner == "low_rank":
        return "preconditioner: low_rank, whose eigenvectors have no gradient of their own"
    return None


@torch.compiler.disable  # type: ignore[untyped-decorator,unused-ignore]
def run(call: Call) -> tuple[Tensor, dict[str, Tensor]]:
    """y [B, T, max(H, Hq), Dv] and the final state. Whether a system is singular is asked of its
    numbers, which no graph can."""
    choices, sizes = call.choices, call.sizes
    refuse_tangents("regress", (*call.tensors.values(), *call.state.values()), "")
    keys = mapped_keys(call)
    k = keys.k
    assert k is not None
    v = by_memory(call.need("v"), sizes["H"])
    weight = scalars(call, "importance")
    written = k if weight is None else weight * k
    g = log_decay_rows(call)
    g = torch.zeros_like(k[..., :1]) if g is None else g
    ridge = _ridge(call)
    a, b = _start(call, ridge)
    outputs = []
    for begin in range(0, sizes["T"], _CHUNK):
        rows = (x[..., begin : begin + _CHUNK, :] for x in (keys.q, k, written, v, g))
        y, a, b = checkpoint(_chunk, choices, *rows, a, b, ridge, use_reentrant=False)
        outputs.append(y)
    if not choices.causal:
        y = _read_all(choices, keys.q, a, b, ridge)
    else:
        y = torch.cat(outputs, -2) if outputs else keys.q @ b
    return by_token(read_out(choices, y, None)), _final(call, a, b)


def _ridge(call: Call) -> Tensor:
    """[H, 1, Dphi]; none on the 1 of an affine memory, nor for plain gradient descent."""
    choices, sizes = call.choices, call.sizes
    shape = (sizes["H"], sizes["Dphi"])
    if choices.optimizer == "gradient" and choices.preconditioner == "none":
        ridge = torch.zeros(shape, dtype=call.work, device=call.device)
    else:
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
    """A [N, H, 1, K, K], with a ridge that fades, and B^T [N, H, 1, K, V]."""
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
    return a.unsqueeze(2), b.unsqueeze(2)


def _final(call: Call, a: Tensor, b: Tensor) -> dict[str, Tensor]:
    if not call.choices.causal:
        return {}
    final = {"state": b.squeeze(2), "state.a": a.squeeze(2)}
    if call.choices.features == "cosformer":
        final["state.position"] = positions_so_far(call) + call.sizes["T"]
    return {name: call.stored(name, tensor) for name, tensor in final.items()}


def _regularised(choices: Choices, a: Tensor, ridge: Tensor) -> tuple[Tensor, Tensor]:
    """A + R and R's diagonal, [..., K, K] and [..., K]."""
    if choices.ridge_kind == "fading":
        return a, ridge
    if choices.ridge_kind == "relative":
        square = a.square().sum((-1, -2))
        nothing = square == 0
        norm = torch.where(nothing, 0, torch.where(nothing, 1, square).sqrt())
        ridge = ridge * norm.unsqueeze(-1)
    return a + torch.diag_embed(ridge), ridge


def _chunk(
    choices: Choices,
    q: Tensor,
    k: Tensor,
    written: Tensor,
    v: Tensor,
    g: Tensor,
    a: Tensor,
    b: Tensor,
    ridge: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """The answers of a chunk's queries [B, H, G, C, K], and A and B after it."""
    decay, at = ScalarDecay(g.unsqueeze(-3)), choices.read
    between, start = (x.squeeze(-3) for x in (decay.between(at), decay.from_start(at)))
    squares = (written.unsqueeze(-1) * k.unsqueeze(-2)).flatten(-2)
    systems = (between @ squares).unflatten(-1, (k.shape[-1], -1)) + start.unsqueeze(
        -1
    ) * a.unsqueeze(-3)
    full, diagonal = _regularised(choices, systems.squeeze(2), ridge)
    # [B, H, C, K, G]: the queries of a token share its system.
    x = solve(choices, full, q.permute(0, 1, 3, 4, 2), diagonal).permute(0, 1, 4, 2, 3)
    y = start * (x @ b) + ((x @ written.transpose(-1, -2)) * between) @ v
    ends = decay.to_end(written.unsqueeze(-3)).squeeze(-3).transpose(-1, -2)
    kept = decay.from_start("after").squeeze(-3)[..., -1:, :]
    return y, kept * a + ends @ k, kept * b + ends @ v


def _read_all(choices: Choices, q: Tensor, a: Tensor, b: Tensor, ridge: Tensor) -> Tensor:
    """Every query reads the memory of the whole sequence."""
    full, diagonal = _regularised(choices, a.squeeze(2), ridge.squeeze(1))
    groups = q.shape[2]
    right = q.flatten(2, 3).transpose(-1, -2)
    x = solve(choices, full, right, diagonal).transpose(-1, -2).unflatten(2, (groups, -1))
    return x @ b
