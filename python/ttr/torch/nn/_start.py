"""Where the parts around memories begin, so that what memories answer is learned from the first step."""

from __future__ import annotations

import math
from collections.abc import MutableMapping
from typing import Any

import torch
from torch import Tensor, nn

from .gates import Positive

#: silu(b) = 1: a gate that lets through what it is given.
_OPEN = 1.278464542761074


def start_open(gate: nn.Linear, kind: str) -> None:
    """An output gate that begins as a constant: W = 0, and silu(b) = 1 or sigmoid(b) = 1/2.

    W x of random weights has a random sign at every token and channel, and so has its silu: what a
    memory answers would be told from noise before anything is learned of it. A silu without a bias
    would begin shut, and stays random.
    """
    if kind == "silu" and gate.bias is None:
        return
    nn.init.zeros_(gate.weight)
    if gate.bias is not None:
        nn.init.constant_(gate.bias, _OPEN if kind == "silu" else 0.0)


def start_small(blocks: nn.ModuleList, size: float) -> None:
    """Scales the last matrices of blocks so that what all of them add to the stream at the start is as
    large as `size`, the deviation of embeddings there. The token itself stays the loudest, which
    keys and queries of every block are made of. (1 / sqrt(2 layers) is GPT-2's scale of residuals.)
    """
    factor = size / math.sqrt(2 * len(blocks))
    with torch.no_grad():
        for block in blocks:
            for part in (block.layer.output, block.mlp and block.mlp.down):
                if part is not None:
                    part.weight.mul_(factor)


def add_late_parts(layer: Any, state: MutableMapping[str, Tensor], prefix: str) -> None:
    """Parts that designs have got since a state dictionary was written, as those that change nothing: a gate
    that is open, or its bias of zeros, the recipe's ridge, and taps of a convolution that are the token itself."""
    like = state.get(f"{prefix}output.weight")
    if like is None:
        return
    if layer.design.output_gate and layer.design.gate_bias:
        _add_gate(layer, state, f"{prefix}gate.", like)
    ridge = layer.gates["ridge"] if "ridge" in layer.gates else None
    if isinstance(ridge, Positive) and ridge.least:
        old = ridge.raw_of(float(layer.recipe.option("ridge")))
        state.setdefault(f"{prefix}gates.ridge.raw", like.new_full(ridge.raw.shape, old))
    if not layer.design.key_lags:
        _add_taps(layer, state, f"{prefix}convolve.", like)


def _add_gate(layer: Any, state: MutableMapping[str, Tensor], prefix: str, like: Tensor) -> None:
    """The bias of an output gate; the whole gate of a vector, which all others always had."""
    weight, bias = f"{prefix}weight", f"{prefix}bias"
    if weight in state:
        state.setdefault(bias, like.new_zeros(layer.gate.bias.shape))
    elif set(layer.project) == {"v"} and bias not in state:
        state[weight] = like.new_zeros(layer.gate.weight.shape)
        state[bias] = like.new_full(layer.gate.bias.shape, _OPEN)


def _add_taps(layer: Any, state: MutableMapping[str, Tensor], prefix: str, like: Tensor) -> None:
    taps = {f"{prefix}{n}.weight": c for n, c in layer.convolve.items()}
    if any(name in state for name in taps):  # Mamba's were of v alone
        taps = {f"{prefix}{n}.weight": layer.convolve[n] for n in layer.convolve if n not in layer.design.silu}
    if any(name in state for name in taps):  # and so were RG-LRU's
        taps = {name: c for name, c in taps.items() if name == f"{prefix}x.weight" and name not in state}
    for name, convolve in taps.items():
        alone = like.new_zeros(convolve.weight.shape)
        alone[:, -1] = 1
        state[name] = alone
