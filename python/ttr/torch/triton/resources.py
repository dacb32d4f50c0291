"""What kernels take of a GPU, by compilation alone: no GPU is needed.

    python -m ttr.torch.triton.resources          # a table: docs/performance/gpu.md has it

``recorded(call)`` lists what a call launches without running it; ``compiled(launch, capability)`` says
what a launch takes of registers, of the stack (spills) and of shared memory.
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

from ..portable.prefix_solve import Pairs
from . import launches as kernel_launches
from . import passes, step_passes


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

    with mock.patch.object(kernel_launches, "launch", note):
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


def launches(width: int) -> list[Launch]:
    """All kernels of exact least squares and of a step rule, forward and backward, of keys and values
    ``width`` wide in bfloat16 with decays; the solve twice, the second time with a ridge that stays."""
    heads, size = 2, 64
    rows = torch.zeros(1, 2 * size, heads, width, dtype=torch.bfloat16)
    numbers, state = torch.zeros(1, 2 * size, heads), torch.zeros(1, heads, width, width)
    pairs = Pairs(rows, rows, numbers, numbers)

    def call() -> None:
        made = passes.Passes(pairs, heads, (0, 2 * size), "after", size)
        sums, _ = made.sums(rows, state)
        x = made.prefixes(sums, None).solve(rows)
        made.prefixes(sums, torch.zeros(heads, width)).solve(rows)
        y = made.read(x, sums)
        made.read_back(y, sums)
        made.later_sums(x, x, state)
        made.gradients(x, x, y, sums, sums)
        steps = step_passes.Steps(pairs._replace(w=None), heads, (0, 2 * size), "after", size, False)
        d, sums, _ = steps.write(rows, state)
        dd, later, _ = steps.write_back(rows, rows, y, state)
        steps.of_written(rows, rows, y, d, dd, later)

    seen: dict[str, Launch] = {}
    for launch in recorded(call):
        seen.setdefault(title(launch), launch)
    return list(seen.values())


def title(launch: Launch) -> str:
    """A kernel's name, and which of its forms it is."""
    words = {"ACROSS": "back", "LATER": "later", "BACK": "back", "STAYS": "with a ridge that stays"}
    forms = [word for name, word in words.items() if launch.constants.get(name)]
    if launch.kernel.__name__ == "factor":
        forms = [f"{launch.constants['SIZE']} x {launch.constants['SIZE']}"]
    return " ".join([launch.kernel.__name__, *forms])


def table(widths: tuple[int, ...] = (64, 128), capabilities: tuple[int, ...] = (80, 90)) -> str:
    """As Markdown."""
    lines = [
        "| kernel | channels | sm | registers | stack, bytes | shared, bytes | warps |",
        "|---|---|---|---|---|---|---|",
    ]
    for width in widths:
        for launch in launches(width):
            for capability in capabilities:
                found = compiled(launch, capability)
                cells = (title(launch), width, capability, *dataclasses.astuple(found))
                lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(f"Triton {triton.__version__}\n\n{table()}", end="")
