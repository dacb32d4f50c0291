"""The names of the GPU library against loops over tokens that are written here, in float64."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
import ttr.torch
import ttr.torch.functional as ttf
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


@pytest.mark.parametrize("function", [ttf.chunk_linear_attn, ttf.fused_recurrent_linear_attn])
def test_linear_attn(function: Callable) -> None:
    check(function, qkv(), hebbian, qkv(), normalize=False)


@pytest.mark.parametrize("function", [ttf.chunk_linear_attn, ttf.fused_recurrent_linear_attn])
def test_normalised_linear_attn(function: Callable) -> None:
    x = {name: t.abs() + 0.1 for name, t in qkv().items()}
    memory, keys = rand(B, H, K, V).abs(), rand(B, 1, H, K).abs()
    o, (final, last) = function(
        **x, initial_state=(memory, keys), output_final_state=True, normalize=True
    )
    y, state = loop(hebbian(K**-0.5), x, memory)
    z = keys + x["k"].cumsum(1)
    close(o, y / (K**-0.5 * (x["q"] * z).sum(-1, keepdim=True)))
    close(final, state)
    close(last, z[:, -1:])


def test_linear_attn_normalises_by_default_in_chunks_only() -> None:
    x = {name: t.abs() for name, t in qkv().items()}
    close(ttf.chunk_linear_attn(**x)[0], ttf.chunk_linear_attn(**x, normalize=True)[0])
    close(ttf.fused_recurrent_linear_attn(**x)[0], ttf.chunk_linear_attn(**x, normalize=False)[0])


@pytest.mark.parametrize("function", [ttf.chunk_retention, ttf.fused_recurrent_retention])
def test_retention(function: Callable) -> None:
    g = torch.log(1 - 2.0 ** (-5 - torch.arange(H, dtype=torch.float64))).expand(B, T, H)
    check(function, qkv(), hebbian, {**qkv(), "g": g})


@pytest.mark.parametrize("function", [ttf.chunk_simple_gla, ttf.fused_recurrent_simple_gla])
def test_simple_gla(function: Callable) -> None:
    g, gamma = decay(B, T, H), decay(H)
    check(function, {**qkv(), "g": g}, hebbian, {**qkv(), "g": g})
    check(function, {**qkv(), "g_gamma": gamma}, hebbian, {**qkv(), "g": gamma.expand(B, T, H)})
    check(function, {**qkv(), "g": g, "g_gamma": gamma}, hebbian, {**qkv(), "g": g + gamma})
    check(function, qkv(), hebbian, qkv())


@pytest.mark.parametrize(
    ("function", "name"), [(ttf.chunk_gla, "g"), (ttf.fused_recurrent_gla, "gk")]
)
def test_gla(function: Callable, name: str) -> None:
    g = decay(B, T, H, K)
    check(function, {**qkv(), name: g}, hebbian, {**qkv(), "g": g})


@pytest.mark.parametrize("function", [ttf.chunk_delta_rule, ttf.fused_recurrent_delta_rule])
@pytest.mark.parametrize("norm", [False, True])
def test_delta_rule(function: Callable, norm: bool) -> None:
    beta = torch.sigmoid(rand(B, T, H))
    x = {**qkv(), "beta": beta}
    check(function, x, lambda s: delta(s, norm), x, use_qk_l2norm_in_kernel=norm)


def test_recurrent_delta_rule_without_beta() -> None:
    ones = torch.ones(B, T, H, dtype=torch.float64)
    close(ttf.fused_recurrent_delta_rule(**qkv())[0], ttf.chunk_delta_rule(**qkv(), beta=ones)[0])


@pytest.mark.parametrize(
    "function", [ttf.chunk_gated_delta_rule, ttf.fused_recurrent_gated_delta_rule]
)
@pytest.mark.parametrize("norm", [False, True])
def test_gated_delta_rule(function: Callable, norm: bool) -> None:
    x = {**qkv(H, HV), "g": decay(B, T, HV), "beta": torch.sigmoid(rand(B, T, HV))}
    check(function, x, lambda s: delta(s, norm), x, heads=HV, use_qk_l2norm_in_kernel=norm)


def test_recurrent_gated_delta_rule_by_channel() -> None:
    x, g, gk = (
        {**qkv(H, HV), "beta": torch.sigmoid(rand(B, T, HV))},
        decay(B, T, HV),
        decay(B, T, HV, K),
    )
    function = ttf.fused_recurrent_gated_delta_rule
    check(function, {**x, "gk": gk}, delta, {**x, "g": gk}, heads=HV)
    check(function, {**x, "gk": gk, "g": g}, delta, {**x, "g": gk + g.unsqueeze(-1)}, heads=HV)
    check(function, x, delta, x, heads=HV)


@pytest.mark.parametrize("function", [ttf.chunk_kda, ttf.fused_recurrent_kda])
@pytest.mark.parametrize("norm", [False, True])
def test_kda(function: Callable, norm: bool) -> None:
    x = {**qkv(H, HV), "g": decay(B, T, HV, K), "beta": torch.sigmoid(rand(B, T, HV))}
    check(function, x, lambda s: delta(s, norm), x, heads=HV, use_qk_l2norm_in_kernel=norm)


@pytest.mark.parametrize("function", [ttf.chunk_kda, ttf.fused_recurrent_kda])
@pytest.mark.parametrize("bound", [None, -5.0])
def test_gates_inside_of_kda(function: Callable, bound: float | None) -> None:
    raw, a_log, bias, beta = rand(B, T, HV, K), rand(HV), rand(HV * K), rand(B, T, HV)
    shifted = raw + bias.view(HV, K)
    rate = a_log.exp()[:, None]
    g = -rate * F.softplus(shifted) if bound is None else bound * torch.sigmoid(rate * shifted)
    x = {**qkv(H, HV), "g": g, "beta": 2 * torch.sigmoid(beta)}
    flags = {
        "use_gate_in_kernel": True,
        "use_beta_sigmoid_in_kernel": True,
        "allow_neg_eigval": True,
    }
    inside = {
        **qkv(H, HV),
        "g": raw,
        "beta": beta,
        "A_log": a_log,
        "dt_bias": bias,
        "lower_bound": bound,
    }
    o, final = function(**inside, **flags, output_final_state=True, state_v_first=True)
    y, last = loop(delta(K**-0.5), x, torch.zeros(B, HV, K, V, dtype=torch.float64))
    close(o, y)
    close(final, last.transpose(-1, -2))


def test_gates_inside_of_the_gated_delta_rule() -> None:
    raw, a_log, bias, beta = rand(B, T, HV), rand(HV), rand(HV), rand(B, T, HV)
    x = {**qkv(H, HV), "g": -a_log.exp() * F.softplus(raw + bias), "beta": torch.sigmoid(beta)}
    inside = {**qkv(H, HV), "g": raw, "beta": beta, "A_log": a_log, "dt_bias": bias}
    start = rand(B, HV, V, K)
    o, final = ttf.chunk_gated_delta_rule(
        **inside,
        use_gate_in_kernel=True,
        use_beta_sigmoid_in_kernel=True,
        initial_state=start,
        output_final_state=True,
        state_v_first=True,
    )
    y, last = loop(delta(K**-0.5), x, start.transpose(-1, -2))
    close(o, y)
    close(final, last.transpose(-1, -2))


@pytest.mark.parametrize("function", [ttf.chunk_rwkv6, ttf.fused_recurrent_rwkv6])
def test_rwkv6(function: Callable) -> None:
    x, w, u = qkv(), decay(B, T, H, K), rand(H, K)
    call = {"r": x["q"], "k": x["k"], "v": x["v"], "w": w, "u": u}
    check(function, call, lambda s: rwkv6(u, s), {**x, "g": w, "u": u.expand(B, T, H, K)})


@pytest.mark.parametrize(
    ("function", "scale"), [(ttf.chunk_rwkv7, 1.0), (ttf.fused_recurrent_rwkv7, K**-0.5)]
)
def test_rwkv7(function: Callable, scale: float) -> None:
    x, w = qkv(), decay(B, T, H, K)
    kappa, gate = unit(rand(B, T, H, K)), torch.sigmoid(rand(B, T, H, K, seed=9))
    kappa[:, ::7, :, 2] = 0
    call = {"r": x["q"], "k": x["k"], "v": x["v"], "w": w, "a": -kappa, "b": kappa * gate}
    check(function, call, rwkv7, {**x, "g": w, "a": -kappa, "b": kappa * gate}, default_scale=scale)


def test_rwkv7_of_a_key_and_a_gate() -> None:
    x, w = qkv(), decay(B, T, H, K)
    kappa, gate = unit(rand(B, T, H, K)), torch.sigmoid(rand(B, T, H, K, seed=9))
    call = {"r": x["q"], "k": x["k"], "v": x["v"], "w": w, "kk": kappa, "a": gate}
    token = {**x, "g": w, "a": -kappa, "b": kappa * gate}
    check(ttf.fused_mul_recurrent_rwkv7, call, rwkv7, token, default_scale=1.0)


def test_rwkv7_refuses_what_its_recipe_has_not() -> None:
    x, w = qkv(), decay(B, T, H, K)
    with pytest.raises(ValueError, match="b must be 0 wherever a is"):
        ttf.chunk_rwkv7(x["q"], w, x["k"], x["v"], torch.zeros_like(w), torch.ones_like(w))


@pytest.mark.parametrize("function", [ttf.chunk_hgrn, ttf.fused_recurrent_hgrn])
def test_hgrn(function: Callable) -> None:
    x, g, start = rand(B, T, K), decay(B, T, K), rand(B, K, seed=3)
    o, final = function(x, g, start, True)
    h, want = start, []
    for t in range(T):
        h = g[:, t].exp() * h + x[:, t]
        want.append(h)
    close(o, torch.stack(want, 1))
    close(final, h)
    assert function(x, g)[1] is None
    one = function(x[:1], g[:1], rand(4, K), True, torch.tensor(CUTS))[0]
    for n, (begin, end) in enumerate(zip(CUTS, CUTS[1:])):
        close(
            one[:, begin:end],
            function(x[:1, begin:end], g[:1, begin:end], rand(4, K)[n : n + 1])[0],
        )


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("iterations", [30, 4])
def test_mesa_net(norm: bool, iterations: int) -> None:
    x = {**qkv(), "g": decay(B, T, H), "beta": torch.sigmoid(rand(B, T, H))}
    lamb = F.softplus(rand(H, K)) + 0.25
    kk, kv = rand(B, H, K, K), rand(B, H, K, V)
    kk = kk @ kk.transpose(-1, -2)
    o, last_kk, last_kv = ttf.chunk_mesa_net(
        **x,
        lamb=lamb,
        h_kk_init=kk,
        h_kv_init=kv,
        output_final_state=True,
        max_CG_iteration=iterations,
        use_qk_l2norm_in_kernel=norm,
    )
    for t in range(T):
        q, k = (unit(x[n][:, t]) if norm else x[n][:, t] for n in "qk")
        g, written = (
            x["g"][:, t].exp()[..., None, None],
            (x["beta"][:, t, :, None] * k).unsqueeze(-1),
        )
        kk, kv = g * kk + written * k.unsqueeze(-2), g * kv + written * x["v"][:, t].unsqueeze(-2)
        a = kk + torch.diag_embed(lamb)
        found = (
            torch.linalg.solve(a, q) if iterations == 30 else conjugate_gradients(a, q, iterations)
        )
        close(o[:, t], (found.unsqueeze(-2) @ kv).squeeze(-2))
    close(last_kk, kk)
    close(last_kv, kv)


def conjugate_gradients(a: Tensor, q: Tensor, steps: int) -> Tensor:
    x, r = torch.zeros_like(q), q
    p = r
    for _ in range(steps):
        ap = (a @ p.unsqueeze(-1)).squeeze(-1)
        alpha = r.square().sum(-1, keepdim=True) / (p * ap).sum(-1, keepdim=True)
        x, new = x + alpha * p, r - alpha * ap
        p = new + new.square().sum(-1, keepdim=True) / r.square().sum(-1, keepdim=True) * p
        r = new
    return x


# --- Mamba


N, G, P = 4, 2, 5


def mamba2_loop(x, dt, a, b, c, d, z, start, resets=None):
    """[batch, T, H, P]; the state starts anew where ``resets`` [batch, T] says so."""
    y, finals = torch.zeros_like(x), []
    for i in range(x.shape[0]):
        s, ends = start[i], []
        for t in range(x.shape[1]):
            if resets is not None and t > 0 and resets[i, t]:
                ends.append(s)
                s = torch.zeros_like(s)
            bt, ct = (m[i, t].repeat_interleave(HV // G, 0) for m in (b, c))
            s = (dt[i, t] * a).exp()[:, None, None] * s + (dt[i, t, :, None] * x[i, t]).unsqueeze(
                -1
            ) * bt.unsqueeze(1)
            y[i, t] = ((s @ ct.unsqueeze(-1)).squeeze(-1) + d * x[i, t]) * F.silu(z[i, t])
        finals.append([*ends, s])
    return y, finals


def mamba2_inputs():
    x, z = rand(B, T, HV, P), rand(B, T, HV, P, seed=1)
    dt, bias = rand(B, T, HV), rand(HV)
    return (
        x,
        z,
        dt,
        bias,
        -rand(HV, seed=2).exp(),
        rand(B, T, G, N),
        rand(B, T, G, N, seed=1),
        rand(HV, P),
    )


@pytest.mark.parametrize("limit", [(0.0, float("inf")), (0.1, 0.6)])
def test_mamba_chunk_scan_combined(limit: tuple[float, float]) -> None:
    x, z, dt, bias, a, b, c, d = mamba2_inputs()
    start = rand(B, HV, P, N)
    out, final = ttf.mamba_chunk_scan_combined(
        x,
        dt,
        a,
        b,
        c,
        16,
        d,
        z,
        bias,
        start,
        dt_softplus=True,
        dt_limit=limit,
        return_final_states=True,
    )
    step = F.softplus(dt + bias).clamp(*limit)
    y, finals = mamba2_loop(x, step, a, b, c, d, z, start)
    close(out, y)
    close(final, torch.stack([f[-1] for f in finals]))


def test_mamba_chunk_scan_of_packed_sequences() -> None:
    x, z, dt, bias, a, b, c, d = mamba2_inputs()
    seq_idx = torch.zeros(B, T, dtype=torch.int32)
    seq_idx[0, 5:], seq_idx[0, 30:], seq_idx[1, 69:] = 1, 2, 4
    resets = torch.zeros(B, T, dtype=torch.bool)
    resets[:, 1:] = seq_idx[:, 1:] != seq_idx[:, :-1]
    start = rand(B, HV, P, N)
    out, final = ttf.mamba_chunk_scan_combined(
        x, dt, a, b, c, 16, d, z, bias, start, seq_idx, dt_softplus=True, return_final_states=True
    )
    y, finals = mamba2_loop(x, F.softplus(dt + bias), a, b, c, d, z, start, resets)
    close(out, y)
    close(final, torch.stack([f[-1] for f in finals]))
    one = [t[:1] for t in (x, dt)]
    _, varlen = ttf.mamba_chunk_scan_combined(
        *one,
        a,
        b[:1],
        c[:1],
        16,
        dt_bias=bias,
        seq_idx=seq_idx[:1],
        dt_softplus=True,
        return_varlen_states=True,
    )
    close(
        varlen,
        torch.stack(
            mamba2_loop(*one[:1], F.softplus(dt + bias), a, b, c, d, z, start * 0, resets)[1][0]
        ),
    )


@pytest.mark.parametrize("groups", [0, 1, 2])
def test_selective_scan_fn(groups: int) -> None:
    dim = 6
    u, delta_, z = rand(B, dim, T), rand(B, dim, T, seed=1), rand(B, dim, T, seed=2)
    a, d, bias = -rand(dim, N).exp(), rand(dim), rand(dim, seed=1)
    shape = {0: (dim, N), 1: (B, N, T), 2: (B, 2, N, T)}[groups]
    b, c = rand(*shape), rand(*shape, seed=1)
    out, last = ttf.selective_scan_fn(u, delta_, a, b, c, d, z, bias, True, True)
    step = F.softplus(delta_ + bias[:, None])
    s, want = torch.zeros(B, dim, N, dtype=torch.float64), []
    for t in range(T):
        if groups == 0:
            bt, ct = b.expand(B, -1, -1), c.expand(B, -1, -1)
        else:
            bt, ct = (
                m[..., t].view(B, max(1, groups), N).repeat_interleave(dim // max(1, groups), 1)
                for m in (b, c)
            )
        dt = step[..., t, None]
        s = (dt * a).exp() * s + dt * u[..., t, None] * bt
        want.append(((s * ct).sum(-1) + d * u[..., t]) * F.silu(z[..., t]))
    close(out, torch.stack(want, -1))
    close(last, s)


@pytest.mark.parametrize("heads", [False, True])
@pytest.mark.parametrize("indexed", [False, True])
def test_selective_state_update(heads: bool, indexed: bool) -> None:
    lead = (HV,) if heads else ()
    groups = (G,) if heads else ()
    rows = 5 if indexed else B
    state = rand(rows, *lead, N, P).transpose(-1, -2)  # any strides
    x, dt, z = (rand(B, *lead, P, seed=s) for s in range(3))
    a, b, c = -rand(*lead, P, N).exp(), rand(B, *groups, N), rand(B, *groups, N, seed=1)
    d, bias = rand(*lead, P), rand(*lead, P, seed=1)
    index = torch.tensor([3, 1]) if indexed else None
    before = state.clone()
    held = state
    out = ttf.selective_state_update(state, x, dt, a, b, c, d, z, bias, True, index)
    step = F.softplus(dt + bias)
    if heads:
        b, c = (m.repeat_interleave(HV // G, 1) for m in (b, c))
    used = before if index is None else before[index]
    new = (step.unsqueeze(-1) * a).exp() * used + (step * x).unsqueeze(-1) * b.unsqueeze(-2)
    close(out, ((new @ c.unsqueeze(-1)).squeeze(-1) + d * x) * F.silu(z))
    if index is None:
        close(held, new)
    else:
        close(held[index], new)
        untouched = [0, 2, 4]
        assert torch.equal(held[untouched], before[untouched])


# --- Convolution


@pytest.mark.parametrize("activation", [None, "silu", "swish"])
@pytest.mark.parametrize("width", [1, 2, 4])
def test_causal_conv1d_fn(activation: str | None, width: int) -> None:
    dim = 3
    x, weight, bias = rand(B, dim, T), rand(dim, width), rand(dim)
    before = rand(B, dim, width - 1)
    out, final = ttf.causal_conv1d_fn(
        x, weight, bias, initial_states=before, return_final_states=True, activation=activation
    )
    seen = torch.cat([before, x], -1)
    y = torch.stack([(seen[..., t : t + width] * weight).sum(-1) + bias for t in range(T)], -1)
    close(out, y if activation is None else F.silu(y))
    close(final, seen[..., T:])
    plain = ttf.causal_conv1d_fn(x, weight, bias, activation=activation)
    close(plain[..., width - 1 :], out[..., width - 1 :])


@pytest.mark.parametrize("channels", [False, True])
def test_causal_conv1d_of_packed_sequences(channels: bool) -> None:
    x, weight, bias = rand(B, 3, T), rand(3, 4), rand(3)
    x = x.mT.contiguous().mT if channels else x
    seq_idx = torch.zeros(B, T, dtype=torch.int32)
    seq_idx[0, 2:], seq_idx[0, 5:], seq_idx[1, 69:] = 1, 2, 1
    out = ttf.causal_conv1d_fn(x, weight, bias, seq_idx, activation="silu")
    for i, cuts in enumerate(([0, 2, 5, T], [0, 69, T])):
        for begin, end in zip(cuts, cuts[1:]):
            alone = ttf.causal_conv1d_fn(
                x[i : i + 1, :, begin:end], weight, bias, activation="silu"
            )
            close(out[i : i + 1, :, begin:end], alone)


@pytest.mark.parametrize("length", [3, 6])
@pytest.mark.parametrize("tokens", [0, 1, 2])
def test_causal_conv1d_update(length: int, tokens: int) -> None:
    x, weight, bias = rand(B, 3, max(1, tokens)), rand(3, 4), rand(3)
    state = rand(B, 3, length)
    both = torch.cat([state, x], -1)
    out = ttf.causal_conv1d_update(x if tokens else x[..., 0], state, weight, bias, "silu")
    count = x.shape[-1]
    want = ttf.causal_conv1d_fn(
        x, weight, bias, initial_states=both[..., length - 3 : length], activation="silu"
    )
    close(out, want if tokens else want[..., 0])
    close(state, both[..., count:])


def test_causal_conv1d_update_of_a_ring_and_of_chosen_rows() -> None:
    """A ring gives what a sequence gives; only the chosen rows are written."""
    dim, width, size = 3, 4, 5
    x, weight = rand(B, dim, 12), rand(dim, width)
    whole = ttf.causal_conv1d_fn(x, weight)
    ring = torch.zeros(4, dim, size, dtype=torch.float64)
    rows = torch.tensor([2, 0])
    for t in range(12):
        lengths = torch.full((B,), t, dtype=torch.int32)
        out = ttf.causal_conv1d_update(
            x[..., t], ring, weight, cache_seqlens=lengths, conv_state_indices=rows.int()
        )
        close(out, whole[..., t])
    assert (ring[[1, 3]] == 0).all()
    close(
        ring[2][:, [(11 - s) % size for s in range(size)]], x[0][:, [11 - s for s in range(size)]]
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("out", [False, True])
def test_causal_conv1d_fn_of_any_layout(dtype: torch.dtype, out: bool) -> None:
    """Channels side by side, times side by side: the same values, states and gradients."""
    dim, width = 5, 4
    weight, bias = rand(dim, width).requires_grad_(), rand(dim).requires_grad_()
    before = rand(B, dim, width - 1).to(dtype)
    times = rand(B, dim, T).to(dtype).requires_grad_()
    channels = times.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_()
    results = []
    for x in (times, channels):
        final = torch.zeros(B, dim, width - 1, dtype=dtype) if out else None
        y, last = ttf.causal_conv1d_fn(
            x, weight, bias, None, before, True, final, activation="silu"
        )
        assert y.dtype == dtype and last.dtype == dtype
        assert final is None or last is final
        dy = torch.linspace(-1, 1, y.numel()).reshape(y.shape).to(dtype)
        results.append((y, last, *torch.autograd.grad(y, (x, weight, bias), dy)))
    bound = 1e-2 if dtype == torch.bfloat16 else 1e-5
    assert torch.equal(results[0][1], results[1][1])
    for a, b in zip(*([t.detach() for t in r] for r in results)):
        assert a.dtype == b.dtype
        torch.testing.assert_close(a, b, rtol=bound, atol=bound * a.abs().max().item())


def test_causal_conv1d_of_channels_side_by_side_is_the_operator() -> None:
    x, weight = rand(B, T, 3), rand(3, 4)
    out = ttf.causal_conv1d_fn(x.transpose(1, 2), weight, activation="silu")
    assert torch.equal(out.transpose(1, 2), ttr.torch.short_conv(x, weight, silu=True))
    wide = rand(3, 9)  # more taps than the operator has
    plain = ttf.causal_conv1d_fn(x.mT.contiguous(), wide)
    close(ttf.causal_conv1d_fn(x.transpose(1, 2), wide), plain)


def test_causal_conv1d_of_no_tokens() -> None:
    x, weight = rand(B, 0, 3).mT, rand(3, 4)
    seq_idx = torch.zeros(B, 0, dtype=torch.int32)
    assert ttf.causal_conv1d_fn(x, weight, None, seq_idx).shape == (B, 3, 0)
    out, final = ttf.causal_conv1d_fn(x, weight, return_final_states=True)
    assert out.shape == (B, 3, 0) and torch.equal(final, final.new_zeros(B, 3, 3))


def test_causal_conv1d_update_writes_the_chosen_rows() -> None:
    state, x, weight = rand(4, 3, 4), rand(2, 3), rand(3, 4)
    before, rows = state.clone(), torch.tensor([2, 0])
    out = ttf.causal_conv1d_update(x, state, weight, conv_state_indices=rows)
    same = before[rows]
    assert torch.equal(out, ttf.causal_conv1d_update(x, same, weight))
    assert torch.equal(state[rows], same) and torch.equal(state[[1, 3]], before[[1, 3]])


# --- What all of them share


def test_gradients_pass_through() -> None:
    x = {**qkv(H, HV), "g": decay(B, T, HV), "beta": torch.sigmoid(rand(B, T, HV))}
    x = {name: t[:1, :5].clone().requires_grad_() for name, t in x.items()}
    start = rand(1, HV, K, V).requires_grad_()
    names = list(x)

    def call(start: Tensor, *tensors: Tensor):
        given = dict(zip(names, tensors))
        return ttf.chunk_gated_delta_rule(
            **given, initial_state=start, output_final_state=True, use_qk_l2norm_in_kernel=True
        )

    assert torch.autograd.gradcheck(call, (start, *x.values()), fast_mode=True)


def test_gradients_of_rwkv7_through_a_and_b() -> None:
    x, w = qkv(), decay(B, T, H, K)
    kappa, gate = unit(rand(B, T, H, K)), torch.sigmoid(rand(B, T, H, K, seed=9))
    tensors = [
        t[:1, :4].clone().requires_grad_()
        for t in (x["q"], w, x["k"], x["v"], -kappa, kappa * gate)
    ]
    assert torch.autograd.gradcheck(lambda *t: ttf.chunk_rwkv7(*t)[0], tensors, fast_mode=True)


def test_narrow_types_keep_theirs() -> None:
    x = {name: t.bfloat16() for name, t in qkv(H, HV).items()}
    g, beta = decay(B, T, HV).float(), torch.sigmoid(rand(B, T, HV)).bfloat16()
    o, final = ttf.chunk_gated_delta_rule(
        **x, g=g, beta=beta, initial_state=rand(B, HV, K, V).bfloat16(), output_final_state=True
    )
    assert o.dtype == torch.bfloat16
    assert final.dtype == torch.float32


@pytest.mark.parametrize(
    ("function", "names", "option"),
    [
        (ttf.chunk_gla, "qkvg", {"head_first": True}),
        (ttf.chunk_linear_attn, "qkv", {"head_first": True}),
        (ttf.fused_recurrent_gla, "qkv", {"reverse": True}),
        (ttf.fused_recurrent_gla, "qkv", {"gv": torch.zeros(1)}),
        (ttf.fused_recurrent_retention, "qkv", {"reverse": True}),
        (ttf.fused_recurrent_simple_gla, "qkv", {"reverse": True}),
        (ttf.fused_recurrent_linear_attn, "qkv", {"reverse": True}),
    ],
)
def test_what_is_not_supported_is_refused_by_name(
    function: Callable, names: str, option: dict
) -> None:
    x = {**qkv(), "g": decay(B, T, H, K)}
    with pytest.raises(
        ValueError, match=f"{function.__name__}. {next(iter(option))} must be left out"
    ):
        function(**{name: x[name] for name in names}, **option)


def test_wrong_arguments_are_named() -> None:
    x = {**qkv(), "g": decay(B, T, H)}
    with pytest.raises(ValueError, match="beta must be .B,T,HV."):
        ttf.chunk_gated_delta_rule(**x, beta=rand(B, T, H, V))
    with pytest.raises(ValueError, match="allow_neg_eigval"):
        ttf.chunk_gated_delta_rule(**x, beta=rand(B, T, H).abs(), allow_neg_eigval=True)
    with pytest.raises(ValueError, match="A_log must be given"):
        ttf.chunk_gated_delta_rule(**x, beta=rand(B, T, H).abs(), use_gate_in_kernel=True)
    with pytest.raises(ValueError, match="activation must be None"):
        ttf.causal_conv1d_fn(rand(1, 2, 5), rand(2, 3), activation="gelu")
