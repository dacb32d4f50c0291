"""Kernels in Triton: exact least squares, and the linear attention that it is made of.

``Passes`` does on a GPU what ``ttr.torch.portable.passes`` does anywhere.
"""

from .passes import Passes

__all__ = ["Passes"]
