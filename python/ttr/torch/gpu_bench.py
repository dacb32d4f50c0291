"""`python -m ttr.torch.gpu_bench`: the recipes on a GPU, their values, times and memory, in one command.

    python -m ttr.torch.gpu_bench                                  # tables, within 8 minutes
    python -m ttr.torch.gpu_bench --output docs/performance/gpu.md # the same into a file's tables
    python -m ttr.torch.gpu_bench --list                           # what it would run
    python -m ttr.torch.gpu_bench --only 'rls,64' --minutes 2      # some of it

Values: every recipe in float32 and bfloat16 against itself in float64, outputs and gradients. Times: one
sequence of 8192 tokens, 32 heads, bfloat16, forward and with the backward pass, medians, and the peak of
memory, beside the kernels of `fla` where it is installed; local linear regression forward (2048 tokens,
8 heads); one token of 8 sequences, by itself and in a CUDA graph. Limits: a copy's bandwidth and a product's rate.
Every run is a process of its own: one that fails leaves the others alone. They are compiled side by side
first, then timed one after another. What the time does not allow is said.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import datetime
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from ttr._files import refuse_unwritable, write_whole

TOKENS, HEADS, WIDTHS = 8192, 32, (64, 128)
#: Ours, by the recipe, then peers.
OURS = ("rls", "weighted_rls", "mesa", "mamba2", "gated_deltanet", "gla", "kda", "rwkv7", "decoupled_lms")
PEERS = ("fla gated_delta_rule", "fla simple_gla", "fla mesa_net", "fla gla", "fla kda")
#: Of which a single token is timed, too.
DECODED = ("rls", "mesa", "gated_deltanet", "kda")
#: (ours, the peer, times of it that are enough: forward and with backward, at each width)
GOALS: tuple[tuple[str, str, dict[int, float]], ...] = (
    ("rls", "fla gated_delta_rule", {64: 3.0, 128: 3.5}),
    ("weighted_rls", "fla gated_delta_rule", {}),
    ("mesa", "fla mesa_net", {64: 1.0, 128: 1.0}),
    ("mamba2", "fla simple_gla", {}),
    ("gated_deltanet", "fla gated_delta_rule", {64: 1.3, 128: 1.3}),
    ("gla", "fla gla", {}),
    ("kda", "fla kda", {}),
)
Result = dict[str, Any]


def tensors(width: int, tokens: int, heads: int, device: str) -> dict[str, Any]:
    """What the timed layers read; unit keys, and decays between .97 and 1."""
    import torch

    generator = torch.Generator(device).manual_seed(0)
    narrow = torch.bfloat16

    def draw(*shape: int) -> Any:
        return torch.randn(*shape, generator=generator, device=device)

    keys = torch.nn.functional.normalize(draw(1, tokens, heads, width), dim=-1)
    uniform = torch.rand(2, 1, tokens, heads, generator=generator, device=device)
    made = {
        "q": draw(1, tokens, heads, width).to(narrow),
        "k": keys.to(narrow),
        "v": draw(1, tokens, heads, width).to(narrow),
        "log_decay": (0.97 + 0.03 * uniform[0]).log(),
        "importance": uniform[1],
        "step": uniform[1].clone(),
        "weight_decay": 0.03 * uniform[0],
        "erase_key": keys.clone(),
        "erase_gate": torch.rand(1, tokens, heads, width, generator=generator, device=device),
        "channel_log_decay": (0.97 + 0.03 * torch.rand(1, tokens, heads, width, generator=generator, device=device)).log(),
        "ridge": torch.full((heads, width), 0.25, device=device),
    }
    return {name: x.requires_grad_() for name, x in made.items()}


def call(name: str, given: dict[str, Any]) -> tuple[Callable[[], Any], list[Any]]:
    """A layer's forward pass, and the tensors that it reads."""
    if name.startswith("fla "):
        return _peer(name, given)
    from ttr.torch.portable import gpu_library, regress

    gpu_library._kernel = lambda *_: None  # type: ignore[assignment]  # ours, not the peer's
    read = _inputs(name, given)
    return lambda: regress(name, **read), list(read.values())


