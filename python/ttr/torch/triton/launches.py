"""Launches of kernels, all through one door, so that they can be listed and compiled without a GPU."""

from __future__ import annotations

from typing import Any


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
    """A kernel over a grid; nothing where the grid is empty. Positional arguments are tensors and
    numbers; named ones the kernel's constants and options of the compiler."""
    if all(grid):
        kernel[grid](*arguments, **constants)
