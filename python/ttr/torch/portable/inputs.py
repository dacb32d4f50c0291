"""What a call is given: sizes, presence and shapes checked against the recipe, before any work."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ttr._names import likely

from .recipe import Choices, Input, phi_dim

_FLOATING = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


@dataclasses.dataclass
class Call:
    """One call: the recipe's values, the tensors by name, the sizes by the names of their axes.

    ``sizes`` has B, T, Hq, Hk, Hv, H, Dk, Dv, N (rows of the state) and Dphi.
    """

    choices: Choices
    tensors: dict[str, Tensor]
    state: dict[str, Tensor]
    sizes: dict[str, int]
    work: torch.dtype
    sequences: list[int] | None = None

    def get(self, name: str) -> Tensor | None:
        """An input in the type that is computed in; None where it is absent."""
        tensor = self.tensors.get(name)
        return None if tensor is None else tensor.to(self.work)

    def need(self, name: str) -> Tensor:
        """An input that is there."""
        tensor = self.get(name)
        assert tensor is not None, name
        return tensor

    def initial(self, name: str) -> Tensor | None:
        """An entry of the initial state in the type that is computed in; None: the recipe's
        start."""
        tensor = self.state.get(name)
        return None if tensor is None else tensor.to(self.work)

    @property
    def device(self) -> torch.device:
        return self.tensors["v"].device

    def stored(self, name: str, tensor: Tensor) -> Tensor:
        """An entry of the final state in the type of the initial one."""
        given = self.state.get(name)
        return tensor if given is None else tensor.to(given.dtype)


def is_constant(call: Call) -> bool:
    """Whether nobody asks for gradients, nor for a graph."""
    if torch.compiler.is_compiling():
        return False
    given = (*call.tensors.values(), *call.state.values())
    return not (torch.is_grad_enabled() and any(t.requires_grad for t in given))


def fail(argument: str, must: str, given: str) -> ValueError:
    """The one form of an error: what an argument must be, and what it is."""
    return ValueError(f"[regress] {argument} must be {must} but is {given}")


def gather(
    choices: Choices, given: Mapping[str, Tensor | None], state: Mapping[str, Any] | None
) -> Call:
    """Checks a call and names its sizes.

    Raises ValueError for what is missing, unknown, of another shape, type or device, or outside of
    its range. Ranges are read where that costs no copy from a device: on the CPU.
    """
    tensors = _named(choices, given)
    sizes = _sizes(choices, tensors)
    held = _state(choices, state, sizes, tensors["v"].device)
    work = (
        torch.float64
        if any(t.dtype == torch.float64 for t in (tensors["v"], *held.values()))
        else torch.float32
    )
    _check_ranges(choices, tensors)
    return Call(choices, tensors, held, sizes, work, _sequences(tensors, sizes))


def _named(choices: Choices, given: Mapping[str, Tensor | None]) -> dict[str, Tensor]:
    known = {spec.argument: spec for spec in choices.inputs}
    tensors: dict[str, Tensor] = {}
    for argument, tensor in given.items():
        if tensor is None:
            continue
        if argument not in known:
            meant = likely(argument, list(known))
            raise ValueError(
                f"[regress] {argument} is no input of {choices.text}, which takes {', '.join(known)}"
                f"{f': did you mean {meant}?' if meant else ''}"
            )
        tensors[known[argument].name] = tensor
    device = None
    for spec in choices.inputs:
        tensor = tensors.get(spec.name)
        if tensor is None:
            if spec.required:
                raise fail(spec.argument, "given", "missing")
            continue
        _check_type(spec, tensor)
        if spec.name == "cu_seqlens":
            continue
        if device is not None and tensor.device != device:
            raise fail(spec.argument, f"on {device}", f"on {tensor.device}")
        device = tensor.device
    return tensors


def _check_type(spec: Input, tensor: Tensor) -> None:
    if not isinstance(tensor, Tensor):
        raise fail(spec.argument, "a tensor", type(tensor).__name__)
    if spec.name == "cu_seqlens":
        if tensor.dtype not in (torch.int32, torch.int64):
            raise fail(spec.argument, "int32 or int64", str(tensor.dtype))
    elif tensor.dtype not in _FLOATING:
        raise fail(spec.argument, "float32, float64, bfloat16 or float16", str(tensor.dtype))


def _text(shape: tuple[str, ...], sizes: Mapping[str, int], given: tuple[int, ...] = ()) -> str:
    """The names of the axes and their sizes; an axis that may have any has the given one."""
    names = ",".join(shape)
    own = dict(zip(shape, given)) if len(given) == len(shape) else {}
    numbers = ",".join(str(sizes.get(axis, own.get(axis, axis))) for axis in shape)
    return f"[{names}] = [{numbers}]"


def _fits(shape: tuple[str, ...], tensor: Tensor, sizes: Mapping[str, int]) -> bool:
    return tensor.dim() == len(shape) and all(
        axis not in sizes or sizes[axis] == size for axis, size in zip(shape, tensor.shape)
    )


def _bind(spec: Input, tensor: Tensor, sizes: dict[str, int], rows: int) -> None:
    for shape in spec.shapes:
        if _fits(shape, tensor, sizes):
            for axis, size in zip(shape, tensor.shape):
                if axis != "S":  # a state may have fewer rows than a bias has columns
                    sizes.setdefault(axis, size)
            _bind_rows(spec, sizes, rows)
            return
    must = " or ".join(_text(shape, sizes, tuple(tensor.shape)) for shape in spec.shapes)
    raise fail(spec.argument, must, str(list(tensor.shape)))


def _bind_rows(spec: Input, sizes: dict[str, int], rows: int) -> None:
    if "T n" in sizes:
        if sizes["T n"] % rows:
            raise fail(spec.argument, f"of a multiple of {rows} rows", str(sizes["T n"]))
        sizes.setdefault("T", sizes["T n"] // rows)
    if "T" in sizes:
        sizes.setdefault("T n", sizes["T"] * rows)


def _sizes(choices: Choices, tensors: Mapping[str, Tensor]) -> dict[str, int]:
    sizes: dict[str, int] = {"1": 1, "mini_batch": choices.mini_batch, "budget": choices.budget}
    sizes["n"] = choices.steps
    order = sorted(choices.inputs, key=lambda spec: spec.name not in ("v", "k", "q"))
    for spec in order:
        tensor = tensors.get(spec.name)
        if tensor is not None and spec.name != "cu_seqlens":
            _bind(spec, tensor, sizes, choices.rows_per_token)
    sizes.setdefault("H", max(sizes.get("Hk", 1), sizes.get("Hv", 1)))
    sizes.setdefault("Dk", sizes["Dv"])
    for axis, argument in (("Hk", "k"), ("Hv", "v")):
        if sizes["H"] % max(1, sizes.setdefault(axis, 1)):
            raise fail(
                argument, f"of heads that divide the {sizes['H']} memories", f"of {sizes[axis]}"
            )
    queries = sizes.setdefault("Hq", sizes["H"])
    if sizes["H"] % max(1, queries) and queries % sizes["H"]:
        raise fail(
            "q",
            f"of heads that divide, or are a multiple of, the {sizes['H']} memories",
            f"of {queries}",
        )
    cu_seqlens = tensors.get("cu_seqlens")
    sizes["N"] = sizes["B"] if cu_seqlens is None else cu_seqlens.numel() - 1
    sizes["Dphi"] = phi_dim(choices, sizes["Dk"], sizes.get("F", 0))
    if choices.function == "network":
        sizes["hidden"] = choices.expansion * sizes["Dk"]
        sizes["2 hidden"] = 2 * sizes["hidden"]
    return sizes


def _state(
    choices: Choices,
    state: Mapping[str, Any] | None,
    sizes: Mapping[str, int],
    device: torch.device,
) -> dict[str, Tensor]:
    held: dict[str, Tensor] = {}
    shapes = {entry.name: entry.shape for entry in choices.state}
    # Start weights of a network may be those of all sequences.
    network = choices.function == "network"
    shared = {n for n in shapes if network and n.startswith(("state.w", "state.b"))}
    for name, tensor in (state or {}).items():
        if tensor is None:
            continue
        if name not in shapes:
            known = ", ".join(shapes) or "nothing"
            raise ValueError(
                f"[regress] state has an entry {name!r}, but the state of {choices.text} is {known}"
            )
        if name in shared and tensor.dim() == len(shapes[name]) - 1:
            tensor = tensor.expand(sizes["N"], *tensor.shape)
        if not _fits(shapes[name], tensor, sizes):
            raise fail(f"state[{name!r}]", _text(shapes[name], sizes), str(list(tensor.shape)))
        if tensor.device != device:
            raise fail(f"state[{name!r}]", f"on {device}", f"on {tensor.device}")
        held[name] = tensor
    return held


def _check_ranges(choices: Choices, tensors: Mapping[str, Tensor]) -> None:
    if torch.compiler.is_compiling():
        return
    for spec in choices.inputs:
        tensor = tensors.get(spec.name)
        if tensor is None or not spec.sign or tensor.device.type != "cpu" or not tensor.numel():
            continue
        values = tensor.detach()
        outside = bool((values < 0).any() if spec.sign > 0 else (values > 0).any())
        if outside:
            bound, worst = (">= 0", values.min()) if spec.sign > 0 else ("<= 0", values.max())
            raise fail(spec.argument, bound, f"{worst.item():g} somewhere")


def _sequences(tensors: Mapping[str, Tensor], sizes: Mapping[str, int]) -> list[int] | None:
    cu_seqlens = tensors.get("cu_seqlens")
    if cu_seqlens is None:
        return None
    if sizes["B"] != 1:
        raise fail("cu_seqlens", "given with B = 1", f"given with B = {sizes['B']}")
    if cu_seqlens.dim() != 1 or cu_seqlens.numel() < 2:
        raise fail("cu_seqlens", "[N+1] with N >= 1", str(list(cu_seqlens.shape)))
    ends = [int(end) for end in cu_seqlens.tolist()]
    if ends[0] != 0 or ends[-1] != sizes["T"] or any(b < a for a, b in zip(ends, ends[1:])):
        raise fail("cu_seqlens", f"0 ... {sizes['T']} without falling", str(ends))
    return ends
