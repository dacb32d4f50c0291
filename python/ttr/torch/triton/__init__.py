"""Kernels in Triton: exact least squares, the linear attention that it is made of, and step rules.

``Passes`` does on a GPU what ``ttr.torch.portable.passes`` does anywhere; ``Steps`` are the passes of
``ttr.torch.portable.step_rule``. ``decode`` does one token in one launch, ``local_calls`` local linear
regression.
"""

from . import decode, local_calls
from .passes import Passes
from .step_passes import Steps

__all__ = ["Passes", "Steps", "decode", "local_calls"]
