"""One sequence cut over the processes of a group: each holds a piece, in the order of the ranks.

    from ttr.torch.distributed import regress

    y = regress("gated_deltanet", q, k, v, log_decay=g, step=beta, group=group)   # of this piece
    y.sum().backward()

A piece changes the memory by an affine map, M_out = T(M_in) + S, whatever its length: T and S are
its summary. Every process computes its own from a memory of nothing, all gather all summaries, fold
those before their piece to the memory that it truly begins with, and run the piece once more from
there. Backward the gradients of these memories travel back the same way.
"""

from ._regress import refusal, regress, summary_bytes

__all__ = ["refusal", "regress", "summary_bytes"]
