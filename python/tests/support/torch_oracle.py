"""The judge of PyTorch's side: the definition, and the engines' gradients, on tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import ttr
from torch import Tensor

Tensors = dict[str, Tensor]


def _arrays(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    return {name: tensor.detach().numpy() for name, tensor in tensors.items()}


def _tensors(arrays: Mapping[str, Any]) -> Tensors:
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def definition(
    recipe: str, inputs: Mapping[str, Tensor], state: Mapping[str, Tensor]
) -> tuple[Tensor, Tensors]:
    """y and the final state."""
    layer = ttr.Layer(recipe, engine="definition")
    y, final = layer.forward(**_arrays(inputs), state=_arrays(state))
    return torch.from_numpy(y), _tensors(final)


def gradients(
    recipe: str,
    inputs: Mapping[str, Tensor],
    state: Mapping[str, Tensor],
    dy: Tensor,
    dstate: Mapping[str, Tensor],
) -> Tensors:
    """Gradients of the planned engine: of the inputs and of the initial state, by name."""
    layer = ttr.Layer(recipe)
    of_inputs, of_state = layer.backward(
        dy.numpy(), **_arrays(inputs), state=_arrays(state), dstate=_arrays(dstate)
    )
    return _tensors({**of_inputs, **of_state})
