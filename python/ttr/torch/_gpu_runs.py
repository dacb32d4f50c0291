"""What `python -m ttr.torch.gpu_bench` runs: times, values and limits, each in a process of its own."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

TOKENS, HEADS = 8192, 32
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
    by_channel = torch.rand(2, 1, tokens, heads, width, generator=generator, device=device)
    made = {
        "q": draw(1, tokens, heads, width).to(narrow),
        "k": keys.to(narrow),
        "v": draw(1, tokens, heads, width).to(narrow),
        "log_decay": (0.97 + 0.03 * uniform[0]).log(),
        "importance": uniform[1],
        "step": uniform[1].clone(),
        "weight_decay": 0.03 * uniform[0],
        "erase_key": keys.clone(),
        "erase_gate": by_channel[0],
        "channel_log_decay": (0.97 + 0.03 * by_channel[1]).log(),
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
