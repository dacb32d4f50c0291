"""Times the PyTorch operators beside what models run today: python -m ttr.bench

Every row is one work, done by ttr and by a named peer in turns in one run; the table has medians over
the rounds and how many times the time of ttr the peer takes. Answers are compared before anything is
timed. The gated delta rule has as its peer the function that Hugging Face transformers runs on a CPU,
where transformers is installed, else the chunked form of ttr.torch.portable.

Large temporaries make PyTorch wait for pages of memory that malloc gives back after every use. The
same works run twice, each time in a process of its own: with malloc as it is, and tuned to keep what
it has (MALLOC_MMAP_THRESHOLD_, MALLOC_TRIM_THRESHOLD_ of glibc).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import ttr
import ttr.torch
from torch import Tensor
from ttr.torch import functional

Run = Callable[[], Any]
TUNED = {"MALLOC_MMAP_THRESHOLD_": str(1 << 32), "MALLOC_TRIM_THRESHOLD_": str(1 << 34)}
RULE = "gated_deltanet{normalise_qk: true}"


class Work(NamedTuple):
    """A row: what is done, by whom else, and in what its times are told."""

    name: str
    peer_name: str
    own: Run
    peer: Run
    unit: str  # "ns": of a token and head; "us": of a call
    units: float  # tokens and heads of a call


def rows(tokens: int, heads: int, dim: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """q, k, v, log decay and step, the gates in float32."""
    generator = torch.Generator().manual_seed(0)
    qkv = [torch.randn(1, tokens, heads, dim, generator=generator).to(dtype) for _ in range(3)]
    decay = -torch.rand(1, tokens, heads, generator=generator)
    return [*qkv, decay, torch.rand(1, tokens, heads, generator=generator)]


def chunk_rule() -> tuple[str, Callable[..., Any]]:
    """The peer of whole sequences: (q, k, v, g, beta) -> y."""
    try:
        from transformers.models.qwen3_next import modeling_qwen3_next as model
    except ImportError:
        from ttr.torch import portable

        return "ttr.torch.portable", lambda q, k, v, g, beta: portable.regress(
            f"gated_deltanet{{normalise_qk: true, scale: {q.shape[-1] ** -0.5}}}", q, k, v,
            log_decay=g, step=beta
        )
    function = model.torch_chunk_gated_delta_rule
    function = getattr(function, "__wrapped__", function)
    return "transformers", lambda q, k, v, g, beta: function(
        q, k, v, g, beta, use_qk_l2norm_in_kernel=True
    )[0]


def own_rule(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
    y: Tensor = functional.chunk_gated_delta_rule(q, k, v, g, beta, use_qk_l2norm_in_kernel=True)[0]
    return y


def forward_and_backward(rule: Callable[..., Tensor], inputs: list[Tensor]) -> Run:
    leaves = [t.detach().clone().requires_grad_() for t in inputs]
    dy = torch.ones_like(inputs[2])

    def run() -> Any:
        return torch.autograd.grad(rule(*leaves), leaves, dy)

    return run


def sequences(long: bool) -> Iterator[Work]:
    """The gated delta rule, 32 heads, d = 128."""
    name, rule = chunk_rule()
    heads, dim = 32, 128
    for dtype in (torch.float32, torch.bfloat16):
        inputs = rows(2048, heads, dim, dtype)
        label = f"gated delta rule, T = 2048, {str(dtype).split('.')[1]}"
        run = {"own": own_rule, "peer": rule}
        calls = {who: (lambda f=f, x=inputs: f(*x)) for who, f in run.items()}
        yield Work(label, name, calls["own"], calls["peer"], "ns", 2048 * heads)
    for tokens in (2048, 8192) if long else (2048,):
        inputs = rows(tokens, heads, dim)
        yield Work(f"the same with backward, T = {tokens}, float32", name,
                   forward_and_backward(own_rule, inputs), forward_and_backward(rule, inputs),
                   "ns", tokens * heads)  # fmt: skip


def operator() -> Work:
    """What PyTorch costs over the library: NumPy's layer has the least between."""
    inputs = rows(2048, 32, 128)
    names = ("q", "k", "v", "log_decay", "step")
    arrays = {name: t.numpy() for name, t in zip(names, inputs)}
    layer, out = ttr.Layer(RULE), torch.empty_like(inputs[2]).numpy()
    q, k, v, g, beta = inputs
    return Work("operator, T = 2048", "Layer.forward on NumPy",
                lambda: ttr.torch.regress(RULE, q, k, v, log_decay=g, step=beta),
                lambda: layer.forward(**arrays, out={"y": out})[0], "ns", 2048 * 32)  # fmt: skip


class _Bare(torch.autograd.Function):
    """Five inputs and no arithmetic: what PyTorch takes of itself."""

    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> Tensor:
        ctx.save_for_backward(*tensors)
        return torch.empty_like(tensors[2])

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        return tuple(torch.empty_like(t) for t in ctx.saved_tensors)


def small_calls() -> Iterator[Work]:
    """Tiny shapes: what a call costs beside its work."""
    tiny = rows(1, 1, 4)
    q, k, v, g, beta = tiny
    yield Work("a call, tiny", "torch.add",
               lambda: ttr.torch.regress(RULE, q, k, v, log_decay=g, step=beta),
               lambda: torch.add(q, k), "us", 1)  # fmt: skip

    def rule(*x: Tensor) -> Tensor:
        y: Tensor = ttr.torch.regress(RULE, *x[:3], log_decay=x[3], step=x[4])
        return y

    bare: Callable[..., Tensor] = _Bare.apply
    yield Work("a call with backward, tiny", "an empty autograd.Function",
               forward_and_backward(rule, tiny), forward_and_backward(bare, tiny),
               "us", 1)  # fmt: skip


