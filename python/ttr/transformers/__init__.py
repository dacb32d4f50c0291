"""Models of transformers on a CPU: the functions behind their linear memories, by ttr's engines.

    import ttr.transformers

    ttr.transformers.accelerate(model)      # this model's modelling module
    ttr.transformers.enable()               # all of them, also those imported later
    ttr.transformers.disable()              # as it was
    print(ttr.transformers.report())        # what was served, what was not, and why

The recurrent layers of transformers call functions of their modelling modules, the same ones under
the same names in all families. Each has a form in plain PyTorch for devices without kernels: a loop.
Here these names are bound to functions with the same contract on the engines, forward, backward and
token by token. Whatever ours does not take goes to the original.

    from ttr.transformers import TtrConfig, TtrForCausalLM

are models of any recipes (`ttr.transformers.models`): importing them tells AutoConfig and
AutoModelForCausalLM.
"""

import importlib
from typing import TYPE_CHECKING, Any

import ttr.torch  # noqa: F401 (says what is missing where PyTorch is)

from ._report import Report, Row, report
from ._switch import accelerate, accelerated, disable, enable

if TYPE_CHECKING:
    from .models import TtrConfig, TtrForCausalLM

__all__ = [
    "Report",
    "Row",
    "TtrConfig",
    "TtrForCausalLM",
    "accelerate",
    "accelerated",
    "disable",
    "enable",
    "report",
]


def __getattr__(name: str) -> Any:
    """Models need transformers, which is imported when one is first asked for."""
    if name in ("TtrConfig", "TtrForCausalLM"):
        return getattr(importlib.import_module(f"{__name__}.models"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
