"""Arguments of the functions as mixers give them, and how far results are from a float64 run."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformer_models import InFloat64

Arguments = dict[str, Any]


def original(family: str, name: str) -> Callable[..., Any]:
    """The function of a modelling module that is not served."""
    path = f"transformers.models.{family}.modeling_{family}"
    found: Callable[..., Any] = getattr(importlib.import_module(path), name)
    return found


def _numbers(seed: int, dtype: torch.dtype) -> Callable[..., Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(shape, generator=generator).to(dtype)


def delta_rule(tokens: int, dtype: torch.dtype, *, keys: int = 2, batch: int = 2) -> Arguments:
    """Slices of one tensor, as a convolution leaves them."""
    draw = _numbers(1, dtype)
    mixed = draw(batch, tokens, 2 * keys * 16 + 4 * 24)
    q, k, v = torch.split(mixed, [keys * 16, keys * 16, 4 * 24], -1)
    return {
        "query": q.unflatten(-1, (keys, 16)),
        "key": k.unflatten(-1, (keys, 16)),
        "value": v.unflatten(-1, (4, 24)),
        "g": -draw(batch, tokens, 4).float().abs(),
        "beta": draw(batch, tokens, 4).sigmoid(),
        "initial_state": draw(batch, 4, 16, 24).float(),
        "output_final_state": True,
        "use_qk_l2norm_in_kernel": True,
    }


def kimi(tokens: int, dtype: torch.dtype, *, batch: int = 2) -> Arguments:
    given = delta_rule(tokens, dtype, keys=4, batch=batch)
    return given | {"g": -_numbers(2, dtype)(batch, tokens, 4, 16).float().abs()}


def mamba2(tokens: int, dtype: torch.dtype, *, batch: int = 2) -> Arguments:
    draw = _numbers(3, dtype)
    x, b, c = torch.split(draw(batch, tokens, 4 * 24 + 2 * 2 * 16), [4 * 24, 32, 32], -1)
    return {
        "hidden_states": x.unflatten(-1, (4, 24)),
        "dt": draw(batch, tokens, 4),
        "A": -draw(4).float().exp(),
        "B": b.unflatten(-1, (2, 16)),
        "C": c.unflatten(-1, (2, 16)),
        "chunk_size": 16,
        "D": draw(4),
        "dt_bias": draw(4),
        "initial_states": draw(batch, 4, 24, 16).float(),
        "dt_softplus": True,
        "dt_limit": (0.0, 1.5),
        "return_final_states": True,
    }


def mamba2_token(_: int, dtype: torch.dtype, *, batch: int = 2) -> Arguments:
    draw = _numbers(4, dtype)
    return {
        "state": draw(batch, 4, 16, 24).float().transpose(-1, -2),
        "hidden_states": draw(batch, 4, 24),
        "dt": draw(batch, 4, 1).expand(-1, -1, 24),
        "A": (-draw(4, 1, 1).float().exp()).expand(-1, 24, 16),
        "B": draw(batch, 2, 16),
        "C": draw(batch, 2, 16),
        "D": draw(4, 1).expand(-1, 24),
        "dt_bias": draw(4, 1).expand(-1, 24),
        "dt_softplus": True,
        "z": draw(batch, 4, 24),
    }


def mamba(tokens: int, dtype: torch.dtype, *, batch: int = 2) -> Arguments:
    draw = _numbers(5, dtype)
    return {
        "hidden_states": draw(batch, tokens, 24).transpose(1, 2),
        "dt": draw(batch, 24, tokens),
        "A": -draw(24, 16).float().exp(),
        "B": draw(batch, tokens, 16).transpose(1, 2),
        "C": draw(batch, tokens, 16).transpose(1, 2),
        "D": draw(24).float(),
        "z": draw(batch, tokens, 24).transpose(1, 2),
        "delta_bias": draw(24).float(),
        "delta_softplus": True,
        "return_last_state": True,
    }


def mamba_token(_: int, dtype: torch.dtype, *, batch: int = 2) -> Arguments:
    draw = _numbers(6, dtype)
    return {
        "state": draw(batch, 16, 24).float().transpose(-1, -2),
        "hidden_states": draw(batch, 24),
        "dt": draw(batch, 24),
        "A": -draw(24, 16).float().exp(),
        "B": draw(batch, 16),
        "C": draw(batch, 16),
        "D": draw(24),
        "z": draw(batch, 24),
        "dt_bias": draw(24).float(),
        "dt_softplus": True,
    }


def convolution(tokens: int, dtype: torch.dtype, *, batch: int = 2) -> Arguments:
    draw = _numbers(7, dtype)
    return {
        "hidden_states": draw(batch, tokens, 40).transpose(1, 2),
        "weight": draw(40, 4),
        "bias": draw(40),
        "activation": "silu",
    }


def convolution_token(tokens: int, dtype: torch.dtype, *, batch: int = 2) -> Arguments:
    given = convolution(tokens, dtype, batch=batch)
    return given | {"conv_state": _numbers(8, dtype)(batch, 40, 4)}


#: (a family that has it, its name, its arguments)
Case = tuple[str, str, Callable[..., Arguments]]
SEQUENCES: dict[str, Case] = {
    "gated delta rule": ("qwen3_next", "torch_chunk_gated_delta_rule", delta_rule),
    "KDA": ("kimi_linear", "chunk_kimi_delta_attention", kimi),
    "Mamba-2": ("mamba2", "mamba2_chunk_scan", mamba2),
    "Mamba": ("mamba", "mamba_selective_scan", mamba),
    "convolution": ("lfm2", "causal_conv1d_fn", convolution),
}
TOKENS: dict[str, Case] = {
    "gated delta rule": ("qwen3_next", "torch_recurrent_gated_delta_rule", delta_rule),
    "KDA": ("kimi_linear", "recurrent_kimi_delta_attention", kimi),
    "Mamba-2": ("mamba2", "mamba2_selective_state_update", mamba2_token),
    "Mamba": ("mamba", "mamba_selective_state_update", mamba_token),
    "convolution": ("lfm2", "causal_conv1d_update", convolution_token),
}


def copied(arguments: Arguments) -> Arguments:
    """Tensors of their own, in the same strides."""

    def copy(t: Tensor) -> Tensor:
        fresh = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype)
        return fresh.copy_(t) if 0 not in t.stride() else t

    return {name: copy(t) if isinstance(t, Tensor) else t for name, t in arguments.items()}


def results(function: Callable[..., Any], arguments: Arguments) -> dict[str, Tensor]:
    """Outputs, and states that were changed in place."""
    given = copied(arguments)
    with torch.no_grad():
        out = function(**given)
    out = out if isinstance(out, tuple) else (out,)
    found = {f"output {i}": t for i, t in enumerate(out) if t is not None}
    return found | {name: given[name] for name in ("state", "conv_state") if name in given}


def gradients(function: Callable[..., Any], arguments: Arguments) -> dict[str, Tensor]:
    """Gradients of every tensor, through every output."""
    given = copied(arguments)
    leaves = {name: t.requires_grad_() for name, t in given.items() if isinstance(t, Tensor)}
    out = function(**given)
    out = out if isinstance(out, tuple) else (out,)
    draw = _numbers(9, torch.float32)
    torch.autograd.backward(out, [draw(*t.shape).to(t.dtype) for t in out])
    return {name: t.grad for name, t in leaves.items() if t.grad is not None}


def exact(
    run: Callable[..., dict[str, Tensor]], function: Callable[..., Any], arguments: Arguments
) -> dict[str, Tensor]:
    """What the original gives in float64 for the same numbers."""
    wide = {name: t.double() if isinstance(t, Tensor) else t for name, t in arguments.items()}
    with InFloat64():
        return run(function, wide)


def distance(found: Tensor, want: Tensor) -> float:
    return float((found.double() - want.double()).norm() / (want.double().norm() + 1e-30))


def no_further(
    ours: dict[str, Tensor],
    theirs: dict[str, Tensor],
    wanted: dict[str, Tensor],
    factor: float,
    slack: float,
) -> None:
    """Ours is from what is wanted at most `factor` times as far as theirs, and `slack`."""
    assert ours.keys() == theirs.keys() == wanted.keys()
    for name, want in wanted.items():
        assert ours[name].shape == want.shape, name
        found, bound = distance(ours[name], want), distance(theirs[name], want)
        assert found <= factor * bound + slack, f"{name}: {found:.2e}, the original {bound:.2e}"