def decode() -> Iterator[Work]:
    """One token, 32 heads, d = 128: 2 MB of states."""
    token = rows(1, 32, 128)
    q, k, v, g, beta = token
    names = ("q", "k", "v", "log_decay", "step")
    arrays = {name: t.numpy() for name, t in zip(names, token)}
    decoder = ttr.torch.Decoder(RULE)
    lower = ttr.Decoder(RULE, heads=32, key_dim=128, value_dim=128)
    step: Run = lambda: decoder.step(q, k, v, log_decay=g, step=beta)  # noqa: E731
    yield Work("decode, one token", "Decoder.step on NumPy", step,
               lambda: lower.step(**arrays), "ns", 32)  # fmt: skip
    try:
        from transformers.models.qwen3_next import modeling_qwen3_next as model
    except ImportError:
        return
    function = model.torch_recurrent_gated_delta_rule
    function = getattr(function, "__wrapped__", function)
    state = torch.zeros(1, 32, 128, 128)
    yield Work("decode, one token", "transformers", step,
               lambda: function(q, k, v, g, beta, initial_state=state, output_final_state=True,
                                use_qk_l2norm_in_kernel=True), "ns", 32)  # fmt: skip


def works(long: bool) -> Iterator[Work]:
    yield from sequences(long)
    yield operator()
    yield from small_calls()
    yield from decode()


def seconds(run: Run, repeats: int) -> float:
    begin = time.perf_counter()
    for _ in range(repeats):
        run()
    return (time.perf_counter() - begin) / repeats


def agree(work: Work) -> None:
    """Compares answers where both compute the same."""
    if work.unit == "us" or work.name.startswith("decode"):
        return
    own, peer = work.own(), work.peer()
    for x, y in zip(own if isinstance(own, tuple) else [own], peer if isinstance(peer, tuple) else [peer]):
        x, y = torch.as_tensor(x).double(), torch.as_tensor(y).double()
        error = (x - y).abs().max() / y.abs().max()
        if error > (5e-2 if "bfloat16" in work.name else 1e-3):
            raise SystemExit(f"ttr.bench: {work.name}: {work.peer_name} answers differently, by {error:.1e}")


def measure(work: Work, rounds: int) -> dict[str, Any]:
    agree(work)
    repeats = [max(1, int(0.05 / max(seconds(run, 1), 1e-7))) for run in (work.own, work.peer)]
    times: list[list[float]] = [[], []]
    for _ in range(rounds):
        for taken, run, count in zip(times, (work.own, work.peer), repeats):
            taken.append(seconds(run, count))
    factor = (1e9 if work.unit == "ns" else 1e6) / work.units
    own, peer = (statistics.median(taken) * factor for taken in times)
    return {"work": work.name, "peer": work.peer_name, "unit": work.unit,
            "ttr": own, "peer time": peer, "ratio": peer / own}  # fmt: skip


def measure_all(options: argparse.Namespace) -> list[dict[str, Any]]:
    torch.set_num_threads(options.threads)
    results = []
    for work in works(options.long):
        print(f"  {work.name}, beside {work.peer_name}", file=sys.stderr)
        results.append(measure(work, options.rounds))
    return results


def child(options: argparse.Namespace, tuned: bool) -> list[dict[str, Any]]:
    """The same in a process of its own."""
    print("malloc tuned:" if tuned else "malloc as it is:", file=sys.stderr)
    command = [sys.executable, "-m", "ttr.bench", "--child", "--rounds", str(options.rounds),
               "--threads", str(options.threads)]  # fmt: skip
    command += ["--long"] if options.long else []
    environment = {**os.environ, "TTR_THREADS": str(options.threads), **(TUNED if tuned else {})}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise SystemExit(done.returncode)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def table(plain: list[dict[str, Any]], tuned: list[dict[str, Any]]) -> str:
    lines = ["| work | ttr | peer | its time | times ttr | malloc tuned: ttr | peer | times ttr |",
             "|---|---:|---|---:|---:|---:|---:|---:|"]  # fmt: skip
    for one, two in zip(plain, tuned):
        digits = 0 if one["unit"] == "ns" else 1
        cells = [f"{one['ttr']:.{digits}f} {one['unit']}", one["peer"],
                 f"{one['peer time']:.{digits}f}", f"{one['ratio']:.2f}",
                 f"{two['ttr']:.{digits}f}", f"{two['peer time']:.{digits}f}",
                 f"{two['ratio']:.2f}"]  # fmt: skip
        lines.append(" | ".join([f"| {one['work']}", *cells]) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m ttr.bench", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--rounds", type=int, default=5, help="interleaved (5)")
    parser.add_argument("--threads", type=int, default=1, help="of both (1)")
    parser.add_argument("--long", action="store_true", help="8192 tokens with backward, too: minutes")
    parser.add_argument("--json", help="write the rows to this file")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure_all(options)))
        return
    plain, tuned = child(options, False), child(options, True)
    print(f"ttr {ttr.__version__}, {ttr.target()}; PyTorch {torch.__version__}, {options.threads} "
          f"thread(s), medians of {options.rounds}; ns of a token and head, us of a call\n")  # fmt: skip
    print(table(plain, tuned))
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"malloc": plain, "malloc tuned": tuned}, file, indent=1)


if __name__ == "__main__":
    main()
