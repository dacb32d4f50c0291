"""The names of the Mamba package against loops over tokens, in float64."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
import ttr.torch.functional as ttf
from functional_loops import HV, B, T, close, rand

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