def _inputs(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """What a recipe of ours reads, by its names."""
    import ttr

    read = {s["name"]: given[s["name"]] for s in ttr.input_specs(name) if s["name"] in given}
    if name != "mesa":
        read.pop("ridge", None)
    if ttr.Recipe(name).option("decay") == "channel":
        read["log_decay"] = given["channel_log_decay"]
    return read


def _peer(name: str, given: dict[str, Any]) -> tuple[Callable[[], Any], list[Any]]:
    """A kernel of fla. Before Triton 3.7.1 it refuses gradients under a decay on a Hopper, for their
    values; that is not asked here, where only its time is taken."""
    import importlib

    common = importlib.import_module("fla.ops.common.chunk_o")
    common.IS_NVIDIA_HOPPER = False  # type: ignore[attr-defined]
    kind = name.removeprefix("fla ")
    kernel = getattr(importlib.import_module(f"fla.ops.{kind}"), f"chunk_{kind}")
    words = {
        "gated_delta_rule": {"log_decay": "g", "step": "beta"},
        "simple_gla": {"log_decay": "g"},
        "mesa_net": {"log_decay": "g", "importance": "beta", "ridge": "lamb"},
        "gla": {"channel_log_decay": "g"},
        "kda": {"channel_log_decay": "g", "step": "beta"},
    }[kind]
    read = {"q": "q", "k": "k", "v": "v", **words}
    return lambda: kernel(**{w: given[n] for n, w in read.items()})[0], [given[n] for n in read]


def timed(name: str, width: int, tokens: int = TOKENS, heads: int = HEADS, device: str = "cuda") -> Result:
    """Milliseconds forward and with backward, and MiB at the most."""
    import torch

    given = tensors(width, tokens, heads, device)
    run, leaves = call(name, given)
    dy = torch.randn_like(given["v"])

    def train() -> None:
        torch.autograd.grad(run(), leaves, dy)

    with torch.no_grad():
        forward = _median(run, device)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    both = _median(train, device)
    peak = torch.cuda.max_memory_allocated() / 2**20 if device == "cuda" else 0.0
    return {"forward": forward, "both": both, "peak": peak}


def timed_forward(name: str, width: int, tokens: int = 2048, heads: int = 8, device: str = "cuda") -> Result:
    """Milliseconds of what has no kernel with gradients."""
    import torch

    run, _ = call(name, {n: x.detach() for n, x in tensors(width, tokens, heads, device).items()})
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    found = _median(run, device)
    peak = torch.cuda.max_memory_allocated() / 2**20 if device == "cuda" else 0.0
    return {"forward": found, "both": math.nan, "peak": peak}


def timed_token(name: str, width: int, heads: int = HEADS, device: str = "cuda") -> Result:
    """Microseconds of a token of 8 sequences, its state changed in place: by itself and in a CUDA graph."""
    import torch
    import ttr
    from ttr.torch.portable import in_place

    given = {n: x.detach() for n, x in _inputs(name, tensors(width, 8, heads, device)).items()}
    rows = {n: x if n == "ridge" else x.transpose(0, 1).contiguous() for n, x in given.items()}
    sizes = {"N": 8, "H": heads, "Dphi": width, "Dv": width}
    state = {s["name"]: torch.zeros([sizes[a] for a in s["shape"]], device=device) for s in ttr.state_specs(name)}
    if "state.a" in state:
        state["state.a"] += torch.eye(width, device=device)

    def run() -> None:
        for _ in range(100 if device == "cuda" else 1):
            in_place.step(name, rows, state)

    found = {"token": _median(run, device) * 10, "replayed": 0.0}
    if device == "cuda":
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
        found["replayed"] = _median(graph.replay, device) * 10
    return found


def _median(run: Callable[[], Any], device: str, repeats: int = 15) -> float:
    import torch

    for _ in range(2):
        run()
    times = []
    for _ in range(repeats if device == "cuda" else 1):
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        run()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def values(names: list[str], tokens: int = 150, width: int = 64, device: str = "cuda") -> Result:
    """The error of outputs and of gradients in float32 and bfloat16, as a share of their norms."""
    import torch

    worst: Result = {}
    for name in names:
        try:
            want = _run(name, tokens, width, torch.float64, torch.float64, "cpu")
            worst[name] = {
                word: _error(_run(name, tokens, width, narrow, torch.float32, device), want)
                for word, narrow in (("float32", torch.float32), ("bfloat16", torch.bfloat16))
            }
        except Exception as error:
            worst[name] = {"failed": str(error).splitlines()[0][:200]}
    return worst


def _run(name: str, tokens: int, width: int, narrow: Any, wide: Any, device: str) -> list[Any]:
    import torch
    import ttr
    from ttr.torch.portable import regress

    generator = torch.Generator().manual_seed(1)
    sizes = {"B": 1, "T": tokens, "H": 2, "Hq": 2, "Hk": 2, "Hv": 2, "Dk": width, "Dv": width, "F": 8, "1": 1}
    optimizer = ttr.Recipe(name).to_dict().get("optimizer", {})
    sizes["T n"] = tokens * (optimizer.get("steps", 1) if optimizer.get("optimizer") == "sgd" else 1)
    sizes["mini_batch"] = int(ttr.Recipe(name).option("mini_batch"))
    given = {}
    for spec in ttr.input_specs(name):
        if spec["name"] == "cu_seqlens":
            continue
        shape = [int(sizes[axis]) for axis in spec["shapes"][-1]]
        x = torch.randn(shape, generator=generator, dtype=torch.float64)
        u = torch.rand(shape, generator=generator, dtype=torch.float64)
        if spec["name"] == "k":
            x = torch.nn.functional.normalize(x, dim=-1)
        elif spec["name"] in ("log_decay", "a"):
            x = -0.05 * u
        elif spec["name"] not in ("q", "v", "v_im", "features.w", "features.b", "bonus"):
            x = u / 4 + 0.05
        # Numbers that bfloat16 has, so that all of them compute with what is equal.
        x = x.bfloat16()
        rows = spec["name"] in ("q", "k", "v")
        given[spec["name"].replace(".", "_")] = x.to(device, narrow if rows else wide).requires_grad_()
    y = regress(name, **given)
    weight = torch.randn(y.shape, generator=generator).bfloat16().to(device, y.dtype)
    gradients = torch.autograd.grad(y, [given[n] for n in ("q", "k", "v") if n in given], weight, allow_unused=True)
    return [x.double().cpu() for x in (y.detach(), *gradients) if x is not None]


def _error(got: list[Any], want: list[Any]) -> list[float]:
    return [float((x - y).norm() / y.norm().clamp(min=1e-300)) for x, y in zip(got, want)]


def limits(device: str = "cuda") -> Result:
    """What the machine can: terabytes a second of a copy, and 10^12 operations of a product."""
    import torch

    x = torch.empty(2**28, device=device)
    y = torch.empty_like(x)
    copy = _median(lambda: y.copy_(x), device)
    n = 8192
    a = torch.randn(n, n, device=device, dtype=torch.bfloat16)
    product = _median(lambda: a @ a, device)
    name = torch.cuda.get_device_name() if device == "cuda" else device
    return {
        "device": name,
        "torch": torch.__version__,
        "copy": 2 * x.numel() * 4 / copy / 1e9,
        "product": 2 * n**3 / product / 1e9,
    }


def jobs(only: str) -> list[str]:
    """The runs by name, the most wanted first."""
    names = ["limits"]
    names += [f"{kind},{width}" for kind in ("rls", PEERS[0]) for width in WIDTHS]
    names += [f"values,{part}" for part in range(8)]
    rest = [*OURS[1:], *PEERS[1:]]
    names += [f"{kind},{width}" for kind in rest for width in WIDTHS]
    names += [f"forward local_linear,{width}" for width in WIDTHS]
    names += [f"token {kind},{width}" for kind in DECODED for width in WIDTHS]
    return [name for name in names if re.search(only, name)]


def work(job: str, warm: bool) -> Result:
    """One run, in this process; ``warm``: what compiles its kernels alone."""
    import ttr

    kind, _, which = job.partition(",")
    if kind == "limits":
        return {} if warm else limits()
    if kind == "values":
        names = [name for n, name in enumerate(ttr.zoo()) if n % 8 == int(which)]
        return values(names) if warm or names else {}
    if kind.startswith("token "):
        return timed_token(kind.removeprefix("token "), int(which))
    if kind.startswith("forward "):
        return timed_forward(kind.removeprefix("forward "), int(which))
    return timed(kind, int(which), 256 if warm else TOKENS)


def _spawn(job: str, warm: bool, seconds: float) -> Result:
    command = [sys.executable, "-W", "ignore", "-m", "ttr.torch.gpu_bench", "--job", job]
    environment = {**os.environ, "TRITON_CACHE_AUTOTUNING": "1"}
    try:
        done = subprocess.run(
            command + ["--warm"] * warm, capture_output=True, text=True, timeout=max(1, seconds), env=environment
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"not done within {seconds:.0f} s"}
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["no word"])[-1][:200]}
    found: Result = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def run_all(only: str, minutes: float) -> dict[str, Result]:
    """Every run that fits into the time. Values are what their warming run found."""
    end = time.monotonic() + 60 * minutes
    names = jobs(only)
    results: dict[str, Result] = {}
    with concurrent.futures.ThreadPoolExecutor(max(1, (os.cpu_count() or 2) - 2)) as pool:
        share = 60 * minutes * 0.55
        warmed = {name: pool.submit(_spawn, name, True, share) for name in names}
        for name, future in warmed.items():
            found = future.result()
            print(f"compiled {name} {found.get('failed', '')}", file=sys.stderr, flush=True)
            if name.startswith("values"):
                results[name] = found
    for name in names:
        left = end - time.monotonic()
        if name in results:
            continue
        results[name] = _spawn(name, False, left) if left > 5 else {"failed": "no time was left"}
        print(f"timed {name} {results[name]}", file=sys.stderr, flush=True)
    return results


