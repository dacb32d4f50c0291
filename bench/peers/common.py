"""What the peers share: the layers, their inputs, ttr's own answers and times, the clock."""

import dataclasses
import functools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from reporting.tables import markdown  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]

# name: (rule, decay). M = g M' + b (v - g M' k) k^T (delta) or g M' + v k^T (hebbian); y = M q.
LAYERS = {
    "gated_deltanet": ("delta", "scalar"),
    "deltanet": ("delta", "none"),
    "kda": ("delta", "channel"),
    "mamba2": ("hebbian", "scalar"),
    "retnet": ("hebbian", "retention"),
    "gla": ("hebbian", "channel"),
    # A = g A' + w k k^T, B = g B' + w k v^T; y = B^T A^-1 q, with the ridges below.
    "rls": ("exact", "none"),
    "weighted_rls": ("exact", "mild"),
    "mesa": ("exact", "mild"),
    # y = sum s v / sum s, s = exp(k . q / sqrt(d)); ttr's name of it and PyTorch's own kernel
    "softmax": ("kernel", "none"),
    # networks trained while they read, mini-batches of 16: torch_networks.py has the equations
    "ttt_linear": ("network", "none"),
    "ttt_mlp": ("network", "none"),
}
# Their published rates, before they are divided by the channels.
NETWORKS = {"ttt_linear": 1.0, "ttt_mlp": 0.1}
RIDGES = {"rls": 0.001, "weighted_rls": 0.001, "mesa": 0.25}


