"""One token, its state changed in place: by one kernel where there is one for the recipe and the device."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import kernels, regress
from .inputs import gather
from .recipe import choices


def step(recipe: Any, given: dict[str, Tensor], state: dict[str, Tensor]) -> Tensor:
    """What ``ttr.torch.step_`` does of a state on another device than the CPU.

    Nothing waits for the device where a kernel takes the call: CUDA graphs may hold it.
    """
    found = choices(recipe)
    call = gather(found, given, state)
    if call.sizes["T"] != 1:
        raise ValueError(f"[step_] q, k and v must be of one token but are of {call.sizes['T']}")
    with torch.no_grad():
        made = kernels.of_token(call)
        if made is not None:
            y: Tensor = made.run(call)
            return y
        y, final = regress(recipe, state=state, return_state=True, **given)  # type: ignore[misc]
        for name, held in state.items():
            if held.shape != final[name].shape:
                raise ValueError(
                    f"[step_] {name} must keep its shape, but that of {found.text} grows from token to token: "
                    f"regress has the state that follows"
                )
        for name, held in state.items():
            held.copy_(final[name])
    return y
