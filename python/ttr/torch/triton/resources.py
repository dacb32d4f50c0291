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
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from ..portable.inputs import Call, gather
from ..portable.prefix_solve import Pairs
from ..portable.recipe import choices
from . import launches as kernel_launches
from . import decode, local_calls, passes, step_passes


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


_SIZE, _HEADS = 64, 2


def launches(width: int) -> dict[str, Launch]:
    """Kernels of keys and values ``width`` wide in bfloat16: exact least squares and a step rule with scalar
    decays, forward and backward, the solve twice, the second time with a ridge that stays; those that have
    other code where channels fade each for itself; a token of each kind; local linear
    regression, forward and backward."""
    rows = torch.zeros(1, 2 * _SIZE, _HEADS, width, dtype=torch.bfloat16)
    numbers = torch.zeros(1, 2 * _SIZE, _HEADS)
    seen: dict[str, Launch] = {}
    for launch in recorded(lambda: (_solves(rows, numbers), _steps(rows, numbers))):
        seen.setdefault(title(launch), launch)
    for launch in recorded(lambda: (_unread(rows), _steps(rows, rows.float()))):
        if launch.kernel.__name__ in _BY_CHANNEL:
            seen.setdefault(title(launch), launch)
    calls = [_call(recipe, width) for recipe in ("kda", "weighted_rls", "local_linear")]
    for launch in recorded(lambda: [decode.run(call) for call in calls[:2]]):
        seen.setdefault(f"{title(launch)}, one token", launch)
    for launch in recorded(lambda: _local(calls[2])):
        seen.setdefault(f"local linear, {launch.kernel.__name__}", launch)
    return seen


_BY_CHANNEL = ("scores", "read", "of_keys", "chain", "of_written")


def _local(call: Call) -> None:
    given = [x.requires_grad_() for x in call.tensors.values()]
    y = local_calls.run(call)
    torch.autograd.grad(y, given, torch.zeros_like(y))


def _passes(pairs: Pairs, made: Any, *more: bool) -> Any:
    return made(pairs, _HEADS, (0, 2 * _SIZE), "after", _SIZE, *more)


def _state(rows: Tensor) -> Tensor:
    return torch.zeros(1, _HEADS, rows.shape[-1], rows.shape[-1])


def _solves(rows: Tensor, numbers: Tensor) -> None:
    made = _passes(Pairs(rows, rows, numbers, numbers), passes.Passes)
    sums, _ = made.sums(rows, _state(rows))
    x = made.prefixes(sums, None).solve(rows)
    made.prefixes(sums, torch.zeros(_HEADS, rows.shape[-1])).solve(rows)
    y = made.read(x, sums)
    made.read_back(y, sums)
    made.later_sums(x, x, _state(rows))
    made.gradients(x, x, y, sums, sums)


def _unread(rows: Tensor) -> None:
    made = _passes(Pairs(rows, rows, None, rows.float()), passes.Passes)
    sums, _ = made.sums(rows, _state(rows))
    y = made.read(rows, sums)
    made.read_back(y, sums)
    made.gradients(rows, None, y, None, sums)


def _steps(rows: Tensor, g: Tensor) -> None:
    made = _passes(Pairs(rows, rows, None, g), step_passes.Steps, False)
    d, sums, _ = made.write(rows, _state(rows))
    dd, later, _ = made.write_back(rows, rows, rows, _state(rows))
    made.of_written(rows, rows, rows, d, dd, later)


def _call(recipe: str, width: int) -> Call:
    """One token, with a state where the recipe's has one of numbers."""
    found = choices(recipe)
    sizes = {"B": 1, "N": 1, "T": 1, "T n": 1, "Dk": width, "Dv": width, "Dphi": width}

    def zeros(axes: tuple[str, ...], dtype: torch.dtype) -> Tensor:
        return torch.zeros([sizes.get(axis, _HEADS) for axis in axes], dtype=dtype)

    given = {
        i.argument: zeros(i.shapes[-1], torch.bfloat16 if i.argument in "qkv" else torch.float32)
        for i in found.inputs
        if i.name != "cu_seqlens"
    }
    state = {e.name: zeros(e.shape, torch.float32) for e in found.state if "S" not in e.shape}
    return gather(found, given, state if "state" in state else {})


def title(launch: Launch) -> str:
    """A kernel's name, and which of its forms it is."""
    words = {"ACROSS": "back", "LATER": "later", "BACK": "back", "STAYS": "with a ridge that stays"}
    forms = [word for name, word in words.items() if launch.constants.get(name)]
    if launch.kernel.__name__ == "factor":
        forms = [f"{launch.constants['SIZE']} x {launch.constants['SIZE']}"]
    if launch.constants.get("FADES") == 2 or launch.kernel.__name__ == "scores":
        forms.append("by channel")
    return " ".join([launch.kernel.__name__, *forms])


def table(widths: tuple[int, ...] = (64, 128), capabilities: tuple[int, ...] = (80, 90)) -> str:
    """As Markdown."""
    lines = [
        "| kernel | channels | sm | registers | stack, bytes | shared, bytes | warps |",
        "|---|---|---|---|---|---|---|",
    ]
    for width in widths:
        for name, launch in launches(width).items():
            for capability in capabilities:
                found = compiled(launch, capability)
                cells = (name, width, capability, *dataclasses.astuple(found))
                lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(f"Triton {triton.__version__}\n\n{table()}", end="")