# A program that runs another and prints the greatest memory of that one, in MB.
GREATEST = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e3)
"""


@dataclasses.dataclass
class Problem:
    """One layer at one size. Arrays are float32, heads first: [H, T, d] and [H, T]."""

    layer: str
    d: int
    tokens: int
    heads: int
    inputs: dict  # q, k, v; log_decay [H, T, 1 or d] and step [H, T, 1] where the layer has them
    given: frozenset  # names of those that ttr takes (retnet's decay is its own)
    constants: dict = dataclasses.field(default_factory=dict)  # of heads alone, as ttr takes them

    @property
    def ridge(self):
        return RIDGES[self.layer]

    @property
    def constant_ridge(self):
        """Does the ridge stay while associations fade?"""
        return self.layer == "mesa"


def make_problem(layer, d, tokens, heads):
    rule, decay = LAYERS[layer]
    random = np.random.default_rng(1)
    normal = lambda scale: scale * random.standard_normal((heads, tokens, d), dtype=np.float32)
    inputs = {"q": normal(d**-0.5), "k": normal(d**-0.5), "v": normal(1.0)}
    given = {"q", "k", "v"}
    if decay in ("scalar", "channel"):
        last = d if decay == "channel" else 1
        inputs["log_decay"] = -0.1 * random.random((heads, tokens, last), dtype=np.float32)
        given.add("log_decay")
    if decay == "retention":
        rates = np.log1p(-(2.0 ** (-5.0 - np.arange(heads))))
        inputs["log_decay"] = np.tile(rates.astype(np.float32)[:, None, None], (1, tokens, 1))
    if decay == "mild":  # faster, and A is singular before d keys have come
        inputs["log_decay"] = -0.0054 * random.random((heads, tokens, 1), dtype=np.float32)
        inputs["importance"] = 0.1 + 0.9 * random.random((heads, tokens, 1), dtype=np.float32)
        given |= {"log_decay", "importance"}
    if rule == "delta":
        inputs["step"] = random.random((heads, tokens, 1), dtype=np.float32)
        given.add("step")
    problem = Problem(layer, d, tokens, heads, inputs, frozenset(given))
    return with_network(problem, random) if rule == "network" else problem


def with_network(problem, random):
    """Keys of unit length about, rates as a sigmoid gives them, weights as training starts."""
    layer, d, heads = problem.layer, problem.d, problem.heads
    rate = NETWORKS[layer] / d
    step = rate * random.random((heads, problem.tokens, 1), dtype=np.float32)
    normal = lambda scale, *shape: scale * random.standard_normal((heads, *shape), dtype=np.float32)
    constants = {
        "ln_weight": 1 + normal(0.1, d), "ln_bias": normal(0.1, d), "row_bias": normal(0.02, 16)
    }
    widths = [d, d] if layer == "ttt_linear" else [d, 4 * d, d]
    for l, (rows, columns) in enumerate(zip(widths, widths[1:]), 1):
        constants[f"state.w{l}"] = normal(0.02, rows, columns)
        constants[f"state.b{l}"] = normal(0.02, columns)
    inputs, given = problem.inputs | {"step": step}, problem.given | {"step"}
    return dataclasses.replace(problem, inputs=inputs, given=given, constants=constants)


def to_ttr(name, array, channel):
    """[H, T, x] to [1, T, H, x], or [1, T, H] for gates of one number a token."""
    array = np.ascontiguousarray(array.swapaxes(0, 1)[None])
    one_number = name in ("step", "importance") or (name == "log_decay" and not channel)
    return array[..., 0].copy() if one_number else array


class Ttr:
    """The built command: its answers by `ttr apply`, its times by `ttr bench`."""

    def __init__(self, command, threads):
        self.command, self.threads = str(command), threads

    def apply(self, problem, dy=None):
        """y, and with dy the gradients of q, k, v, ..., heads first."""
        from safetensors.numpy import load_file, save_file

        channel = LAYERS[problem.layer][1] == "channel"
        tensors = {n: to_ttr(n, problem.inputs[n], channel) for n in problem.given}
        tensors |= problem.constants
        if dy is not None:
            tensors["dy"] = to_ttr("dy", dy, channel)
        with tempfile.TemporaryDirectory() as folder:
            source, result = f"{folder}/in.safetensors", f"{folder}/out.safetensors"
            save_file(tensors, source)
            command = [self.command, "apply", problem.layer, "--in", source, "--out", result]
            command += ["--quiet"] if dy is None else ["--quiet", "--grad"]
            subprocess.run(command, check=True)
            out = load_file(result)
        back = lambda a: (a if a.ndim == 4 else a[..., None])[0].swapaxes(0, 1)
        if dy is None:
            return back(out["y"])
        constants = {n: out["d" + n] for n in problem.constants}
        return {n: back(out["d" + n]) for n in problem.given} | constants

    def bench(self, problem, measurement):
        """The row of `ttr bench` for a measurement."""
        command = self._bench(problem, measurement, 3)
        run = subprocess.run(command, check=True, capture_output=True, text=True)
        rows = json.loads(run.stdout)[measurement]["rows"]
        return next(row for row in rows if row["layer"] == problem.layer)

    def megabytes(self, problem):
        """The greatest memory of the whole process, forward and backward."""
        # A child begins with the greatest memory of who starts it: that must be a small program.
        command = [sys.executable, "-c", GREATEST, *self._bench(problem, "train", 1)]
        return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    def _bench(self, problem, measurement, repeats):
        command = [self.command, "bench", problem.layer, "--measure", measurement, "--json", "--quiet"]
        for name, value in (
            ("d", problem.d), ("tokens", problem.tokens), ("heads", problem.heads),
            ("threads", self.threads), ("repeats", repeats),
        ):
            command += [f"--{name}", str(value)]
        return command


def nanoseconds(run, units):
    """One timing of a peer, ns a token and head (`units` of them a call); short calls are
    repeated."""
    calls, seconds = 0, 0.0
    start = time.perf_counter()
    while seconds < 0.02:
        run()
        calls += 1
        seconds = time.perf_counter() - start
    return 1e9 * seconds / (calls * units)


def error(got, want):
    """The greatest difference as a share of the greatest number."""
    return float(np.max(np.abs(np.asarray(got, dtype=np.float64) - want)) / np.max(np.abs(want)))


def restart(threads, unlock):
    """Starts the process again as peers deserve it: memory kept between calls, so that large
    temporaries do not fault in page by page each time; on as many processors as there are threads;
    and, to `unlock`, with the one function by which MKL asks whether it runs on its maker's
    processor (it keeps its AVX-512 kernels from others, and PyTorch with it)."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    if "TTR_PEERS" in os.environ:
        return
    environment = dict(os.environ, TTR_PEERS="1", MALLOC_MMAP_MAX_="0")
    environment.update(MALLOC_TRIM_THRESHOLD_=str(1 << 40), OMP_NUM_THREADS=str(threads))
    with tempfile.TemporaryDirectory() as folder:
        if unlock:
            source, library = f"{folder}/unlock.c", f"{folder}/unlock.so"
            pathlib.Path(source).write_text("int mkl_serv_intel_cpu_true(void) { return 1; }\n")
            subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
            environment["LD_PRELOAD"] = library
        arguments = [os.sys.executable, *os.sys.argv]
        raise SystemExit(subprocess.run(arguments, env=environment).returncode)


@functools.cache
def processor():
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return ""


def write_table(cells, path, text):
    """Prints rows of words below a head; into the file too, where there is one, as Markdown whose
    columns of `text` stand at the left."""
    widths = [max(map(len, column)) for column in zip(*cells)]
    for row in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
    if path:
        path.write_text(markdown(cells[0], cells[1:], text) + "\n")
