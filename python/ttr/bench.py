"""`python -m ttr.bench`: the PyTorch operators beside what they replace, in one run.

    python -m ttr.bench                      # every row, as a table
    python -m ttr.bench --rows forward,tiny --json figures.json

One thread. A row times its runs in turn, so that all of them see the same machine, and takes the
median of each; a ratio is the peer's median over ours. What the project asks of itself is in the
JSON alone. Every row is taken twice: with the allocator
as it is, and with one (glibc's, by its environment) that gives no memory back to the system, where
peers that allocate much do not wait for pages.

The peer of the gated delta rule is the fallback of transformers where that can be imported, else the
same chunked form written here in PyTorch's operators (`ttr.torch._peers`).
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from ttr import _markdown
from ttr._files import refuse_unwritable, write_whole
from ttr._names import hint

HEADS, DIM = 32, 128
TUNED = {
    "MALLOC_MMAP_THRESHOLD_": str(2**40),
    "MALLOC_TRIM_THRESHOLD_": str(2**40),
    "MALLOC_TOP_PAD_": str(2**28),
}
Runs = dict[str, Callable[[], Any]]
Row = dict[str, Any]
Rows = dict[str, Callable[[bool], Iterator[Row]]]


def medians(runs: Runs, repeats: int, calls: int = 1) -> dict[str, float]:
    """The median time of a call of each, in seconds, all of them in turn."""
    for run in runs.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            gc.collect()
            start = time.perf_counter()
            for _ in range(calls):
                run()
            times[name].append((time.perf_counter() - start) / calls)
    return {name: sorted(taken)[len(taken) // 2] for name, taken in times.items()}


def row(title: str, seconds: dict[str, float], unit: str, scale: float, limits: str) -> Row:
    """The first run is ours; ratios are the others' times over it."""
    ours, *_ = seconds
    return {
        "row": title,
        "unit": unit,
        "times": {name: s * scale for name, s in seconds.items()},
        "ratios": {name: s / seconds[ours] for name, s in seconds.items() if name != ours},
        "must / aim": limits,
    }


def draw(tokens: int, dtype: str = "float32", grad: bool = False, dim: int = DIM) -> dict[str, Any]:
    """Inputs of a gated delta rule; gates stay float32."""
    import torch

    torch.manual_seed(0)
    heads = HEADS if dim == DIM else 1
    shape = (1, tokens, heads, dim)
    unit = torch.nn.functional.normalize
    rows = [torch.randn(shape), unit(torch.randn(shape), dim=-1), torch.randn(shape)]
    q, k, v = (x.to(getattr(torch, dtype)) for x in rows)
    inputs = {"q": q, "k": k, "v": v, "log_decay": -0.1 * torch.rand(shape[:3])}
    inputs["step"] = torch.rand(shape[:3])
    return {name: x.requires_grad_(grad) for name, x in inputs.items()}


def ours(inputs: dict[str, Any], **options: Any) -> Any:
    from ttr.torch import regress

    return regress("gated_deltanet{scale: rsqrt_dk}", **inputs, **options)


def peer() -> tuple[str, Callable[[dict[str, Any]], Any]]:
    from ttr.torch import _peers

    theirs = _peers.of_transformers()
    name = "transformers' fallback" if theirs else "PyTorch operators, chunk by chunk"
    function = theirs or _peers.chunk_by_chunk
    return name, lambda inputs: function(*inputs.values())


def forward_rows(quick: bool) -> Iterator[Row]:
    import torch

    name, theirs = peer()
    for tokens in (512, 2048):
        inputs = draw(tokens)
        scale = 1e9 / tokens / HEADS
        y, state = ours(inputs, return_state=True)
        y2, state2 = theirs(inputs)
        torch.testing.assert_close(y, y2, rtol=2e-3, atol=2e-3)
        torch.testing.assert_close(state, {"state": state2}, rtol=2e-3, atol=2e-3)
        runs: Runs = {"ttr": lambda: ours(inputs), name: lambda: theirs(inputs)}
        seconds = medians(runs, 3 if quick else 7)
        limits = "6 / 12; tuned 4 / 8" if tokens == 2048 else "-"
        yield row(f"gated delta rule, T = {tokens}", seconds, "ns a token and head", scale, limits)


def bfloat16_rows(quick: bool) -> Iterator[Row]:
    name, theirs = peer()
    inputs = draw(2048, "bfloat16")
    runs: Runs = {
        "ttr": lambda: ours(inputs, bfloat16_products=True),
        name: lambda: theirs(inputs),
        "ttr, products of float32": lambda: ours(inputs),
    }
    seconds = medians(runs, 3 if quick else 7)
    scale = 1e9 / 2048 / HEADS
    limits = "4 / 10; tuned 3 / 7"
    yield row("the same, bfloat16, T = 2048", seconds, "ns a token and head", scale, limits)


