"""Rows of `python -m ttr.bench` that are whole layers: Gated DeltaNet of 512 tokens, width 256, 4 heads
of 64, beside the same module whose memory is the bench's peer, with convolutions and norms in PyTorch's
operators."""

from __future__ import annotations

import contextlib
import ctypes
import gc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from ttr.bench import Row, medians, peer, row

from .nn import TestTimeRegression, _around, _convolution, _layer

TOKENS, WIDTH, HEADS = 512, 256, 4


def _chunked(recipe: str, state: Any, cu_seqlens: Any, **inputs: Tensor) -> Tensor:
    _, theirs = peer()
    y, _ = theirs({name: inputs[name] for name in ("q", "k", "v", "log_decay", "step")})
    scaled: Tensor = y * inputs["k"].shape[-1] ** 0.5  # which that divides by
    return scaled


@contextlib.contextmanager
def of_pytorch() -> Iterator[None]:
    """The layer's memory, convolutions and norms in PyTorch's operators."""
    with (
        mock.patch.object(_layer, "regress", _chunked),
        mock.patch.object(_layer, "norm", _around.portable_norm),
        mock.patch.object(_convolution, "short_conv", _around.portable_conv),
    ):
        yield


def rows(quick: bool) -> Iterator[Row]:
    torch.manual_seed(0)
    layer = TestTimeRegression("gated_deltanet", WIDTH, HEADS)
    x = torch.randn(1, TOKENS, WIDTH)
    ones = torch.ones(1, TOKENS, dtype=torch.long)

    def forward(**words: Any) -> Tensor:
        with torch.no_grad():
            y: Tensor = layer(x, **words)
        return y

    def train(**words: Any) -> None:
        layer.zero_grad()
        layer(x, **words).square().sum().backward()

    def beside(run: Callable[..., Any]) -> Any:
        with of_pytorch():
            return run()

    name, _ = peer()
    torch.testing.assert_close(forward(), beside(forward), rtol=1e-3, atol=1e-3)
    title = f"a layer, {TOKENS} tokens, {HEADS} heads of {WIDTH // HEADS}"
    work: tuple[tuple[str, Callable[..., Any], str], ...] = (
        ("", forward, "2.5 / -"), (", with backward", train, "1.7 / -"),
    )  # fmt: skip
    for words, run, limits in work:
        repeats = 7 if quick else 21
        runs: dict[str, Callable[[], Any]] = {"ttr": run, name: partial(beside, run)}
        yield row(title + words, medians(runs, repeats), "ms", 1e3, limits)
        # A pair of their own: what runs behind the peer finds none of its data in a cache. Either is first as
        # often: the first of a pair takes some 3 % longer, whichever it is.
        runs = {"ttr, a mask of ones": partial(run, attention_mask=ones), "without": run}
        orders = [medians(runs, repeats), medians(dict(reversed(runs.items())), repeats)]
        middle = {name: sum(order[name] for order in orders) / 2 for name in runs}
        yield row(f"a mask{words}", middle, "ms", 1e3, ".98 / -")
    peaks = {"ttr": _peak(train), name: _peak(partial(beside, train))}
    yield row("peak memory of its training step", peaks, "MB", 1e-6, "1 / -")


def _peak(run: Callable[[], Any]) -> float:
    """Bytes above those that are there before a call, at most; Linux says so."""
    run()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak becomes what is there
    before = _kilobytes("VmRSS")
    run()
    return 1024.0 * (_kilobytes("VmHWM") - before)


def _kilobytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name + ":"))
