"""What an optimizer is given: `parameter_groups`."""

from __future__ import annotations

from typing import Any

from torch import nn

from ._convolution import ShortConvolution
from ._layer import TestTimeRegression
from ._sizes import check_number, refuse

#: Modules whose `weight` is a matrix that weight decay keeps small.
_MATRICES = (nn.Linear, nn.Embedding, ShortConvolution)


def parameter_groups(model: nn.Module, weight_decay: float = 0.1) -> list[dict[str, Any]]:
    """The parameters that learn, for an optimizer: those that decay, and those that do not.

        optimizer = torch.optim.AdamW(parameter_groups(model), lr=3e-3)

    Weight decay pulls towards zero. For matrices that is a bound on their size. For all else zero is a
    place like any other, or a bad one: biases, norms' scales, skips, starts that are learned, and all
    that gates have, as zero would be a rate, a ridge or a step size that nobody has asked for.

    Any module may be given; a parameter that has several names is one. ValueError: a weight decay
    that is negative or not finite; a model without parameters that learn.
    """
    check_number("weight_decay", weight_decay, "parameter_groups")
    if not isinstance(model, nn.Module):
        refuse("model", "a module", type(model).__name__, "parameter_groups")
    layers = [module for module in model.modules() if isinstance(module, TestTimeRegression)]
    of_gates = {id(p) for layer in layers for p in layer.gates.parameters()}
    matrices = {id(m.weight) for m in model.modules() if isinstance(m, _MATRICES)} - of_gates
    learned = [p for p in model.parameters() if p.requires_grad]
    if not learned:
        what = "one with parameters that require gradients"
        refuse("model", what, type(model).__name__, "parameter_groups")
    groups = [
        {"params": [p for p in learned if id(p) in matrices], "weight_decay": weight_decay},
        {"params": [p for p in learned if id(p) not in matrices], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]
