"""causal-conv1d's names against sums over tokens, in float64."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
import ttr.torch
import ttr.torch.functional as ttf
from functional_loops import B, T, close, rand


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
