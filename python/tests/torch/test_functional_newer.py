"""The newer names of the GPU library against loops over tokens, in float64."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import ttr.torch.functional as ttf
from functional_loops import (
    CUTS,
    HV,
    B,
    H,
    K,
    Step,
    T,
    V,
    check,
    close,
    decay,
    delta,
    loop,
    qkv,
    rand,
    unit,
)
from torch import Tensor

M = 3  # slots


def beta(*shape: int, seed: int = 0) -> Tensor:
    return torch.sigmoid(rand(*shape, seed=seed))


@pytest.mark.parametrize("norm", [False, True])
def test_gdn2(norm: bool) -> None:
    def step_of(scale: float) -> Step:
        def step(s: Tensor, x: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
            q, k = (unit(x["q"]), unit(x["k"])) if norm else (x["q"], x["k"])
            s = x["g"].exp().unsqueeze(-1) * s
            s = s + torch.outer(k, x["w"] * x["v"] - s.T @ (x["b"] * k))
            return s, scale * s.T @ q

        return step

    x = {**qkv(H, HV), "g": decay(B, T, HV, K), "b": beta(B, T, HV, K), "w": beta(B, T, HV, V)}
    check(ttf.chunk_gdn2, x, step_of, x, heads=HV, use_qk_l2norm_in_kernel=norm)


@pytest.mark.parametrize("function", [ttf.chunk_comba, ttf.fused_recurrent_comba])
@pytest.mark.parametrize("norm", [False, True])
def test_comba(function: Callable, norm: bool) -> None:
    def step_of(scale: float) -> Step:
        def step(s: Tensor, x: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
            q, k, p = (unit(x[n]) if norm else x[n] for n in "qkp")
            error = x["v"] - s.T @ p
            s = x["g"].exp() * s + x["beta"] * torch.outer(k, error)
            return s, scale * s.T @ q

        return step

    p = rand(B, T, H, K, seed=7) / K**0.5
    x = {**qkv(H, HV), "p": p, "g": decay(B, T, HV), "beta": beta(B, T, HV)}
    check(function, x, step_of, x, heads=HV, use_qk_l2norm_in_kernel=norm)


def test_comba_without_p_and_beta() -> None:
    x, g = qkv(), decay(B, T, H)
    want = ttf.chunk_comba(**x, p=x["k"], g=g, beta=torch.ones_like(g))[0]
    close(ttf.chunk_comba(**x, p=None, g=g)[0], want)
    with pytest.raises(ValueError, match=r"\[chunk_comba\] g must be at least -80 but is -90"):
        ttf.chunk_comba(**x, p=None, g=torch.full_like(g, -90))


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("decays", [False, True])
def test_gated_delta_product(steps: int, decays: bool) -> None:
    q = qkv()["q"]
    k, v = rand(B, steps * T, H, K, seed=2) / K**0.5, rand(B, steps * T, HV, V, seed=3)
    b, g = beta(B, steps * T, HV), decay(B, T, HV) if decays else None

    def step_of(scale: float) -> Step:
        one = delta(scale)

        def step(s: Tensor, x: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
            y = torch.zeros(V)
            for j in range(steps):
                g = x["g"] if j == 0 else torch.zeros(())
                pair = {"q": x["q"], "k": x["k"][j], "v": x["v"][j], "beta": x["beta"][j], "g": g}
                s, y = one(s, pair)
            return s, y

        return step

    def per_token(x: Tensor) -> Tensor:
        """[B, T, H, n, ..] of [B, T n, H, ..]."""
        return x.unflatten(1, (T, steps)).transpose(2, 3)

    token = {"q": q, "k": per_token(k), "v": per_token(v), "beta": per_token(b)}
    token["g"] = torch.zeros(B, T, HV, dtype=torch.float64) if g is None else g

    def function(q: Tensor, scale: float | None = None, **rest: object) -> object:
        return ttf.chunk_gated_delta_product(q, k, v, g, b, steps, scale, **rest)

    for scale in (None, 0.3):
        start = rand(B, HV, K, V, seed=5)
        o, final = function(q, scale, initial_state=start, output_final_state=True)
        y, last = loop(step_of(scale or K**-0.5), token, start)
        close(o, y)
        close(final, last)


def test_gated_delta_product_counts_tokens_of_packed_sequences() -> None:
    cuts = torch.tensor(CUTS)
    q, k, v = (rand(1, n, H, d, seed=d) / d for n, d in ((T, K), (2 * T, K), (2 * T, V)))
    g, b = decay(1, T, H), beta(1, 2 * T, H)
    o, _ = ttf.chunk_gated_delta_product(q, k, v, g, b, 2, cu_seqlens=cuts)
    for begin, end in zip(CUTS[:-1], CUTS[1:]):
        if begin == end:
            continue
        one, two = slice(begin, end), slice(2 * begin, 2 * end)
        alone = ttf.chunk_gated_delta_product(q[:, one], k[:, two], v[:, two], g[:, one], b[:, two], 2)
        close(o[:, one], alone[0])


def preconditioned(scale: float, centre: Tensor | float, norm: bool) -> Step:
    """The state is [D [K, 1], S [K, V]], side by side."""

    def step(s: Tensor, x: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        q, k = (unit(x["q"]), unit(x["k"])) if norm else (x["q"], x["k"])
        d, s = s[:, 0], s[:, 1:]
        d = x["g_atk"].exp() * d + x["beta_atk"] * k**2
        r = (d + 1e-6).log() - (x["centre"] if "centre" in x else centre)
        write = k * 1.5 ** (-r / (1 + r.abs()))
        g = x["g"].exp()
        s = (g.unsqueeze(-1) if g.dim() else g) * s
        s = s + x["beta"] * torch.outer(write, x["v"] - s.T @ k)
        y = scale * s.T @ q
        return torch.cat((d.unsqueeze(-1), s), 1), torch.cat((torch.zeros(1), y))

    return step


@pytest.mark.parametrize(
    ("function", "heads", "norm"),
    [
        (ttf.chunk_precond_kda, H, False),
        (ttf.chunk_precond_kda, H, True),
        (ttf.chunk_precond_gated_delta_rule, H, False),
        (ttf.chunk_precond_gated_delta_rule, HV, True),
    ],
)
@pytest.mark.parametrize("centre", [None, 0.3, torch.tensor([0.5, -1.0], dtype=torch.float64)])
def test_preconditioned(function: Callable, heads: int, norm: bool, centre: object) -> None:
    by_channel = function is ttf.chunk_precond_kda
    g = decay(B, T, heads, K) if by_channel else decay(B, T, heads)
    x = {**qkv(H, heads), "g": g, "beta": beta(B, T, heads)}
    x |= {"g_atk": decay(B, T, H), "beta_atk": beta(B, T, H, seed=8)}
    s0, d0 = rand(B, heads, K, V, seed=5), rand(B, H, K, seed=6).abs()
    o, final, d = function(
        **x,
        initial_state=s0,
        initial_A_state=d0,
        output_final_state=True,
        log_atk_scale=centre,
        use_qk_l2norm_in_kernel=norm,
    )
    token = dict(x)
    if isinstance(centre, Tensor):
        token["centre"] = centre.expand(B, T, H)
    token["v"] = torch.nn.functional.pad(x["v"], (1, 0))  # beside D, which has no value
    step = preconditioned(K**-0.5, -0.2 if centre is None else centre, norm)

    def widened(s: Tensor, one: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        return step(s, {**one, "v": one["v"][1:]})

    beside = d0.repeat_interleave(heads // H, 1).unsqueeze(-1)
    y, last = loop(widened, token, torch.cat((beside, s0), -1))
    close(o, y[..., 1:])
    close(final, last[..., 1:])
    close(d, last[:, :: heads // H, :, 0])
    turned = function(
        **x,
        initial_state=s0.transpose(-1, -2).contiguous(),
        initial_A_state=d0,
        output_final_state=True,
        log_atk_scale=centre,
        use_qk_l2norm_in_kernel=norm,
        transpose_state_layout=True,
    )
    close(turned[0], o)
    close(turned[1], final.transpose(-1, -2))


@pytest.mark.parametrize("function", [ttf.chunk_gsa, ttf.fused_recurrent_gsa])
def test_gsa(function: Callable) -> None:
    q, k, v = rand(B, T, HV, K, seed=1), rand(B, T, H, K, seed=2), rand(B, T, H, V, seed=3)
    s, g = rand(B, T, H, M, seed=4), decay(B, T, H, M)
    start = rand(B, H, K, M, seed=5), rand(B, H, M, V, seed=6)
    o, (keys, values) = function(q, k, v, s, g, None, start, True)
    for b in range(B):
        for h in range(HV):
            one = h // (HV // H)
            slots, held = start[0][b, one].T, start[1][b, one]
            for t in range(T):
                fades = g[b, t, one].exp().unsqueeze(-1)
                slots = fades * slots + torch.outer(s[b, t, one], k[b, t, one])
                held = fades * held + torch.outer(s[b, t, one], v[b, t, one])
                close(o[b, t, h], held.T @ (K**-0.5 * slots @ q[b, t, h]).softmax(0))
            close(keys[b, one], slots.T)
            close(values[b, one], held)
    assert function(q, k, v, s, g)[1] is None


def test_gsa_without_decays_is_bounded_memory_control() -> None:
    """V = sum of softmax over tokens of s."""
    q, k, v, s = rand(B, T, H, K), rand(B, T, H, K, seed=2), rand(B, T, H, V), rand(B, T, H, M)
    o, _ = ttf.chunk_gsa(q, k, v, s)
    for t in (0, 1, T - 1):
        shares = s[:, : t + 1].softmax(1)
        slots = torch.einsum("bthm,bthk->bhmk", shares, k[:, : t + 1])
        held = torch.einsum("bthm,bthv->bhmv", shares, v[:, : t + 1])
        weights = torch.einsum("bhmk,bhk->bhm", slots, q[:, t] * K**-0.5).softmax(-1)
        close(o[:, t], torch.einsum("bhm,bhmv->bhv", weights, held))
    with pytest.raises(ValueError, match="cu_seqlens must be left out"):
        ttf.chunk_gsa(q[:1], k[:1], v[:1], s[:1], cu_seqlens=torch.tensor(CUTS))


@pytest.mark.parametrize(
    "function", [ttf.chunk_gated_oja_rule, ttf.fused_recurrent_gated_oja_rule]
)
@pytest.mark.parametrize("norm", [False, True])
def test_gated_oja_rule(function: Callable, norm: bool) -> None:
    def step_of(scale: float) -> Step:
        def step(s: Tensor, x: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
            q, k = (unit(x["q"]), unit(x["k"])) if norm else (x["q"], x["k"])
            s = s * x["gv"].exp()
            s = s + x["beta"] * torch.outer(k - s @ x["v"], x["v"])
            return s, scale * s.T @ q

        return step

    x = {**qkv(), "gv": decay(B, T, H, V), "beta": beta(B, T, H)}
    x["v"] = x["v"] / V**0.5
    check(function, x, step_of, x, use_q_l2norm=norm, use_k_l2norm=norm)


def test_oja_without_decays_and_steps() -> None:
    x = {name: t / 4 for name, t in qkv().items()}
    ones = torch.ones(B, T, H, dtype=torch.float64)
    want = ttf.chunk_gated_oja_rule(**x, gv=torch.zeros_like(x["v"]), beta=ones)[0]
    close(ttf.fused_recurrent_gated_oja_rule(**x)[0], want)
    with pytest.raises(ValueError, match="gk must be left out"):
        ttf.fused_recurrent_gated_oja_rule(**x, gk=ones)


def test_mamba3_is_mamba2_of_two_rows_a_token() -> None:
    """h = a h' + (1 - lambda) dt a k' v'^T + lambda dt k v^T, a = exp(dt A), as docs/layers.md has it."""
    x, share = qkv(), beta(B, T, H)
    dt = rand(B, T, H, seed=9).abs()
    g = -dt / 2
    before = {n: torch.cat([torch.zeros_like(x[n][:, :1]), x[n][:, :-1]], 1) for n in "kv"}
    held, want = torch.zeros(B, H, K, V, dtype=torch.float64), []
    for t in range(T):
        fades = g[:, t, :, None, None].exp()
        first, second = (w[:, t, :, None, None] for w in ((1 - share) * dt, share * dt))
        written = {n: torch.einsum("bhk,bhv->bhkv", o["k"][:, t], o["v"][:, t]) for n, o in
                   (("before", before), ("now", x))}
        held = fades * (held + first * written["before"]) + second * written["now"]
        want.append(torch.einsum("bhk,bhkv->bhv", x["q"][:, t], held))

    def rows(first: Tensor, second: Tensor) -> Tensor:
        return torch.stack([first, second], 2).flatten(1, 2)

    y = ttf.regress(
        "mamba2",
        rows(torch.zeros_like(x["q"]), x["q"]),
        rows(before["k"], x["k"]),
        rows(((1 - share) * dt).unsqueeze(-1) * before["v"], (share * dt).unsqueeze(-1) * x["v"]),
        log_decay=rows(torch.zeros_like(g), g),
    )
    close(y[:, 1::2], torch.stack(want, 1))


