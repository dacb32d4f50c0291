"""Launches of kernels, all through one door, so that they can be listed and compiled without a GPU."""

from __future__ import annotations

import contextlib
from typing import Any

import torch


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
    """A kernel over a grid, on the device of its tensors; nothing where the grid is empty. Positional
    arguments are tensors and numbers; named ones the kernel's constants and options of the compiler."""
    if not all(grid):
        return
    device = next(x.device for x in arguments if isinstance(x, torch.Tensor))
    with torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext():
        kernel[grid](*arguments, **constants)