def backward_rows(quick: bool) -> Iterator[Row]:
    name, theirs = peer()
    for tokens in (2048,) if quick else (2048, 8192):
        inputs = draw(tokens, grad=True)

        def train(layer: Callable[..., Any], inputs: Any = inputs) -> None:
            for tensor in inputs.values():
                tensor.grad = None
            y = layer(inputs)
            (y[0] if isinstance(y, tuple) else y).sum().backward()

        runs: Runs = {"ttr": lambda: train(ours), name: lambda: train(theirs)}
        seconds = medians(runs, 3 if tokens == 2048 else 1)
        scale = 1e9 / tokens / HEADS
        limits = "10 / 25; tuned 5 / 12" if tokens == 2048 else "25 / 80; tuned 8 / 15"
        title = f"with backward, T = {tokens}"
        yield row(title, seconds, "ns a token and head", scale, limits)


def operator_rows(quick: bool) -> Iterator[Row]:
    """Times over those of the library's own face for NumPy, whose outputs lie ready."""
    import numpy
    import ttr

    inputs = draw(2048)
    arrays = {name: tensor.numpy() for name, tensor in inputs.items()}
    out = {"y": numpy.zeros(inputs["v"].shape, numpy.float32)}
    layer = ttr.Layer("gated_deltanet{scale: rsqrt_dk}")
    runs: Runs = {
        "Layer.forward": lambda: layer.forward(**arrays, out=out, threads=1),
        "operator": lambda: ours(inputs),
        "operator and final state": lambda: ours(inputs, return_state=True),
    }
    seconds = medians(runs, 5 if quick else 15)
    yield row("operator over Layer.forward, T = 2048", seconds, "ms", 1e3, "1.05 / 1.02")