SHORT = {"q": (1, 5, 1, 3), "k": (1, 5, 1, 3), "v": (1, 5, 1, 2)}


@pytest.mark.parametrize(
    ("function", "gates"),
    [
        (ttf.chunk_gdn2, {"g": (1, 5, 1, 3), "b": (1, 5, 1, 3), "w": (1, 5, 1, 2)}),
        (ttf.chunk_comba, {"p": (1, 5, 1, 3), "g": (1, 5, 1), "beta": (1, 5, 1)}),
        (ttf.chunk_gated_delta_product, {"g": (1, 5, 1), "beta": (1, 5, 1)}),
        (
            ttf.chunk_precond_kda,
            {"g": (1, 5, 1, 3), "g_atk": (1, 5, 1), "beta_atk": (1, 5, 1), "beta": (1, 5, 1)},
        ),
        (ttf.chunk_gsa, {"s": (1, 5, 1, 2), "g": (1, 5, 1, 2)}),
        (ttf.chunk_gated_oja_rule, {"gv": (1, 5, 1, 2), "beta": (1, 5, 1)}),
    ],
)
def test_gradients_are_those_of_differences(function: Callable, gates: dict) -> None:
    names, shapes = [*SHORT, *gates], [*SHORT.values(), *gates.values()]
    given = [rand(*shape, seed=i) / 2 for i, shape in enumerate(shapes)]
    for i, name in enumerate(names):
        if name.startswith("g"):
            given[i] = -given[i].abs() - 0.05
        elif name.startswith("b"):
            given[i] = given[i].sigmoid()
    for t in given:
        t.requires_grad_()
    torch.autograd.gradcheck(lambda *x: function(**dict(zip(names, x)))[0], given, atol=1e-7)


