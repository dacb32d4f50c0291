"""Small random models of every family of transformers that calls the functions. Configurations are
made, nothing is loaded."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

#: What a configuration has of these is this small.
_SMALL: dict[str, Any] = {
    "vocab_size": 96,
    "unpadded_vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 48,
    "moe_intermediate_size": 16,
    "shared_intermediate_size": 32,
    "shared_expert_intermediate_size": 16,
    "moe_shared_expert_intermediate_size": 16,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "initializer_range": 0.1,  # mixers count beside the residual stream
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": None,
    # experts, all of them chosen: a choice would turn roundings into steps
    "num_experts": 2,
    "num_local_experts": 2,
    "n_routed_experts": 2,
    "num_experts_per_tok": 2,
    # delta rules
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 24,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_head_dim": 16,
    "linear_num_heads": 4,
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 16,
    # Mamba-2
    "num_heads": 8,
    "mamba_num_heads": 8,
    "mamba_n_heads": 8,
    "n_mamba_heads": 8,
    "mamba_head_dim": 16,
    "n_groups": 2,
    "mamba_n_groups": 2,
    "mamba_ngroups": 2,
    "state_size": 16,
    "ssm_state_size": 16,
    "mamba_d_state": 16,
    "mamba_d_ssm": 128,
    "chunk_size": 16,
    "mamba_chunk_size": 16,
    # short convolutions and windows
    "sliding_window": 64,
    "sliding_window_size": 64,
    "swa_num_attention_heads": 4,
    "swa_num_key_value_heads": 2,
    "swa_head_dim": 16,
    "d_rel": 8,
    "rel_extent": 32,
}

#: Where a family's own arithmetic between these numbers wants others.
_OWN: dict[str, dict[str, Any]] = {
    "bailing_hybrid": {
        "layer_group_size": 2,
        "n_group": 1,
        "topk_group": 1,
        "q_lora_rank": None,
        "num_key_value_heads": 4,
    },
    "bamba": {"attn_layer_indices": [2]},
    "falcon_h1": {"mamba_d_ssm": 128, "mamba_d_head": 16},
    "glm5_next": {
        "num_key_value_heads": 4,
        "qk_rope_head_dim": 0,
        "hc_mult": 2,
        "index_n_heads": 2,
        "index_head_dim": 16,
        "index_topk": 64,
        "index_kpool": 1,
    },
    "granitemoehybrid": {"layer_types": ["mamba", "mamba", "attention", "mamba"]},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "kimi_linear": {
        "layer_types": ["linear_attention"] * 3 + ["full_attention"],
        "q_lora_rank": None,
        "num_key_value_heads": 4,
    },
    "lfm2": {"layer_types": ["conv", "full_attention"] * 2, "block_multiple_of": 16},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2},
    "nemotron_h": {"layers_block_type": ["mamba", "moe", "mamba", "attention"]},
    "qwen4_exp": {
        "hc_count": 2,
        "hc_lowrank": 16,
        "indexer_n_heads": 2,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 16,
        "indexer_budget": 64,
        "indexer_compress_ratio": 2,
    },
    "zamba": {
        "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"],
        "n_mamba_heads": 2,
        "num_key_value_heads": 4,
        "attention_head_dim": None,
    },
    "zamba2": {
        "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"],
        "num_key_value_heads": 4,
        "hidden_size": 64,
    },
}

MEMORIES = {
    "gated delta rule": "qwen3_next qwen3_5 qwen3_5_moe qwen4_exp olmo_hybrid lara_mini",
    "Kimi delta attention": "kimi_linear glm5_next bailing_hybrid",
    "Mamba-2": "mamba2 bamba falcon_h1 granitemoehybrid nemotron_h zamba2",
    "Mamba": "mamba falcon_mamba jamba zamba",
    "short convolution": "lfm2 lfm2_moe lfm3 inkling inkling2 inkling2_loop",
}
#: Those that the installed release has.
FAMILIES = {
    family: memory
    for memory, names in MEMORIES.items()
    for family in names.split()
    if importlib.util.find_spec(f"transformers.models.{family}")
}


def _class_of(module: Any, *endings: str) -> Any:
    for ending in endings:
        for name, found in vars(module).items():
            if name.endswith(ending) and getattr(found, "__module__", "") == module.__name__:
                return found
    raise LookupError(f"{module.__name__} has no class that ends in {endings}")


def small_config(family: str, **changes: Any) -> Any:
    """`changes` are of what the family's configuration has."""
    module = importlib.import_module(f"transformers.models.{family}.configuration_{family}")
    kind = _class_of(module, "TextConfig", "Config")
    fields = _SMALL | _OWN.get(family, {}) | changes
    return kind(**{name: value for name, value in fields.items() if hasattr(kind, name)})


def small_model(family: str, **changes: Any) -> Any:
    """A model in float32, for evaluation, the same numbers every time."""
    module = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
    torch.manual_seed(0)
    config = small_config(family, **changes)
    config._experts_implementation = "eager"  # the one that float64 can run
    return _class_of(module, "ForCausalLM", "TextModel")(config).eval()


def in_bfloat16(model: Any) -> Any:
    """The model with the parameters in bfloat16 that are so when it is loaded."""
    kept = {*(model._keep_in_fp32_modules or ()), *(model._keep_in_fp32_modules_strict or ())}
    for name, parameter in model.named_parameters():
        if not any(part in name for part in kept):
            parameter.data = parameter.data.bfloat16()
    return model


class InFloat64(TorchFunctionMode):
    """What asks for float32 gets float64: a run of the originals without their roundings."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.float:
            return args[0].double()
        wide = [torch.float64 if a is torch.float32 else a for a in args]
        more = {n: torch.float64 if a is torch.float32 else a for n, a in (kwargs or {}).items()}
        return func(*wide, **more)


def prompt(tokens: int = 37, *, batch: int = 2, seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(1, 96, (batch, tokens), generator=generator)


def cache_of(out: Any) -> dict[str, Any]:
    """The cache of an output under the name by which the next call takes it."""
    name = next(n for n in ("cache", "past_key_values", "cache_params") if n in out)
    return {name: out[name]}


def recurrent_states(cache: dict[str, Any]) -> list[torch.Tensor]:
    (held,) = cache.values()
    states = (getattr(layer, "recurrent_states", {}) for layer in held.layers)
    return [t for of_layer in states for t in of_layer.values() if t is not None]
