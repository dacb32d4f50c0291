"""Sums over kept pairs, weighed by how near their keys are to the query:

    y = sum_i w_i s(k_i, q) v_i / sum_i w_i s(k_i, q)       constant | exact: softmax, Nadaraya-Watson
    y = eta sum_i w_i s(k_i, q) v_i                         kernel | gradient

Blocks of queries are taken with all pairs that they see, so that no array grows with the square of
the length; the backward pass forms each block's weights anew. Plain softmax is PyTorch's own
attention. Cost a query and pair: Dk + Dv multiply-adds forward.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.functional import pad, scaled_dot_product_attention

from .inputs import Call
from .kept_pairs import Pairs, block_of, by_blocks, final_state, no_answers, pairs_of, queries, visible_range
from .normalise import read_out
from .not_finite import apart_from_pairs
from .recipe import query_scale
from .similarity import weights


def run(call: Call) -> tuple[Tensor, dict[str, Tensor]]:
    """y [B, T, max(H, Hq), Dv] and the final state."""
    return apart_from_pairs(_run, call)


def _run(call: Call) -> tuple[Tensor, dict[str, Tensor]]:
    pairs, q = pairs_of(call), queries(call)
    if _is_plain(call):
        y = _attention(call, pairs, q)
    else:
        y = by_blocks(_block, call, pairs, q, block_of(call, pairs, 1))
    y = read_out(call.choices, y.permute(0, 2, 1, 3, 4).flatten(2, 3), None)
    return y, final_state(call, pairs)


def _block(call: Call, pairs: Pairs, q: Tensor, begin: int, end: int) -> Tensor:
    """[N, H, C, G, Dv] of a block's queries [N, H, C, G, Dk]."""
    choices = call.choices
    seen = visible_range(call, pairs, begin, end)
    k, v = (x[:, :, seen.first : seen.last] for x in (pairs.k, pairs.v))
    normalised = choices.function == "constant"
    w = weights(call, q, k, seen, shares=normalised)
    y = (w.flatten(2, 3) @ v).unflatten(2, q.shape[2:4])
    return y if normalised else choices.eta * y


def _is_plain(call: Call) -> bool:
    """Whether this is softmax over all pairs of the call, or of those so far. On a GPU float64 would
    be formed whole; no kernel takes a scale below 0, or has derivatives in forward mode."""
    choices = call.choices
    unweighted = choices.decay == "none" and choices.importance == "none" and choices.window == 0
    unweighted = unweighted and choices.pair_bias == "none"
    softmax = choices.function == "constant" and choices.kernel == "exponential"
    softmax = softmax and query_scale(choices, call.sizes["Dk"]) > 0
    here = call.device.type == "cpu" or call.work == torch.float32
    here = here and forward_ad._current_level < 0
    return softmax and unweighted and choices.read == "after" and not call.state and here


def _attention(call: Call, pairs: Pairs, q: Tensor) -> Tensor:
    """What blocks give, by the kernels that PyTorch has."""
    group, width = q.shape[3], pairs.v.shape[-1]
    if call.sizes["T"] == 0:
        return no_answers(pairs, q)
    q = q.transpose(2, 3).flatten(1, 2)
    k, v = (x.repeat_interleave(group, 1) if group > 1 else x for x in (pairs.k, pairs.v))
    # They take keys and values of one width, of whole vectors.
    wide = -(-max(q.shape[-1], width) // 8) * 8
    q, k, v = (pad(x, (0, wide - x.shape[-1])) for x in (q, k, v))
    q, k, v = (x.to(_product_type(call)) for x in (q, k, v))
    scale = query_scale(call.choices, call.sizes["Dk"])
    y = scaled_dot_product_attention(q, k, v, is_causal=call.choices.causal, scale=scale)
    return y[..., :width].to(call.work).unflatten(1, (-1, group)).transpose(2, 3)


def _product_type(call: Call) -> torch.dtype:
    """On a GPU the type that q, k and v come in, where that is one: its products are faster there, and
    sums are float32 in any."""
    types = {call.tensors[name].dtype for name in ("q", "k", "v")}
    if call.device.type != "cuda" or call.choices.normalise_qk or len(types) > 1:
        return call.work
    return types.pop()
