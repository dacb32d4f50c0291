"""What kernels take of a GPU, by compilation alone: no GPU is needed.

``compiled(launches, capability)`` gives registers, spills and shared memory of every launch that a
call made; ``recorded(call)`` lists these without running them.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
import subprocess
import tempfile
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from . import passes


@dataclasses.dataclass(frozen=True)
class Launch:
    kernel: Any
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    constants: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Resources:
    """Registers a thread, bytes of its stack (spills), bytes of shared memory a program, warps."""

    registers: int
    stack: int
    shared: int
    warps: int


def recorded(call: Callable[[], object]) -> list[Launch]:
    """The launches of a call, none of which runs."""
    launches: list[Launch] = []

    def note(kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
        launches.append(Launch(kernel, grid, arguments, constants))

    with mock.patch.object(passes, "launch", note):
        call()
    return launches


_TYPES = {
    torch.float32: "*fp32",
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.int32: "*i32",
    torch.int64: "*i64",
}


def compiled(launch: Launch, capability: int) -> Resources:
    """What a launch takes on GPUs of a compute capability (80, 90)."""
    names = launch.kernel.arg_names
    signature, constants, attributes = {}, {}, {}
    options = {n: v for n, v in launch.constants.items() if n not in names}
    given = dict(zip(names, launch.arguments)) | {
        n: v for n, v in launch.constants.items() if n in names
    }
    for index, name in enumerate(names):
        value = given[name]
        if isinstance(value, torch.Tensor):
            signature[name] = _TYPES[value.dtype]
            attributes[(index,)] = [["tt.divisibility", 16]]
        elif isinstance(value, int) and name not in launch.constants:
            signature[name] = "i32"
        elif isinstance(value, float):
            signature[name] = "fp32"
        else:
            signature[name], constants[name] = "constexpr", value
    source = ASTSource(launch.kernel, signature, constants, attributes)
    made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    registers, stack = _usage(made.asm["cubin"])
    return Resources(registers, stack, made.metadata.shared, made.metadata.num_warps)


def _usage(cubin: bytes) -> tuple[int, int]:
    tool = pathlib.Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", text)
    assert found is not None, text
    return int(found[1]), int(found[2])
