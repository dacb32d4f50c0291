"""What a regression knows beside y: `regress(..., reports=...)` and `retrieve(..., reports=...)`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

import ttr

from . import _library
from ._arguments import State, arrange
from ._recipes import info_of

#: Reports by their names, as `ttr::kReports` has them: their types.
REPORTS: dict[str, type] = {
    "status": np.int8, "iterations": np.int64, "residual": np.float64, "slope": np.float64,
    "leverage": np.float64, "effective_pairs": np.float64,
}  # fmt: skip


def array(tensor: Tensor) -> Any:
    """NumPy has no bfloat16."""
    wide = tensor.detach().cpu()
    return (wide.float() if wide.dtype == torch.bfloat16 else wide).numpy()


def refuse_gradients(op: str, tensors: Mapping[str, Tensor | None], why: str) -> None:
    """RuntimeError: what requires gradients where there are none."""
    for name, tensor in tensors.items():
        if tensor is not None and torch.is_grad_enabled() and tensor.requires_grad:
            raise RuntimeError(
                f"[{op}] {name} must not require gradients, as {why}, but does: use torch.no_grad()"
            )


def rooms(op: str, names: Sequence[str], shape: Sequence[int], channels: int) -> dict[str, Any]:
    """Arrays that the library writes reports into."""
    if isinstance(names, str):
        raise ValueError(f"[{op}] reports must be a list of names but is {names!r}")
    for name in names:
        if name not in REPORTS:
            raise ValueError(f"[{op}] reports must be of {', '.join(REPORTS)} but has {name!r}")
    return {
        name: np.empty([*shape, channels] if name == "slope" else list(shape), REPORTS[name])
        for name in names
    }


@torch.compiler.disable  # type: ignore[untyped-decorator,unused-ignore]
def reported(
    text: str,
    names: Sequence[str],
    given: Mapping[str, Tensor | None],
    state: State | None,
    switches: Mapping[str, bool],
) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]:
    """y, the final state, and the reports by their names."""
    held = {name: t for name, t in (state or {}).items() if t is not None}
    refuse_gradients("regress", {**given, **held}, "a call with reports has none")
    here = {name: t.detach().cpu() for name, t in given.items() if t is not None}
    rows = (here.get(name) for name in ("q", "k", "v"))
    others = {name: t for name, t in here.items() if name not in ("q", "k", "v")}
    sizes = _library.sizes_of(text, *arrange(text, *rows, others))
    shape = (sizes["B"], sizes["T"], max(sizes["H"], sizes["Hq"]))
    out = rooms("regress", names, shape, sizes["Dk"] * sizes["Dv"])
    y, final = ttr.Layer(text).forward(
        state={name: array(t) for name, t in held.items()}, out=out, **switches,
        **{name: array(t) for name, t in here.items()},
    )  # fmt: skip
    like = given["v"]
    assert like is not None  # the library has refused it
    answers = torch.from_numpy(y).to(like.device, like.dtype)
    return answers, on(like.device, final), on(like.device, out)


def on(device: torch.device, arrays: Mapping[str, Any]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(x).to(device) for name, x in arrays.items()}


def rooms_of_state(
    text: str, names: Sequence[str], held: Mapping[str, Tensor], q: Tensor | None
) -> dict[str, Any]:
    """Arrays for the answers of a state to queries."""
    info = info_of(text)
    sizes: dict[str, int] = {}
    for name, axes in zip(info.states, info.state_axes):
        if name in held:
            sizes.update(zip(axes, held[name].shape))
    shape = [sizes.get("N", 1), 1, sizes.get("H", 1)] if q is None else list(q.shape[:3])
    shape[2] = max(shape[2], sizes.get("H", 1))
    return rooms("retrieve", names, shape, sizes.get("Dk", 0) * sizes.get("Dv", 0))
