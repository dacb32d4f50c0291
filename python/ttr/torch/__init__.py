"""Every layer as a PyTorch operator, with gradients.

    import ttr.torch

    y = ttr.torch.regress("gated_deltanet", q, k, v, log_decay=g, step=beta)
    y, state = ttr.torch.regress("mesa", q, k, v, log_decay=g, importance=w, return_state=True)

On a CPU `regress` is one operator, `torch.ops.ttr.forward`, of the library's engines; it works under
`torch.compile`, `torch.export` and `torch.autocast`. Tensors on other devices take the chunked forms
of `ttr.torch.portable`. `ttr.torch.functional` has the names that code for GPUs already uses.
"""

from ._decoder import Decoder, decoder_bytes, step_
from ._regress import regress
from ._sequences import cu_seqlens_of

__all__ = ["Decoder", "cu_seqlens_of", "decoder_bytes", "regress", "step_"]
