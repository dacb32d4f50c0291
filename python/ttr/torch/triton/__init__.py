"""Exact least squares on a GPU: kernels in Triton."""
