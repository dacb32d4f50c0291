"""`python -m ttr.transformers.bench`: functions and mixers of transformers, ours and the originals.

    python -m ttr.transformers.bench                    # every row, as a table
    python -m ttr.transformers.bench --rows kda,decode

As `python -m ttr.bench` does it: one thread, runs in turn, medians, the allocator as it is and one
that keeps its memory. It needs transformers.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from ttr.bench import Row, Rows, Runs, main, medians, row

from ._functions import FUNCTIONS
from ._switch import accelerated

_ORIGINAL = "original"


def _pair(module: str, name: str) -> dict[str, Callable[..., Any]]:
    """Our function and the one of a modelling module."""
    path = f"transformers.models.{module}.modeling_{module}"
    return {"ttr": FUNCTIONS[name], _ORIGINAL: getattr(importlib.import_module(path), name)}


def _draw(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, dtype=torch.float32).to(dtype)


def _call(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    with torch.no_grad():
        return function(**arguments)


def _train(function: Callable[..., Any], arguments: dict[str, Any]) -> None:
    """Forward and backward, gradients for every floating tensor."""
    fresh = {
        name: t.detach().requires_grad_() if isinstance(t, Tensor) else t
        for name, t in arguments.items()
    }
    out = function(**fresh)
    (out[0] if isinstance(out, tuple) else out).sum().backward()


def _compared(
    title: str,
    how: Callable[..., Any],
    pair: dict[str, Callable[..., Any]],
    arguments: dict[str, Any],
    limits: str,
    repeats: int,
) -> Row:
    runs: Runs = {
        name: functools.partial(how, function, arguments) for name, function in pair.items()
    }
    return row(title, medians(runs, repeats), "ms", 1e3, limits)


def delta(tokens: int, heads: int = 32, keys: int = 32, dim: int = 128) -> dict[str, Any]:
    torch.manual_seed(0)
    return {
        "query": _draw(1, tokens, keys, dim),
        "key": _draw(1, tokens, keys, dim),
        "value": _draw(1, tokens, heads, dim),
        "g": -torch.rand(1, tokens, heads),
        "beta": torch.rand(1, tokens, heads),
        "use_qk_l2norm_in_kernel": True,
    }


def kda(tokens: int) -> dict[str, Any]:
    return delta(tokens) | {"g": -torch.rand(1, tokens, 32, 128)}


def mamba2(tokens: int) -> dict[str, Any]:
    """64 heads of 64, states of 128, 8 groups."""
    torch.manual_seed(0)
    return {
        "hidden_states": _draw(1, tokens, 64, 64),
        "dt": _draw(1, tokens, 64),
        "A": -torch.rand(64),
        "B": _draw(1, tokens, 8, 128),
        "C": _draw(1, tokens, 8, 128),
        "chunk_size": 256,
        "D": torch.rand(64),
        "dt_bias": _draw(64),
        "dt_softplus": True,
    }


def kda_rows(quick: bool) -> Iterator[Row]:
    pair = _pair("kimi_linear", "chunk_kimi_delta_attention")
    yield _compared("KDA, T = 512", _call, pair, kda(512), "80 / 150", 3)
    title = "the same with backward"
    yield _compared(title, _train, pair, kda(512), "40 / 100", 1 if quick else 3)


def mamba2_rows(quick: bool) -> Iterator[Row]:
    pair = _pair("mamba2", "mamba2_chunk_scan")
    title = "Mamba-2, 64 x 64 x 128, T = 2048"
    yield _compared(title, _call, pair, mamba2(2048), "12 / 30", 3 if quick else 5)
    title = "the same with backward"
    yield _compared(title, _train, pair, mamba2(2048), "8 / 20", 1 if quick else 3)


def _configuration(module: str, name: str, **fields: Any) -> Any:
    path = f"transformers.models.{module}.configuration_{module}"
    return getattr(importlib.import_module(path), name)(**fields)


def _mixer(module: str, name: str, config: Any, dtype: torch.dtype) -> Any:
    path = f"transformers.models.{module}.modeling_{module}"
    torch.manual_seed(0)
    return getattr(importlib.import_module(path), name)(config, layer_idx=0).to(dtype)


def _of_mixer(mixer: Any) -> dict[str, Callable[..., Any]]:
    """A call of the mixer, with its module as it is and served."""

    def ours(hidden_states: Tensor) -> Any:
        with accelerated(mixer):
            return mixer(hidden_states)

    return {"ttr": ours, _ORIGINAL: lambda hidden_states: mixer(hidden_states)}


def mamba_rows(quick: bool) -> Iterator[Row]:
    config = _configuration("mamba", "MambaConfig", hidden_size=2048, num_hidden_layers=1)
    mixer = _mixer("mamba", "MambaMixer", config, torch.float32)
    x = {"hidden_states": _draw(1, 512, 2048)}
    title = "Mamba mixer 4096 x 16, training step, T = 512"
    limits = "25 / 60; tuned 5 / 12"
    yield _compared(title, _train, _of_mixer(mixer), x, limits, 1)


def qwen_rows(quick: bool) -> Iterator[Row]:
    config = _configuration("qwen3_next", "Qwen3NextConfig", num_hidden_layers=4)
    mixer = _mixer("qwen3_next", "Qwen3NextGatedDeltaNet", config, torch.bfloat16)
    x = {"hidden_states": _draw(1, 2048, 2048, dtype=torch.bfloat16)}
    pair = _of_mixer(mixer)
    title = "Qwen3-Next mixer 2048, bfloat16, T = 2048"
    yield _compared(title, _call, pair, x, "1.4 / 2.5", 3)
    title = "the same, training step"
    yield _compared(title, _train, pair, x, "1.8 / 4", 1 if quick else 3)


def decode_rows(quick: bool) -> Iterator[Row]:
    """One token of each function, its states in cache."""
    repeats, calls = (5, 50) if quick else (15, 200)
    state = torch.zeros(1, 32, 128, 128)
    more = {"initial_state": state, "output_final_state": True}
    names = {
        "gated delta rule": ("qwen3_next", "torch_recurrent_gated_delta_rule", delta(1) | more),
        "KDA": ("kimi_linear", "recurrent_kimi_delta_attention", kda(1) | more),
        "Mamba-2": ("mamba2", "mamba2_selective_state_update", _mamba2_token()),
        "Mamba": ("mamba", "mamba_selective_state_update", _mamba_token()),
        "convolution": ("qwen3_next", "causal_conv1d_update", _convolution_token()),
    }
    for title, (module, name, arguments) in names.items():
        runs: Runs = {
            who: functools.partial(_call, function, arguments)
            for who, function in _pair(module, name).items()
        }
        limits = "4 / 10" if title == "gated delta rule" else "-"
        yield row(f"a token, {title}", medians(runs, repeats, calls), "us", 1e6, limits)


def _mamba2_token() -> dict[str, Any]:
    return {
        "state": torch.zeros(1, 64, 128, 64).transpose(-1, -2),
        "hidden_states": _draw(1, 64, 64),
        "dt": _draw(1, 64, 1).expand(-1, -1, 64),
        "A": (-torch.rand(64, 1, 1)).expand(-1, 64, 128),
        "B": _draw(1, 8, 128),
        "C": _draw(1, 8, 128),
        "D": torch.rand(64, 1).expand(-1, 64),
        "dt_bias": _draw(64, 1).expand(-1, 64),
        "dt_softplus": True,
    }


def _mamba_token() -> dict[str, Any]:
    return {
        "state": torch.zeros(1, 16, 4096).transpose(-1, -2),
        "hidden_states": _draw(1, 4096),
        "dt": _draw(1, 4096),
        "A": -torch.rand(4096, 16),
        "B": _draw(1, 16),
        "C": _draw(1, 16),
        "D": torch.rand(4096),
        "z": _draw(1, 4096),
        "dt_bias": _draw(4096),
        "dt_softplus": True,
    }


def _convolution_token() -> dict[str, Any]:
    return {
        "hidden_states": _draw(1, 1, 8192).transpose(1, 2),
        "conv_state": torch.zeros(1, 8192, 4),
        "weight": _draw(8192, 4),
        "activation": "silu",
    }


ROWS: Rows = {
    "kda": kda_rows,
    "mamba2": mamba2_rows,
    "mamba": mamba_rows,
    "qwen": qwen_rows,
    "decode": decode_rows,
}

if __name__ == "__main__":
    main(ROWS, "ttr.transformers.bench", __doc__)
