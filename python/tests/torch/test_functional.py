"""The names of the GPU library against loops over tokens, in float64."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
import ttr.torch.functional as ttf
from functional_loops import (
    CUTS,
    HV,
    B,
    H,
    K,
    T,
    V,
    check,
    close,
    decay,
    delta,
    hebbian,
    loop,
    qkv,
    rand,
    rwkv6,
    rwkv7,
    unit,
)
from torch import Tensor


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
