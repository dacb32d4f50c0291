"""Every layer as a PyTorch operator, with gradients.

    import ttr.torch

    y = ttr.torch.regress("gated_deltanet", q, k, v, log_decay=g, step=beta)
    y, state = ttr.torch.regress("mesa", q, k, v, log_decay=g, importance=w, return_state=True)

On a CPU `regress` is one operator, `torch.ops.ttr.forward`, of the library's engines; it works under
`torch.compile`, `torch.export` and `torch.autocast`. Tensors on other devices take the chunked forms
of `ttr.torch.portable`. What stands around a memory is an operator, too: `short_conv`, `norm` and the
gates `decay_gate`, `step_gate` and `skip_gate`. `ttr.torch.functional` has the names that code for
GPUs already uses.
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if importlib.util.find_spec("torch") is None:
    raise ImportError("ttr.torch needs PyTorch 2.10 or newer: pip install torch")

from ._decoder import Decoder, decoder_bytes, step_
from ._gates import decay_gate, skip_gate, step_gate
from ._norm import norm
from ._pairs import reserve_pairs
from ._pool import StatePool
from ._regress import regress, regress_at
from ._retrieve import retrieve
from ._sequences import cu_seqlens_of
from ._short_conv import short_conv, short_conv_

if TYPE_CHECKING:
    from . import distributed, functional, nn, portable

#: Imported when they are first asked for.
_PARTS = ("distributed", "functional", "nn", "portable")

__all__ = [
    "Decoder",
    "StatePool",
    "cu_seqlens_of",
    "decay_gate",
    "decoder_bytes",
    "distributed",
    "functional",
    "nn",
    "norm",
    "portable",
    "regress",
    "regress_at",
    "reserve_pairs",
    "retrieve",
    "short_conv",
    "short_conv_",
    "skip_gate",
    "step_",
    "step_gate",
]


def __getattr__(name: str) -> Any:
    if name in _PARTS:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