def test_newer_keywords_of_older_names() -> None:
    x = {**qkv(), "g": decay(B, T, H), "beta": beta(B, T, H)}
    start = rand(B, H, V, K)
    want = ttf.chunk_gated_delta_rule(
        **x, initial_state=start, output_final_state=True, state_v_first=True
    )
    got = ttf.chunk_gated_delta_rule(
        **x, initial_state=start, output_final_state=True, transpose_state_layout=True
    )
    close(got[0], want[0])
    close(got[1], want[1])
    assert got[1].shape == (B, H, V, K)
    indices = torch.zeros(4, 2, dtype=torch.long)
    close(ttf.chunk_gated_delta_rule(**x, chunk_indices=indices)[0], ttf.chunk_gated_delta_rule(**x)[0])
    channels = {**x, "g": decay(B, T, H, K)}
    more = {"p": x["k"], "b": x["k"], "w": x["v"], "g_atk": x["g"], "beta_atk": x["beta"]}
    for function, given in (
        (ttf.chunk_gated_delta_rule, x),
        (ttf.chunk_kda, channels),
        (ttf.chunk_gdn2, {n: {**channels, **more}[n] for n in "qkvgbw"}),
        (ttf.chunk_precond_kda, {n: t for n, t in {**channels, **more}.items() if n not in "pbw"}),
    ):
        with pytest.raises(ValueError, match=rf"\[{function.__name__}\] cp_context must be left out"):
            function(**given, cp_context=object())
