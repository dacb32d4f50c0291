"""`python -m ttr.torch.gpu_bench`: the recipes on a GPU, their values, times and memory, in one command.

    python -m ttr.torch.gpu_bench                                  # tables, within 8 minutes
    python -m ttr.torch.gpu_bench --output docs/performance/gpu.md # the same into a file's tables
    python -m ttr.torch.gpu_bench --list                           # what it would run
    python -m ttr.torch.gpu_bench --only 'rls,64' --minutes 2      # some of it

Values: every recipe in float32 and bfloat16 against itself in float64, outputs and gradients. Times: one
sequence of 8192 tokens, 32 heads, bfloat16, forward and with the backward pass, medians, and the peak of
memory, beside the kernels of `fla` where it is installed; local linear regression of 2048 tokens and 8
heads; one token of 8 sequences, by itself and in a CUDA graph. Limits: a copy's bandwidth and a product's rate.
Every run is a process of its own: one that fails leaves the others alone. They are compiled side by side
first, then timed one after another. What the time does not allow is said.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import time

from ttr import _markdown
from ttr._files import refuse_unwritable, write_whole

from ._gpu_runs import TOKENS, Result, limits, timed, timed_token, values

WIDTHS = (64, 128)
#: Ours, by the recipe, then peers.
OURS = ("rls", "weighted_rls", "mesa", "mamba2", "gated_deltanet", "gla", "kda", "rwkv7", "decoupled_lms")
PEERS = ("fla gated_delta_rule", "fla simple_gla", "fla mesa_net", "fla gla", "fla kda")
#: Layers of which a token takes time in proportion to those before it.
QUADRATIC = ("local_linear",)
#: Layers of which a single token is timed, too.
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


def jobs(only: str) -> list[str]:
    """The runs by name, the most wanted first."""
    names = ["limits"]
    names += [f"{kind},{width}" for kind in ("rls", PEERS[0]) for width in WIDTHS]
    names += [f"values,{part}" for part in range(8)]
    rest = [*OURS[1:], *PEERS[1:]]
    names += [f"{kind},{width}" for kind in rest for width in WIDTHS]
    names += [f"{kind},{width}" for kind in QUADRATIC for width in WIDTHS]
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
    if kind in QUADRATIC:
        return timed(kind, int(which), 256 if warm else 2048, 8)
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
    lines += [_times(results), "", _ratios(results), "", _tokens(results), "", _values(results), ""]
    return "\n".join(lines)


def _times(results: dict[str, Result]) -> str:
    rows = []
    for name, found in results.items():
        if "forward" in found:
            rows.append([name, f"{found['forward']:.3f}", f"{found['both']:.3f}", f"{found['peak']:.0f}"])
        elif "failed" in found:
            rows.append([name, found["failed"]])
    return _markdown.table(["layer, channels", "forward, ms", "with backward, ms", "peak, MiB"], rows)


def _ratios(results: dict[str, Result]) -> str:
    rows = []
    for ours, peer, enough in GOALS:
        for width in WIDTHS:
            a, b = (results.get(f"{kind},{width}", {}) for kind in (ours, peer))
            if "forward" in a and "forward" in b:
                ratios = (f"{a[key] / b[key]:.2f}" for key in ("forward", "both", "peak"))
                rows.append([f"{ours} over {peer}, {width}", *ratios, str(enough.get(width, ""))])
    return _markdown.table(["layer over peer, channels", "forward", "with backward", "memory", "enough"], rows)


def _tokens(results: dict[str, Result]) -> str:
    rows = [
        [name.removeprefix("token "), f"{found['token']:.1f}", f"{found['replayed']:.1f}"]
        for name, found in results.items()
        if "token" in found
    ]
    return _markdown.table(["one token of 8 sequences, channels", "us", "us in a CUDA graph"], rows)


def _values(results: dict[str, Result]) -> str:
    rows = []
    for name, found in results.items():
        if name.startswith("values"):
            rows += [_value_row(*item) for item in sorted(found.items()) if isinstance(item[1], dict)]
    return _markdown.table(["recipe", "float32: y, dq, dk, dv", "bfloat16"], rows)


def _value_row(recipe: str, errors: Result) -> list[str]:
    if "failed" in errors:
        return [recipe, errors["failed"]]
    return [recipe, *(" ".join(f"{e:.0e}" for e in errors[kind]) for kind in ("float32", "bfloat16"))]


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
