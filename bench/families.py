"""The table of families in docs/transformers.md: models of some width, ours and the originals.

    python bench/families.py                  # all of them, into the document
    python bench/families.py mamba2 jamba     # the rows of some, printed

One thread, float32, medians of runs in turn. Function: the time in all calls of the functions.
Mixer: that in the layers that call them. Model: a whole forward pass of 512 tokens, and a training
step of 256. How exact: the distance of logits from a float64 run of the original, over the
original's own (small models, as in the tests).
"""

from __future__ import annotations

import copy
import functools
import inspect
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python/tests/support"))

import torch
import transformers
import ttr.transformers
from reporting.tables import markdown
from transformer_cases import distance
from transformer_models import FAMILIES, InFloat64, prompt, small_model
from ttr.transformers._functions import FUNCTIONS

PREFILL, TRAINING = 512, 256
WIDE: dict[str, Any] = {
    "vocab_size": 1024,
    "unpadded_vocab_size": 1024,
    "max_position_embeddings": 1024,
    "hidden_size": 512,
    "intermediate_size": 1024,
    "moe_intermediate_size": 256,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "linear_key_head_dim": 64,
    "linear_value_head_dim": 64,
    "linear_num_key_heads": 8,
    "linear_num_value_heads": 8,
    "linear_head_dim": 64,
    "linear_num_heads": 8,
    "indexer_head_dim": 64,
    "v_head_dim": 64,
    "qk_nope_head_dim": 56,
    "num_heads": 16,
    "mamba_num_heads": 16,
    "mamba_n_heads": 16,
    "n_mamba_heads": 16,
    "mamba_head_dim": 64,
    "mamba_d_head": 64,
    "mamba_d_ssm": 1024,
    "state_size": 64,
    "ssm_state_size": 64,
    "mamba_d_state": 64,
    "chunk_size": 256,
    "mamba_chunk_size": 256,
}
OF_MAMBA = {"state_size": 16, "mamba_d_state": 16, "n_mamba_heads": 2}


class Clock:
    """Seconds by name; a name within itself is counted once."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._begun: dict[str, list[float]] = {}

    def begin(self, name: str) -> None:
        self._begun.setdefault(name, []).append(time.perf_counter())

    def end(self, name: str) -> None:
        begun = self._begun[name].pop()
        if not self._begun[name]:
            self.seconds[name] = self.seconds.get(name, 0) + time.perf_counter() - begun

    def around(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            self.begin(name)
            try:
                return function(*args, **kwargs)
            finally:
                self.end(name)

        return timed


def mixers_of(model: Any) -> list[Any]:
    def calls(part: Any) -> bool:
        code = inspect.unwrap(type(part).forward).__code__
        return not FUNCTIONS.keys().isdisjoint(code.co_names)

    return [part for part in model.modules() if calls(part)]


def timed(model: Any, run: Callable[[], Any]) -> dict[str, float]:
    """Seconds of a run: its model, its mixers, its functions."""
    clock, module = Clock(), sys.modules[type(model).__module__]
    held = {name: vars(module)[name] for name in FUNCTIONS if hasattr(module, name)}
    hooks = []
    for mixer in mixers_of(model):
        hooks.append(mixer.register_forward_pre_hook(lambda *_: clock.begin("mixer")))
        hooks.append(mixer.register_forward_hook(lambda *_: clock.end("mixer")))
    try:
        for name, function in held.items():
            setattr(module, name, clock.around("function", function))
        clock.around("model", run)()
    finally:
        for name, function in held.items():
            setattr(module, name, function)
        for hook in hooks:
            hook.remove()
    return clock.seconds


def faster(model: Any, run: Callable[[], Any], repeats: int) -> dict[str, float]:
    """How many times, by what was timed."""
    taken: dict[bool, list[dict[str, float]]] = {True: [], False: []}
    for repeat in range(repeats + 1):
        for served in (True, False):
            if served:
                ttr.transformers.accelerate(model)
            seconds = timed(model, run)
            ttr.transformers.disable()
            if repeat > 0 or repeats == 0:
                taken[served].append(seconds)

    def median(served: bool, name: str) -> float:
        values = sorted(seconds[name] for seconds in taken[served])
        return values[len(values) // 2]

    return {name: median(False, name) / median(True, name) for name in taken[True][0]}


def exactness(family: str) -> float:
    model, ids = small_model(family), prompt()

    def logits(of: Any) -> Any:
        with torch.no_grad():
            return of(ids, use_cache=False)[0]

    theirs = logits(model)
    with ttr.transformers.accelerated(model):
        ours = logits(model)
    with InFloat64():
        wanted = logits(copy.deepcopy(model).double())
    return distance(ours, wanted) / distance(theirs, wanted)


def row(family: str) -> list[str]:
    memory = FAMILIES[family]
    changes = WIDE | (OF_MAMBA if memory == "Mamba" else {})
    model = small_model(family, **changes)
    long, short = prompt(PREFILL, batch=1), prompt(TRAINING, batch=1)

    def prefill() -> None:
        with torch.no_grad():
            model(long, use_cache=True)

    def train() -> None:
        model.zero_grad()
        model.train()(short, use_cache=False)[0].sum().backward()
        model.eval()

    at_prefill, at_training = faster(model, prefill, 3), faster(model, train, 1)
    figures = [at_prefill[name] for name in ("function", "mixer", "model")]
    figures.append(at_training["model"])
    return [family, memory, f"{exactness(family):.1f}", *(f"{figure:.3g}" for figure in figures)]


def main() -> None:
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    chosen = sys.argv[1:] or list(FAMILIES)
    rows = []
    for family in chosen:
        rows.append(row(family))
        print(*rows[-1], sep="  ", flush=True)
    if sys.argv[1:]:
        return
    document = ROOT / "docs/transformers.md"
    text = document.read_text(encoding="utf-8")
    pattern = r"(<!-- families:[^\n]*\n\n)(?:\|[^\n]*\n)*"
    assert re.search(pattern, text), "the table's place"
    head = ["family", "memory", "exact", "function", "mixer", "model", "training step"]
    table = markdown(head, rows, text=(0, 1)) + "\n"
    document.write_text(re.sub(pattern, lambda m: m[1] + table, text), encoding="utf-8")


if __name__ == "__main__":
    main()
