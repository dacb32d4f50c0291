"""Shapes of what the operators return, without data: for torch.compile, torch.export and meta
tensors. Lengths of a batch, of tokens and of sequences may be symbols; heads and their lengths are
numbers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import ttr

from ._library import INPUTS, SIZES, by_bits, record, saved_bytes
from ._recipes import RecipeInfo, info_of


def _sizes(info: RecipeInfo, inputs: dict[str, Tensor]) -> dict[str, Any]:
    """The length of every axis, by its name."""
    sizes: dict[str, Any] = {"1": 1}
    for name, shapes, _ in info.inputs:
        tensor = inputs.get(name)
        if tensor is None:
            continue
        for axes in shapes:
            if len(axes) == tensor.dim():
                for axis, size in zip(axes, tensor.shape):
                    sizes.setdefault(axis, size)
    absent = [name for name, _, required in info.inputs if required and name not in inputs]
    if absent:
        raise ValueError(f"[forward] {absent[0]} must be given but is absent")
    heads = sizes.setdefault("H", max(int(sizes.get("Hk", 1)), int(sizes.get("Hv", 1))))
    sizes["heads of y"] = max(int(heads), int(sizes.get("Hq", heads)))
    sizes["N"] = sizes["N+1"] - 1 if "N+1" in sizes else sizes["B"]
    key_dim = int(sizes.setdefault("Dk", sizes["Dv"]))
    sizes["hidden"] = info.expansion * key_dim
    sizes["budget"], sizes["rank"] = info.budget, info.rank
    sizes["2 hidden"] = 2 * sizes["hidden"]
    sizes["Dphi"] = ttr.Recipe(info.text).phi_dim(key_dim, int(sizes.get("F", 0)))
    return sizes


def _pairs(info: RecipeInfo, sizes: dict[str, Any], starts_empty: bool) -> Any:
    """For how many pairs a memory has room after the call. Numbers among the data decide it where it does
    not start empty, or where sequences differ in length."""
    if not starts_empty or "N+1" in sizes:
        return torch.library.get_ctx().new_dynamic_size()
    tokens = sizes["T"]
    if info.window == 0:
        return tokens
    return torch.sym_min(tokens, 2 * info.window)  # type: ignore[no-untyped-call]


def _y(inputs: dict[str, Tensor], sizes: dict[str, Any]) -> Tensor:
    shape = (sizes["B"], sizes["T"], sizes["heads of y"], sizes["Dv"])
    return inputs["v"].new_empty(shape)


def _by_name(inputs: list[Tensor], given: int) -> dict[str, Tensor]:
    return {INPUTS[i]: tensor for i, tensor in by_bits(inputs, given, len(INPUTS)).items()}


def _saved_size(info: RecipeInfo, sizes: dict[str, Any], dtype: torch.dtype) -> Any:
    """How much backward is left is the engine's affair, and depends on the processor, which may be
    another one when a graph is run: a size that nobody knows. Where nothing but numbers is known
    (meta tensors) it is that of this processor."""
    try:
        return torch.library.get_ctx().new_dynamic_size()
    except RuntimeError:
        said = {name: int(sizes[name]) for name in SIZES if name in sizes}
        if "N+1" not in sizes:
            del said["N"]  # of rows that are not packed
        return saved_bytes(info.text, record(said, dtype))


@torch.library.register_fake("ttr::forward")  # type: ignore[untyped-decorator]
def _forward(
    recipe: str,
    inputs: list[Tensor],
    given: int,
    initial: list[Tensor],
    entries: int,
    *,
    wants_final: bool = True,
    saves: bool = False,
    **options: Any,
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    info = info_of(recipe)
    named = _by_name(inputs, given)
    sizes = _sizes(info, named)
    y = _y(named, sizes)
    held = by_bits(initial, entries, len(info.states))
    float64 = [t.dtype == torch.float64 for t in held.values() if t.is_floating_point()]
    is_float64 = float64[0] if float64 else y.dtype == torch.float64
    dtype = torch.float64 if is_float64 else torch.float32
    final: list[Tensor] = []
    if wants_final:
        if info.keeps_pairs:
            sizes["S"] = _pairs(info, sizes, not initial)
        for i, (axes, counts) in enumerate(zip(info.state_axes, info.counts)):
            own = held[i].dtype if i in held else dtype
            shape = [sizes[axis] for axis in axes]
            final.append(y.new_empty(shape, dtype=torch.int64 if counts else own))
    saved: list[Tensor] = []
    if saves:
        size = _saved_size(info, sizes, dtype)
        saved.append(y.new_empty((size,), dtype=torch.uint8))
    return y, final, saved


@torch.library.register_fake("ttr::backward")  # type: ignore[untyped-decorator]
def _backward(
    recipe: str,
    inputs: list[Tensor],
    given: int,
    initial: list[Tensor],
    entries: int,
    dy: Tensor | None,
    dfinal: list[Tensor],
    dentries: int,
    saved: list[Tensor],
    wanted: int,
    **switches: bool,
) -> list[Tensor]:
    of = [*inputs, *initial]
    return [t.new_empty(t.shape) for i, t in enumerate(of) if wanted >> i & 1]


@torch.library.register_fake("ttr::step_")  # type: ignore[untyped-decorator]
def _step(recipe: str, memory: Tensor, inputs: list[Tensor], given: int) -> Tensor:
    named = _by_name(inputs, given)
    return _y(named, _sizes(info_of(recipe), named))


@torch.library.register_fake("ttr::step_state_")  # type: ignore[untyped-decorator]
def _step_state(recipe: str, state: list[Tensor], inputs: list[Tensor], given: int) -> Tensor:
    named = _by_name(inputs, given)
    return _y(named, _sizes(info_of(recipe), named))


@torch.library.register_fake("ttr::pool_step_")  # type: ignore[untyped-decorator]
def _pool_step(
    recipe: str,
    memory: Tensor,
    record: str,
    slots: Tensor,
    inputs: list[Tensor],
    given: int,
) -> Tensor:
    named = _by_name(inputs, given)
    return _y(named, _sizes(info_of(recipe), named))


@torch.library.register_fake("ttr::decoder_start_")  # type: ignore[untyped-decorator]
def _decoder_start(
    recipe: str, memory: Tensor, record: str, state: list[Tensor]
) -> None:
    return None


@torch.library.impl("ttr::step_state_", ("CUDA", "XPU"))  # type: ignore[untyped-decorator]
def _step_state_elsewhere(
    recipe: str, state: list[Tensor], inputs: list[Tensor], given: int
) -> Tensor:
    """On a GPU: the one operator with a form of its own there."""
    from .portable.in_place import step

    return step(recipe, _by_name(inputs, given), dict(zip(info_of(recipe).states, state)))