def tables(results: dict[str, Result]) -> str:
    """The results as Markdown."""
    machine = results.get("limits", {})
    lines = []
    if "device" in machine:
        lines += [
            f"{machine['device']}, PyTorch {machine['torch']}, {datetime.date.today()}. A copy moves "
            f"{machine['copy']:.1f} TB/s, a product of bfloat16 runs at {machine['product']:.0f} TFLOP/s.",
            "",
        ]
    lines += ["| layer, channels | forward, ms | with backward, ms | peak, MiB |", "|---|---|---|---|"]
    for name, found in results.items():
        if "forward" in found:
            both = "" if math.isnan(found["both"]) else f"{found['both']:.3f}"
            lines.append(f"| {name} | {found['forward']:.3f} | {both} | {found['peak']:.0f} |")
        elif "failed" in found:
            lines.append(f"| {name} | {found['failed']} | | |")
    lines += ["", "| layer over peer, channels | forward | with backward | memory | enough |", "|---|---|---|---|---|"]
    for ours, peer, enough in GOALS:
        for width in WIDTHS:
            a, b = (results.get(f"{kind},{width}", {}) for kind in (ours, peer))
            if "forward" in a and "forward" in b:
                ratios = " | ".join(f"{a[key] / b[key]:.2f}" for key in ("forward", "both", "peak"))
                lines.append(f"| {ours} over {peer}, {width} | {ratios} | {enough.get(width, '')} |")
    lines += ["", "| one token of 8 sequences, channels | us | us in a CUDA graph |", "|---|---|---|"]
    for name, found in results.items():
        if "token" in found:
            lines.append(f"| {name.removeprefix('token ')} | {found['token']:.1f} | {found['replayed']:.1f} |")
    lines += ["", "| recipe | float32: y, dq, dk, dv | bfloat16 |", "|---|---|---|"]
    for name, found in results.items():
        if name.startswith("values"):
            lines += [_value_row(*item) for item in sorted(found.items()) if isinstance(item[1], dict)]
    return "\n".join(lines) + "\n"


