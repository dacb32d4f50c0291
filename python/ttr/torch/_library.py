"""The library of operators: loaded once, with the kernels that Python writes: shapes without data
(`register_fake`) and gradients (`register_autograd`).

The operators are functional but those whose names end in `_`. Their inputs are the 23 of a layer, in
the order of `INPUTS`; entries of a state are lists in the order that the recipe has them, and an
integer beside a list says by its bits which entries it holds (-1: all of them).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

_PATH = Path(__file__).with_name("_operators.so")
if not _PATH.exists():
    raise ImportError(
        "ttr.torch needs its operators, which were left out because PyTorch was not there when the "
        "package was built: pip install torch, then pip install --no-build-isolation "
        "--force-reinstall test-time-regression"
    )
torch.ops.load_library(str(_PATH))

_ops = torch.ops.ttr
forward = _ops.forward.default
backward = _ops.backward.default
step_ = _ops.step_.default
step_state_ = _ops.step_state_.default
decoder_start_ = _ops.decoder_start_.default
decoder_state_ = _ops.decoder_state_.default
decoder_bytes = _ops.decoder_bytes.default
dims = _ops.dims.default
describe = _ops.describe.default
phi_dim = _ops.phi_dim.default
saved_bytes = _ops.saved_bytes.default

#: The inputs of every operator, by name and in order.
INPUTS: tuple[str, ...] = tuple(
    a.name for a in dims._schema.arguments if a.name != "recipe"
)
CU_SEQLENS = len(INPUTS) - 1
V = INPUTS.index("v")
Q = INPUTS.index("q")
K = INPUTS.index("k")

Tensors = tuple["Tensor | None", ...]


# ---- Shapes without data -------------------------------------------------------------------------


def _sizes(text: str, inputs: Tensors) -> dict[str, Any]:
    """The length of every axis that the inputs tell, by its name. Lengths of a batch, of tokens and
    of sequences may be symbols; what a head is like is a number."""
    from ._recipes import info_of

    info = info_of(text)
    sizes: dict[str, Any] = {"1": 1}
    for name, shapes, _ in info.inputs:
        tensor = inputs[INPUTS.index(name)]
        if tensor is None:
            continue
        for axes in shapes:
            if len(axes) == tensor.dim():
                for axis, size in zip(axes, tensor.shape):
                    sizes.setdefault(axis, size)
    heads = sizes.setdefault("H", max(int(sizes.get("Hk", 1)), int(sizes.get("Hv", 1))))
    sizes.setdefault("B", 1)
    sizes["N"] = sizes["N+1"] - 1 if "N+1" in sizes else sizes["B"]
    sizes["heads of y"] = max(int(heads), int(sizes.get("Hq", heads)))
    key_dim = int(sizes.setdefault("Dk", sizes["Dv"]))
    sizes["hidden"] = info.expansion * key_dim
    sizes["Dphi"] = phi_dim(text, key_dim, int(sizes.get("F", 0)))
    return sizes


def _pairs(text: str, sizes: dict[str, Any], starts_empty: bool) -> Any:
    """How many pairs a memory keeps after the call: by sizes alone where it starts empty and
    sequences are of one length."""
    from ._recipes import info_of

    if not starts_empty or "N+1" in sizes:
        return torch.library.get_ctx().new_dynamic_size()
    window = info_of(text).window
    pairs = sizes["T"] if "T" in sizes else sizes["T n"]
    return torch.sym_min(pairs, window) if window > 0 else pairs


def _split(args: tuple[Any, ...], count: int) -> tuple[Tensors, tuple[Any, ...]]:
    return args[:count], args[count:]


def _fake_y(text: str, inputs: Tensors, sizes: dict[str, Any]) -> Tensor:
    v = inputs[V]
    if v is None:
        raise ValueError(f"[forward] v must be [B,T,Hv,Dv] but is absent, for {text}")
    tokens = sizes["T"] if "T" in sizes else sizes["T n"]
    return v.new_empty((sizes["B"], tokens, sizes["heads of y"], sizes["Dv"]))


@torch.library.register_fake("ttr::forward")
def _fake_forward(
    recipe: str, initial: list[Tensor], entries: int, *args: Any, **options: Any
) -> tuple[Tensor, list[Tensor], Tensor]:
    from ._recipes import info_of

    names = (*INPUTS, "save", "bfloat16_products", "engine")
    given = {**dict(zip(names, args)), **options}
    inputs = tuple(given.get(name) for name in INPUTS)
    info = info_of(recipe)
    sizes = _sizes(recipe, inputs)
    y = _fake_y(recipe, inputs, sizes)
    if info.keeps_pairs:
        sizes["S"] = _pairs(recipe, sizes, not initial)
    held = _by_entry(initial, entries, len(info.states))
    floating = [t.dtype for t in held.values() if t.dtype.is_floating_point]
    dtype = torch.float64 if y.dtype == torch.float64 else torch.float32
    dtype = floating[0] if floating else dtype
    states = [
        y.new_empty(
            [sizes[axis] for axis in axes],
            dtype=torch.int64 if counts else held[i].dtype if i in held else dtype,
        )
        for i, (axes, counts) in enumerate(zip(info.state_axes, info.counts))
    ]
    saved_size: Any = 0
    if given.get("save"):
        # How much it is depends on the processor: a graph may be run on another one.
        saved_size = torch.library.get_ctx().new_dynamic_size()
    return y, states, y.new_empty((saved_size,), dtype=torch.uint8)


def _by_entry(tensors: list[Tensor], entries: int, count: int) -> dict[int, Tensor]:
    if not tensors:
        return {}
    return dict(zip((i for i in range(count) if entries >> i & 1), tensors))


def _wanted(tensors: list[Any], wanted: int) -> list[Any]:
    return [t for i, t in enumerate(tensors) if wanted >> i & 1]


@torch.library.register_fake("ttr::backward")
def _fake_backward(
    recipe: str,
    initial: list[Tensor],
    entries: int,
    dstate: list[Tensor],
    dstate_entries: int,
    *args: Any,
    **options: Any,
) -> list[Tensor]:
    from ._recipes import info_of

    names = (*INPUTS, "dy", "saved", "wanted")
    given = {**dict(zip(names, args)), **options}
    count = len(info_of(recipe).states)
    held = _by_entry(initial, entries, count)
    of = [given.get(name) for name in INPUTS] + [held.get(i) for i in range(count)]
    return [t.new_empty(t.shape) for t in _wanted(of, given.get("wanted", 0))]


@torch.library.register_fake("ttr::step_")
def _fake_step(recipe: str, memory: Tensor, *args: Any, **options: Any) -> Tensor:
    given = {**dict(zip(INPUTS, args)), **options}
    inputs = tuple(given.get(name) for name in INPUTS)
    return _fake_y(recipe, inputs, _sizes(recipe, inputs))


@torch.library.register_fake("ttr::step_state_")
def _fake_step_state(recipe: str, state: list[Tensor], *args: Any, **options: Any) -> Tensor:
    given = {**dict(zip(INPUTS, args)), **options}
    inputs = tuple(given.get(name) for name in INPUTS)
    return _fake_y(recipe, inputs, _sizes(recipe, inputs))


@torch.library.register_fake("ttr::decoder_start_")
def _fake_decoder_start(
    recipe: str, memory: Tensor, dims: list[int], is_float64: bool, state: list[Tensor]
) -> None:
    return None


# ---- Gradients -----------------------------------------------------------------------------------


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    recipe, initial, entries, *rest = inputs
    tensors, rest = rest[: len(INPUTS)], rest[len(INPUTS) :]
    if rest[2]:
        raise ValueError("[forward] engine must be absent where gradients are wanted")
    ctx.set_materialize_grads(False)
    ctx.recipe, ctx.entries = recipe, entries
    ctx.held = [t is not None for t in tensors]
    ctx.count = len(initial)
    given = [t for t in tensors if t is not None]
    ctx.save_for_backward(*given, *initial, output[2])
    ctx.mark_non_differentiable(output[2], *(t for t in output[1] if not t.is_floating_point()))


def _backward(ctx: Any, dy: Tensor | None, dstate: list[Tensor | None], _: Any) -> tuple[Any, ...]:
    saved = list(ctx.saved_tensors)
    inputs = [saved.pop(0) if held else None for held in ctx.held]
    initial, kept = saved[: ctx.count], saved[ctx.count]
    needs = ctx.needs_input_grad
    needs_inputs = needs[3 : 3 + len(INPUTS)]
    needs_initial = needs[1] if initial else []
    gradients = gradients_of(
        ctx.recipe, inputs, initial, ctx.entries, dy, dstate, kept, needs_inputs, needs_initial
    )
    of_initial = gradients[len(INPUTS) :] if initial else []
    return (None, of_initial, None, *gradients[: len(INPUTS)], None, None, None)


def gradients_of(
    recipe: str,
    inputs: Any,
    initial: Any,
    entries: int,
    dy: Tensor | None,
    dstate: Any,
    saved: Tensor | None,
    needs_inputs: Any,
    needs_initial: Any,
) -> list[Tensor | None]:
    """Gradients of the inputs, then of the initial state's tensors; None where none is needed."""
    wanted = 0
    for i, needed in enumerate(needs_inputs):
        if needed:
            wanted |= 1 << i
    bit = len(INPUTS)
    position = 0
    if any(needs_initial):
        from ._recipes import info_of

        held = [i for i in range(len(info_of(recipe).states)) if entries >> i & 1]
        for i, needed in zip(held, needs_initial):
            if needed:
                wanted |= 1 << (bit + i)
    final, final_entries = [], 0
    for i, gradient in enumerate(dstate):
        if gradient is not None:
            final.append(gradient)
            final_entries |= 1 << i
    made = backward(
        recipe, initial, entries, final, final_entries, *inputs, dy, saved, wanted
    )
    gradients: list[Tensor | None] = []
    for needed in (*needs_inputs, *(needs_initial or [False] * len(initial))):
        gradients.append(made[position] if needed else None)
        position += bool(needed)
    return gradients


def _refuse_twice(ctx: Any, *gradients: Any) -> Any:
    raise RuntimeError(
        "ttr: gradients of gradients are not there: a layer was differentiated twice (backward "
        "through gradients that create_graph=True had made)"
    )


def _setup_nothing(ctx: Any, inputs: Any, output: Any) -> None:
    return None


torch.library.register_autograd("ttr::forward", _backward, setup_context=_setup_context)
torch.library.register_autograd("ttr::backward", _refuse_twice, setup_context=_setup_nothing)