def tiny_rows(quick: bool) -> Iterator[Row]:
    """T = 1, one head, d = 4: what a call costs, beside PyTorch's calls that do nothing."""
    import torch
    from ttr.torch import _peers

    repeats, calls = (5, 500) if quick else (25, 1000)
    plain, inputs = draw(1, dim=4), draw(1, dim=4, grad=True)
    tensors = list(inputs.values())
    ones = torch.ones(1, 1, 1, 4)

    def differentiate(y: Any) -> None:
        torch.autograd.grad(y, tensors, ones)

    dispatch = torch.ops.ttr.most_differences.default
    runs: Runs = {
        "ttr": lambda: ours(plain),
        "an operator that returns a number": lambda: dispatch(),
        "torch.add": lambda: torch.add(plain["q"], plain["k"]),
    }
    yield row("a call", medians(runs, repeats, calls), "us", 1e6, "8 / 5 us")
    runs = {
        "ttr": lambda: differentiate(ours(inputs)),
        "torch.autograd.Function that copies": lambda: differentiate(
            _peers.Nothing.apply(*tensors)  # type: ignore[no-untyped-call]
        ),
    }
    seconds = medians(runs, repeats, calls // 5)
    yield row("a call with gradients", seconds, "us", 1e6, "45 / 20 us")


def decode_rows(quick: bool) -> Iterator[Row]:
    import ttr
    import ttr.torch

    inputs = draw(1)
    arrays = {name: tensor.numpy() for name, tensor in inputs.items()}
    text = "gated_deltanet{scale: rsqrt_dk}"
    numpy = ttr.Decoder(ttr.Layer(text), batch=1, heads=HEADS, key_dim=DIM, value_dim=DIM)
    decoder = ttr.torch.Decoder(text)
    state = ttr.torch.regress(text, **inputs, return_state=True)[1]
    runs: Runs = {
        "ttr.Decoder (NumPy)": lambda: numpy.step(**arrays, threads=1),
        "ttr.torch.Decoder": lambda: decoder.step(**inputs),
        "step_ on a state": lambda: ttr.torch.step_(text, state, **inputs),
    }
    seconds = medians(runs, 5 if quick else 15, 200)
    yield row("a decoded token, 32 heads", seconds, "us", 1e6, "1.3 / 1.1")


def portable_rows(quick: bool) -> Iterator[Row]:
    """Exact least squares on the road for other devices, beside a system for every token there and
    beside the CPU's engine."""
    from unittest import mock

    import torch
    from ttr.torch import regress
    from ttr.torch.portable import least_squares
    from ttr.torch.portable import regress as portable

    def by_token(recipe: str, **inputs: Any) -> Any:
        with mock.patch.object(least_squares, "_nested", lambda call: False):
            return portable(recipe, **inputs)

    tokens, heads, dim = 1024, 8, 64
    torch.manual_seed(0)
    rows = [torch.randn(1, tokens, heads, dim) for _ in range(3)]
    rows[1] = torch.nn.functional.normalize(rows[1], dim=-1)
    weights = {
        "log_decay": (0.97 + 0.03 * torch.rand(1, tokens, heads)).log(),
        "importance": torch.rand(1, tokens, heads),
    }
    roads = {"portable": portable, "a system for every token": by_token, "the CPU's engine": regress}
    for recipe, gates in (("rls", {}), ("mesa", weights)):
        for trains in (False, True):
            q, k, v = (x.clone().requires_grad_(trains) for x in rows)
            inputs = {"q": q, "k": k, "v": v, **gates}

            def run(road: Callable[..., Any], recipe: str = recipe, inputs: Any = inputs) -> None:
                y = road(recipe, **inputs)
                if y.requires_grad:
                    torch.autograd.grad(y.sum(), [inputs[n] for n in "qkv"])

            runs: Runs = {name: partial(run, road) for name, road in roads.items()}
            seconds = medians(runs, 1 if quick else 5)
            title = f"{recipe}, portable{', with backward' if trains else ''}, T = {tokens}"
            scale = 1e6 / tokens / heads
            yield row(title, seconds, "us a token and head", scale, "8 / 20" if recipe == "rls" else "-")


def layer_rows(quick: bool) -> Iterator[Row]:
    from ttr.torch import _layer_bench

    return _layer_bench.rows(quick)


ROWS: Rows = {
    "forward": forward_rows,
    "bfloat16": bfloat16_rows,
    "backward": backward_rows,
    "layer": layer_rows,
    "operator": operator_rows,
    "tiny": tiny_rows,
    "decode": decode_rows,
    "portable": portable_rows,
}


def measure(rows: Rows, names: list[str], quick: bool) -> list[Row]:
    """The rows, in this process with its allocator."""
    import torch

    torch.set_num_threads(1)
    return [found for name in names for found in rows[name](quick)]


def measure_tuned(program: str, names: list[str], quick: bool) -> list[Row]:
    """The rows, in a process whose allocator keeps what it has."""
    command = [sys.executable, "-m", program, "--rows", ",".join(names), "--only", "default"]
    command += ["--json", "-"] + (["--quick"] if quick else [])
    done = subprocess.run(command, env=os.environ | TUNED, check=True, stdout=subprocess.PIPE)
    found: list[Row] = json.loads(done.stdout)["default"]
    return found


def table(results: dict[str, list[Row]]) -> str:
    text = ""
    for allocator, rows in results.items():
        cells = []
        for r in rows:
            times = "; ".join(f"{name} {value:.4g}" for name, value in r["times"].items())
            ratios = "; ".join(f"{value:.3g}" for value in r["ratios"].values())
            cells.append([r["row"], r["unit"], times, ratios])
        shown = _markdown.table(["work", "unit", "times", "ratio"], cells)
        text += f"Allocator: {allocator}\n\n{shown}\n\n"
    return text


def main(rows: Rows = ROWS, program: str = "ttr.bench", description: str | None = __doc__) -> None:
    """A program of rows; another one, `python -m program`, hands in its own."""
    first = (description or "").split("\n")[0]
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=first)
    parser.add_argument("--rows", default=",".join(rows), help=f"of {', '.join(rows)}")
    parser.add_argument("--json", metavar="FILE", help="figures into FILE; -: instead of the table")
    parser.add_argument("--quick", action="store_true", help="few repeats, no longest sequences")
    parser.add_argument("--only", choices=["default", "tuned"], help="one allocator, not both")
    options = parser.parse_args()
    names = options.rows.split(",")
    if unknown := [name for name in names if name not in rows]:
        meant = hint(unknown[0], rows)
        parser.error(f"--rows must be of {', '.join(rows)} but has '{unknown[0]}'{meant}")
    if options.json not in (None, "-"):
        try:
            refuse_unwritable("--json", Path(options.json))
        except ValueError as error:
            parser.error(str(error))
    results: dict[str, list[Row]] = {}
    if options.only != "tuned":
        results["default"] = measure(rows, names, options.quick)
    if options.only != "default":
        results["tuned"] = measure_tuned(program, names, options.quick)
    text = json.dumps(results, indent=1)
    if options.json == "-":
        print(text)
        return
    if options.json:
        write_whole(Path(options.json), text + "\n")
    print(table(results), end="")


if __name__ == "__main__":
    main()
