"""Loops over tokens, in float64, that the names of the GPU libraries are held against."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import torch
from torch import Tensor

B, T, H, HV, K, V = 2, 70, 2, 4, 6, 5
CUTS = [0, 3, 3, 40, 70]


def rand(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def close(got: Tensor, want: Tensor, tolerance: float = 1e-9) -> None:
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)


def unit(x: Tensor) -> Tensor:
    return x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt()


#: A step takes the state S [K, V] and one token of one memory, and gives (S, y).
Step = Callable[[Tensor, dict[str, Tensor]], tuple[Tensor, Tensor]]


def loop(
    step: Step, token: dict[str, Tensor], start: Tensor, cuts: list[int] | None = None
) -> tuple[Tensor, Tensor]:
    """Every sequence and memory, token by token. ``token`` has [B, T, h, ...] with h dividing H of
    ``start``."""
    states, batch, heads = start.shape[0], token["v"].shape[0], start.shape[1]
    length = token["v"].shape[1]
    y = torch.zeros(batch, length, heads, start.shape[-1], dtype=torch.float64)
    final = start.clone()
    for n in range(states):
        row, begin, end = (n, 0, length) if cuts is None else (0, cuts[n], cuts[n + 1])
        for h in range(heads):
            state = start[n, h]
            for t in range(begin, end):
                one = {name: x[row, t, h // (heads // x.shape[2])] for name, x in token.items()}
                state, y[row, t, h] = step(state, one)
            final[n, h] = state
    return y, final


def hebbian(scale: float) -> Step:
    def step(s: Tensor, x: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        g = x.get("g", torch.zeros(()))
        s = (g.exp().unsqueeze(-1) if g.dim() else g.exp()) * s + torch.outer(x["k"], x["v"])
        return s, scale * s.T @ x["q"]

    return step


def delta(scale: float, norm: bool = False) -> Step:
    def step(s: Tensor, x: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        q, k = (unit(x["q"]), unit(x["k"])) if norm else (x["q"], x["k"])
        g = x.get("g", torch.zeros(()))
        s = (g.exp().unsqueeze(-1) if g.dim() else g.exp()) * s
        s = s + x["beta"] * torch.outer(k, x["v"] - s.T @ k)
        return s, scale * s.T @ q

    return step


def rwkv6(u: Tensor, scale: float) -> Step:
    def step(s: Tensor, x: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        y = scale * (s + torch.outer(x["u"] * x["k"], x["v"])).T @ x["q"]
        return x["g"].exp().unsqueeze(-1) * s + torch.outer(x["k"], x["v"]), y

    return step


def rwkv7(scale: float) -> Step:
    def step(s: Tensor, x: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        s = (
            x["g"].exp().unsqueeze(-1) * s
            + torch.outer(x["b"], x["a"] @ s)
            + torch.outer(x["k"], x["v"])
        )
        return s, scale * s.T @ x["q"]

    return step


def qkv(heads: int = H, values: int = H) -> dict[str, Tensor]:
    return {
        "q": rand(B, T, heads, K, seed=1) / K**0.5,
        "k": rand(B, T, heads, K, seed=2) / K**0.5,
        "v": rand(B, T, values, V, seed=3),
    }


def decay(*shape: int) -> Tensor:
    return -rand(*shape, seed=4).abs() / 2


def check(
    function: Callable,
    call: dict[str, Tensor],
    step: Callable[[float], Step],
    token: dict[str, Tensor],
    heads: int = H,
    default_scale: float = K**-0.5,
    **options: object,
) -> None:
    """Default scale without a state; a scale, a state; packed sequences."""
    zeros, start = torch.zeros(B, heads, K, V, dtype=torch.float64), rand(B, heads, K, V, seed=5)
    wants = inspect.signature(function).parameters
    o, final = function(**call, output_final_state=True, **options)
    y, last = loop(step(default_scale), token, zeros)
    close(o, y)
    close(final, last)
    assert function(**call, output_final_state=False, **options)[1] is None
    o, final = function(**call, scale=0.3, initial_state=start, output_final_state=True, **options)
    y, last = loop(step(0.3), token, start)
    close(o, y)
    close(final, last)
    if "cu_seqlens" not in wants:
        return
    packed = {
        name: x[:1] if x.dim() > 2 and x.shape[:2] == (B, T) else x for name, x in call.items()
    }
    start = rand(len(CUTS) - 1, heads, K, V, seed=6)
    cuts = torch.tensor(CUTS, dtype=torch.int32)
    o, final = function(
        **packed, initial_state=start, output_final_state=True, cu_seqlens=cuts, **options
    )
    y, last = loop(step(default_scale), {name: x[:1] for name, x in token.items()}, start, CUTS)
    close(o, y)
    close(final, last)