def _value_row(recipe: str, errors: Result) -> str:
    if "failed" in errors:
        return f"| {recipe} | {errors['failed']} | |"
    cells = (" ".join(f"{e:.0e}" for e in errors[kind]) for kind in ("float32", "bfloat16"))
    return f"| {recipe} | {' | '.join(cells)} |"


_MARKS = ("<!-- measured: begin -->", "<!-- measured: end -->")


def write(path: pathlib.Path, text: str) -> None:
    """Puts the tables between the marks of a document, or makes one."""
    begin, end = _MARKS
    head, rest = _around(path)
    write_whole(path, f"{head}{begin}\n\n{text}\n{end}{rest}")


def _around(path: pathlib.Path) -> tuple[str, str]:
    """What a document has before its first mark and behind the last one; ValueError without them."""
    begin, end = _MARKS
    old = path.read_text(encoding="utf-8") if path.exists() else f"{begin}\n{end}\n"
    head, found, rest = old.partition(begin)
    _, ended, rest = rest.partition(end)
    if not found or not ended:
        raise ValueError(f"--output must be a document with {begin} and {end}, or a new one, but is {path}")
    return head, rest


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m ttr.torch.gpu_bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=8, help="how long all may take (8)")
    parser.add_argument("--only", default="", help="runs whose name has this regular expression")
    parser.add_argument("--output", type=pathlib.Path, help="a document whose tables are replaced")
    parser.add_argument("--list", action="store_true", help="name the runs and stop")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    parser.add_argument("--warm", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.job:
        print(json.dumps(work(given.job, given.warm)))
        return
    if given.output:  # before minutes of work
        try:
            refuse_unwritable("--output", given.output)
            _around(given.output)
        except (OSError, ValueError) as error:
            parser.error(str(error))
    if given.list:
        print("\n".join(jobs(given.only)))
        return
    import torch

    if not torch.cuda.is_available():
        sys.exit("gpu_bench: there is no GPU; --list names what would be run on one")
    text = tables(run_all(given.only, given.minutes))
    print(text)
    if given.output:
        write(given.output, text)


if __name__ == "__main__":
    main()
