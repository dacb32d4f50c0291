"""The functions of examples/vllm, called as vLLM's layer calls them; vLLM itself is in its check.py."""

from __future__ import annotations

import runpy
from pathlib import Path

import torch
import ttr.torch.functional as ttf

PLUGIN = runpy.run_path(str(Path(__file__).resolve().parents[3] / "examples/vllm/ttr_vllm.py"))


def test_prompts_and_tokens_of_kimi_delta_attention() -> None:
    torch.manual_seed(0)
    heads, width, bounds = 3, 8, torch.tensor([0, 5, 12])
    q, k, v, g = (torch.randn(1, 14, heads, width) for _ in range(4))
    beta, a_log, bias = torch.randn(1, 14, heads), torch.randn(heads), torch.randn(heads * width)
    gates = {"use_gate_in_kernel": True, "use_beta_sigmoid_in_kernel": True, "A_log": a_log, "dt_bias": bias}

    def definition(part: list[int]) -> torch.Tensor:
        rows = [t[:, part] for t in (q, k, v, g, beta)]
        return ttf.chunk_kda(*rows, use_qk_l2norm_in_kernel=True, **gates)[0]

    cache, slots = torch.randn(6, heads, width, width), torch.tensor([4, 2], dtype=torch.int32)
    begun = torch.tensor([False, False])
    o, last = PLUGIN["chunk_kda_with_fused_gate"](
        q=q[:, :12], k=k[:, :12], v=v[:, :12], raw_g=g[:, :12], raw_beta=beta[:, :12], A_log=a_log,
        g_bias=bias, lower_bound=None, output_final_state=True, use_qk_l2norm_in_kernel=True,
        initial_state=PLUGIN["gather_initial_states"](cache, slots, begun), cu_seqlens=bounds,
    )  # fmt: skip
    torch.testing.assert_close(o[:, :5], definition(list(range(5))), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(o[:, 5:], definition(list(range(5, 12))), rtol=1e-5, atol=1e-5)
    cache[slots.long()] = last
    before = cache.clone()
    packed = torch.cat([t[0].flatten(1) for t in (q, k, v)], -1)
    tokens, slots = [12, 0, 13], torch.tensor([4, 0, 2], dtype=torch.int32)  # 0: padding
    o, state = PLUGIN["fused_recurrent_kda_packed_decode"](
        mixed_qkv=packed[tokens], raw_g=g[:, tokens], raw_beta=beta[:, tokens], A_log=a_log, dt_bias=bias,
        lower_bound=None, initial_state=cache, state_indices=slots,
    )  # fmt: skip
    assert o.shape == (1, 3, heads, width) and state is cache
    torch.testing.assert_close(o[:, :1], definition([*range(5), 12])[:, -1:], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(o[:, 2:], definition([*range(5, 12), 13])[:, -1:], rtol=1e-5, atol=1e-5)
    assert not o[:, 1].any()
    assert torch.equal(cache[[0, 1, 3, 5]], before[[0, 1, 3, 5]])
    kept = PLUGIN["gather_initial_states"](cache, slots[:2], torch.tensor([True, False]))
    assert torch.equal(kept[0], cache[4]) and not kept[1].any()


def test_tokens_of_the_convolution() -> None:
    torch.manual_seed(0)
    state, x, weight = torch.randn(5, 6, 3), torch.randn(3, 6), torch.randn(6, 4)
    before, out = state.clone(), torch.empty(3, 6)
    slots = torch.tensor([3, 0, 1], dtype=torch.int32)
    words = {"activation": "silu", "conv_state_indices": slots, "validate_data": True, "out": out}
    assert PLUGIN["causal_conv1d_update"](x, state, weight, None, **words) is out
    for row, slot in ((0, 3), (2, 1)):
        alone = before[slot : slot + 1].clone()
        want = ttf.causal_conv1d_update(x[row : row + 1], alone, weight, None, "silu")
        torch.testing.assert_close(out[row : row + 1], want)
        torch.testing.assert_close(state[slot : slot + 1], alone)
    assert torch.equal(state[[0, 2, 4]], before[[0, 2, 4]]) and not out[1].any()
