"""The names, layouts and defaults of the GPU libraries: code runs by changing an import.

Each is one recipe of ttr.torch.regress, with its scale (K ** -0.5 where the function has it so):

    chunk_linear_attn, fused_recurrent_linear_attn      linear_attention{scale, normalise_sum}
    chunk_retention, fused_recurrent_retention          retnet{scale}
    chunk_simple_gla, fused_recurrent_simple_gla        mamba2{scale}
    chunk_gla, fused_recurrent_gla                      gla{scale}
    chunk_delta_rule, fused_recurrent_delta_rule        deltanet{scale, normalise_qk}
    chunk_gated_delta_rule,
    fused_recurrent_gated_delta_rule                    gated_deltanet{scale, normalise_qk}
    fused_recurrent_gated_delta_rule_update,
    fused_sigmoid_gating_delta_rule_update              those two in place, rows by index
    chunk_kda, fused_recurrent_kda                      kda{scale, normalise_qk}
    chunk_gdn2                                          gated_deltanet2{scale, normalise_qk}
    chunk_comba, fused_recurrent_comba                  its erasure of the memory before its decay
    chunk_gated_delta_product                           delta_product{steps, scale, normalise_qk}
    chunk_precond_gated_delta_rule, chunk_precond_kda   a curvature that fades by tokens; delta rules
    chunk_gsa, fused_recurrent_gsa                      a decay a value channel; gla
    chunk_gated_oja_rule,
    fused_recurrent_gated_oja_rule                      kda from v to k; a decay a value channel
    chunk_rwkv6, fused_recurrent_rwkv6                  rwkv6{scale}
    chunk_rwkv7, fused_recurrent_rwkv7,
    fused_mul_recurrent_rwkv7                           rwkv7{scale}
    chunk_hgrn, fused_recurrent_hgrn                    decay(channel) | constant | gradient
    chunk_mesa_net                                      mesa{normalise_qk}
    mamba_chunk_scan_combined                           mamba2
    selective_scan_fn, selective_state_update           mamba
    causal_conv1d_fn, causal_conv1d_update              a short convolution, no memory

Chunked and recurrent names are the same function here; both have gradients. q, k and v are
[B, T, H, D]: ``head_first`` is refused, and so is ``reverse``. Final states are float32, or float64
of float64 inputs. ``regress(recipe, q, k, v, **inputs)`` is the same for any recipe.
"""

from ._convolution import causal_conv1d_fn, causal_conv1d_update
from ._delta import (
    chunk_delta_rule,
    chunk_gated_delta_rule,
    chunk_kda,
    fused_recurrent_delta_rule,
    fused_recurrent_gated_delta_rule,
    fused_recurrent_kda,
)
from ._erasing import (
    chunk_comba,
    chunk_gated_delta_product,
    chunk_gdn2,
    fused_recurrent_comba,
)
from ._linear import (
    chunk_gla,
    chunk_linear_attn,
    chunk_retention,
    chunk_simple_gla,
    fused_recurrent_gla,
    fused_recurrent_linear_attn,
    fused_recurrent_retention,
    fused_recurrent_simple_gla,
)
from ._mamba import mamba_chunk_scan_combined, selective_scan_fn, selective_state_update
from ._others import chunk_hgrn, chunk_mesa_net, fused_recurrent_hgrn
from ._preconditioned import chunk_precond_gated_delta_rule, chunk_precond_kda
from ._recurrent import regress
from ._rwkv import (
    chunk_rwkv6,
    chunk_rwkv7,
    fused_mul_recurrent_rwkv7,
    fused_recurrent_rwkv6,
    fused_recurrent_rwkv7,
)
from ._slots import (
    chunk_gated_oja_rule,
    chunk_gsa,
    fused_recurrent_gated_oja_rule,
    fused_recurrent_gsa,
)
from ._updates import (
    fused_recurrent_gated_delta_rule_update,
    fused_sigmoid_gating_delta_rule_update,
)

__all__ = [
    "causal_conv1d_fn",
    "causal_conv1d_update",
    "chunk_comba",
    "chunk_delta_rule",
    "chunk_gated_delta_product",
    "chunk_gated_delta_rule",
    "chunk_gated_oja_rule",
    "chunk_gdn2",
    "chunk_gla",
    "chunk_gsa",
    "chunk_hgrn",
    "chunk_kda",
    "chunk_linear_attn",
    "chunk_mesa_net",
    "chunk_precond_gated_delta_rule",
    "chunk_precond_kda",
    "chunk_retention",
    "chunk_rwkv6",
    "chunk_rwkv7",
    "chunk_simple_gla",
    "fused_mul_recurrent_rwkv7",
    "fused_recurrent_comba",
    "fused_recurrent_delta_rule",
    "fused_recurrent_gated_delta_rule",
    "fused_recurrent_gated_delta_rule_update",
    "fused_recurrent_gated_oja_rule",
    "fused_recurrent_gla",
    "fused_recurrent_gsa",
    "fused_recurrent_hgrn",
    "fused_recurrent_kda",
    "fused_recurrent_linear_attn",
    "fused_recurrent_retention",
    "fused_recurrent_rwkv6",
    "fused_recurrent_rwkv7",
    "fused_recurrent_simple_gla",
    "fused_sigmoid_gating_delta_rule_update",
    "mamba_chunk_scan_combined",
    "regress",
    "selective_scan_fn",
    "selective_state_update",
]
