"""What the functions of the GPU library share: their arguments in the words of a recipe."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def regress(*args: Any, **kwargs: Any) -> Any:
    """ttr.torch.regress, looked up when it is called: this package is imported by that one."""
    import ttr.torch

    return ttr.torch.regress(*args, **kwargs)


def named(recipe: str, **options: Any) -> str:
    """A zoo name with changes in braces; None leaves an option as it is."""
    said = ", ".join(
        f"{name}: {_text(value)}" for name, value in options.items() if value is not None
    )
    return f"{recipe}{{{said}}}" if said else recipe


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def scale_option(scale: float | None) -> float | str:
    """A number, or Dk ** -0.5 where there is none."""
    return "rsqrt_dk" if scale is None else float(scale)


def refuse(function: str, **unsupported: Any) -> None:
    """ValueError for the first argument that was given another value than that of no effect."""
    for name, value in unsupported.items():
        if value is not None and value is not False:
            hint = ": inputs are [B, T, H, ...]" if name == "head_first" else ""
            raise ValueError(f"[{function}] {name} must be left out but is {_short(value)}{hint}")


def _short(value: Any) -> str:
    return f"a tensor {list(value.shape)}" if isinstance(value, Tensor) else repr(value)


def wide(x: Tensor) -> Tensor:
    """In float32, or float64 where it is that."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def unit(x: Tensor) -> Tensor:
    """x / sqrt(|x|^2 + 1e-6), rows apart."""
    x = wide(x)
    return x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt()


def of_memories(x: Tensor, heads: int) -> Tensor:
    """Rows [B, T, h, D] of shared heads, one for each of `heads` memories."""
    return x if x.shape[2] == heads else x.repeat_interleave(heads // x.shape[2], 2)


def given_state(
    state: Tensor | None, name: str = "state", v_first: bool = False
) -> dict[str, Tensor]:
    """An initial state [N, H, K, V] as a recipe's, of the type that states have."""
    if state is None:
        return {}
    if v_first:
        state = state.transpose(-1, -2).contiguous()  # a state has rows
    return {name: wide(state)}


def linear_memory(
    recipe: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    initial_state: Tensor | None,
    output_final_state: bool,
    cu_seqlens: Tensor | None,
    v_first: bool = False,
    **inputs: Tensor | None,
) -> tuple[Tensor, Tensor | None]:
    """(o in q's dtype, the final state [N, H, K, V] or None) of a recipe whose state is one
    matrix."""
    state = given_state(initial_state, v_first=v_first)
    if not output_final_state:
        o = regress(recipe, q, k, v, state=state, cu_seqlens=cu_seqlens, **inputs)
        return o.to(q.dtype), None
    o, final = regress(
        recipe, q, k, v, state=state, return_state=True, cu_seqlens=cu_seqlens, **inputs
    )
    memory = final["state"]
    return o.to(q.dtype), memory.transpose(-1, -2) if v_first else memory
