"""Functions that take their states by index: against a loop over rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import ttr.torch.functional as ttf
from torch import Tensor

Call = Callable[[Tensor, "Tensor | None", list[int]], Tensor]


def draw(*shape: int) -> Tensor:
    return torch.randn(shape)


def delta(size: int, tokens: int, kda: bool, v_first: bool) -> tuple[Tensor, Call]:
    q, k, v = draw(5, tokens, 2, size), draw(5, tokens, 2, size), draw(5, tokens, 4, size)
    g = -torch.rand(5, tokens, 4, size) if kda else -torch.rand(5, tokens, 4)
    beta = torch.rand(5, tokens, 4)
    g[3] = 7.0  # of a row that is padding: it is not looked at

    def call(state: Tensor, indices: Tensor | None, batch: list[int]) -> Tensor:
        words: dict[str, Any] = {"use_qk_l2norm_in_kernel": True, "state_v_first": v_first}
        given = [t[batch] for t in (q, k, v, g)]
        if indices is not None:
            words |= {"initial_state_source": state, "initial_state_indices": indices}
            return ttf.fused_recurrent_gated_delta_rule_update(*given, beta[batch], **words)
        o, last = (ttf.chunk_kda if kda else ttf.chunk_gated_delta_rule)(
            *given, beta[batch], initial_state=state, output_final_state=True, **words
        )
        state.copy_(last)
        return o

    return draw(9, 4, size, size), call


def mamba(heads: int, size: int) -> tuple[Tensor, Call]:
    x, dt, z = (draw(5, heads, size) for _ in range(3))
    b, c, a = draw(5, heads, 8), draw(5, heads, 8), -torch.rand(heads, size, 8)
    d, bias = draw(heads, size), draw(heads, size)

    def call(state: Tensor, indices: Tensor | None, batch: list[int]) -> Tensor:
        given = [t[batch] for t in (x, dt)]
        more = (a, b[batch], c[batch], d, z[batch], bias, True)
        return ttf.selective_state_update(state, *given, *more, state_batch_indices=indices)

    return draw(9, heads, size, 8), call


def convolution(channels: int, tokens: int) -> tuple[Tensor, Call]:
    x, weight, bias = draw(5, channels, tokens), draw(channels, 4), draw(channels)

    def call(state: Tensor, indices: Tensor | None, batch: list[int]) -> Tensor:
        words = {"activation": "silu", "conv_state_indices": indices}
        return ttf.causal_conv1d_update(x[batch], state, weight, bias, **words)

    return draw(9, channels, 4), call


CASES: dict[str, Callable[[], tuple[Tensor, Call]]] = {
    "gated delta rule": lambda: delta(8, 1, False, False),
    "gated delta rule, large rows": lambda: delta(96, 1, False, False),
    "gated delta rule, a draft": lambda: delta(8, 4, False, False),
    "gated delta rule, values first": lambda: delta(8, 1, False, True),
    "KDA": lambda: delta(8, 1, True, False),
    "Mamba-2": lambda: mamba(4, 8),
    "large rows": lambda: mamba(8, 600),
    "convolution": lambda: convolution(12, 1),
    "convolution, a draft": lambda: convolution(12, 3),
    "convolution, large rows": lambda: convolution(9000, 1),
}


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("name", CASES)
def test_rows_are_those_of_a_loop(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    state, call = CASES[name]()
    want, found = state.clone(), state.clone()
    rows = [7, 0, 4, -1, 8]
    out = call(found, torch.tensor(rows, dtype=dtype), list(range(5)))
    for b, row in enumerate(rows):
        if row < 0:
            assert not out[b].any()
        else:
            alone = call(want[row : row + 1], None, [b])
            torch.testing.assert_close(out[b : b + 1], alone, rtol=2e-5, atol=2e-5)
    torch.testing.assert_close(found, want, rtol=2e-5, atol=2e-5)
    others = [row for row in range(9) if row not in rows]
    assert torch.equal(found[others], state[others])
    assert not torch.equal(found[rows[0]], state[rows[0]])


@pytest.mark.parametrize("name", CASES)
def test_what_is_refused_writes_nothing(name: str) -> None:
    state, call = CASES[name]()
    before, batch = state.clone(), [0, 1, 2, 4]
    for indices, message in [
        ([0, 1, 1, 2], "different ones but is twice 1"),
        ([0, 1, 9, 2], "from 0 to 8, or -1 for padding, but is 9"),
        ([0, 1, -2, 2], "from 0 to 8, or -1 for padding, but is -2"),
        ([0, 1, 2], r"\[4\], one for each row of the batch, but is torch.int64 \[3\]"),
        ([0.0, 1.0, 2.0, 3.0], "int32 or int64"),
    ]:
        with pytest.raises(ValueError, match=message):
            call(state, torch.tensor(indices), batch)
    assert torch.equal(state, before)
    assert not call(state, torch.full((4,), -1), batch).any()
    assert torch.equal(state, before)


def test_packed_sequences_and_gates() -> None:
    torch.manual_seed(0)
    state, bounds = draw(6, 4, 8, 8), torch.tensor([0, 3, 5, 9])
    q, k, v = draw(1, 9, 2, 8), draw(1, 9, 2, 8), draw(1, 9, 4, 8)
    a, b, a_log, bias = draw(9, 4), draw(9, 4), draw(4), draw(4)
    g = -a_log.exp() * torch.nn.functional.softplus(a + bias)
    source, rows = state.clone(), torch.tensor([5, -1, 2])
    gates = (a_log, a, bias, 1.0, 20.0)
    o = ttf.fused_sigmoid_gating_delta_rule_update(*gates, q, k, v, b, source, rows, cu_seqlens=bounds)
    for n, row in enumerate(rows.tolist()):
        part = slice(int(bounds[n]), int(bounds[n + 1]))
        if row < 0:
            assert not o[:, part].any()
            continue
        want, last = ttf.chunk_gated_delta_rule(
            *(t[:, part] for t in (q, k, v, g[None], b.sigmoid()[None])),
            initial_state=state[row : row + 1], output_final_state=True,
        )  # fmt: skip
        torch.testing.assert_close(o[:, part], want, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(source[row : row + 1], last, rtol=1e-5, atol=1e-5)
    before = source.clone()
    words = {"cu_seqlens": bounds, "disable_state_update": True}
    ttf.fused_sigmoid_gating_delta_rule_update(*gates, q, k, v, b, source, rows, **words)
    assert torch.equal(source, before)
    with pytest.raises(ValueError, match="g must be at most 0"):
        one = [t[:, :1] for t in (q, k, v)]
        where = {"initial_state_source": source, "initial_state_indices": rows[:1]}
        ttf.fused_recurrent_gated_delta_rule_update(*one, torch.ones(1, 1, 4), **where)
    assert torch.equal(source, before)
