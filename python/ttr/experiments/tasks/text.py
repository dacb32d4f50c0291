"""A language model of bytes on the project's own documents.

`LanguageModel` of `ttr.torch.nn`: every block a layer and a gated MLP; a convolution of four taps
on q, k and v. The text is what `--text` names, files or folders of them; without it the documents
of the checkout that is the current directory (its *.md and docs/*.md), and where there is none the
package's own Python, which every installation has. The text is cut into pieces of 2048 bytes; of
ten pieces one is for the choice of a rate, one for the test. The score is bits a byte, by the
number of bytes seen before.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

import ttr
from ttr.torch.nn import LanguageModel

from .._train import CHOICE, TEST
from .task import Scores, Sizes, Task, by_bins, design, random

_PIECE = 2048
_SUFFIXES = (".md", ".txt", ".rst", ".py")


_QUICK: Sizes = {
    "width": 32, "heads": 2, "layers": 2, "tokens": 128, "steps": 300, "batch": 8, "tests": 64,
    "rates": [1e-2],
}  # fmt: skip
_WHOLE: Sizes = {
    "width": 64, "heads": 2, "layers": 2, "tokens": 256, "steps": 1000, "batch": 8, "tests": 128,
    "rates": [5e-3],
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Text(Task):
    paths: tuple[Path, ...] = ()
    name: str = "text"
    measure: str = "bits a byte"
    better: Literal["greater", "less"] = "less"
    x_label: str = "bytes seen, at most"
    quick: Sizes = field(default_factory=lambda: _QUICK)
    whole: Sizes = field(default_factory=lambda: _WHOLE)

    @cached_property
    def files(self) -> list[Path]:
        return named(self.paths) if self.paths else own()

    @cached_property
    def whole_text(self) -> bytes:
        return b"".join(path.read_bytes() for path in self.files)

    @cached_property
    def parts(self) -> tuple[NDArray[np.uint8], ...]:
        """Those for training, choice and test."""
        return cut(self.whole_text)

    def check(self, sizes: Sizes) -> Sizes:
        shortest = min(len(part) for part in self.parts)
        if shortest <= sizes["tokens"]:
            raise ValueError(
                f"text must be so long that a tenth has more than {sizes['tokens']} bytes but is "
                f"{len(self.whole_text)} bytes long"
            )
        digest = hashlib.sha256(self.whole_text).hexdigest()[:12]
        kind = f"{len(self.files)} files such as {self.files[0].name}"
        return {**sizes, "text": f"{kind}, {len(self.whole_text)} bytes, sha256 {digest}"}

    def network(self, recipe: str, sizes: Sizes) -> nn.Module:
        around = design(recipe, conv_size=4, silu="qkv", output_norm="rms")
        return LanguageModel(
            recipe, 256, hidden_size=sizes["width"], num_heads=sizes["heads"],
            num_layers=sizes["layers"], design=around,
        )  # fmt: skip

    def loss(self, network: nn.Module, sizes: Sizes, seed: int, step: int) -> Tensor:
        text, length = self.parts[0], sizes["tokens"] + 1
        starts = random(seed, step).integers(0, len(text) - length + 1, sizes["batch"])
        return _losses(network, [text[s : s + length] for s in starts]).mean()

    @torch.no_grad()
    def scores(self, network: nn.Module, sizes: Sizes, stream: int) -> Scores:
        text, length = self.parts[1 if CHOICE <= stream < TEST else 2], sizes["tokens"] + 1
        count = min(sizes["tests"], len(text) // length)
        starts = np.linspace(0, len(text) - length, count).astype(int)
        bits = _losses(network, [text[s : s + length] for s in starts]).double().numpy()
        seen = np.broadcast_to(np.arange(1, length), bits.shape)
        edges = [sizes["tokens"] / 2**i for i in range(4, -1, -1)]
        return by_bins(bits / math.log(2), seen, edges)


def _losses(network: nn.Module, pieces: Sequence[NDArray[np.uint8]]) -> Tensor:
    """Nats [B, T] of every byte but the first."""
    tokens = torch.from_numpy(np.stack(pieces).astype(np.int64))
    logits = network(tokens[:, :-1])
    losses = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")
    return losses.view(len(pieces), -1)


def cut(text: bytes) -> tuple[NDArray[np.uint8], ...]:
    """Cuts a text: eight of ten pieces are for training, one for choice, one for the test."""
    parts = [b"", b"", b""]
    for i, start in enumerate(range(0, len(text), _PIECE)):
        parts[{8: 1, 9: 2}.get(i % 10, 0)] += text[start : start + _PIECE]
    return tuple(np.frombuffer(part, np.uint8) for part in parts)


def named(paths: Sequence[Path]) -> list[Path]:
    """Files, and of folders all that are documents or Python. ValueError: one that is absent."""
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            files += sorted(p for p in path.rglob("*") if p.suffix in _SUFFIXES and p.is_file())
        elif path.is_file():
            files.append(path)
        else:
            raise ValueError(f"--text must be files or folders but {path} is not there")
    if not files:
        raise ValueError(f"--text must be of {', '.join(_SUFFIXES)} but no such file is there")
    return files


def own(here: Path = Path()) -> list[Path]:
    """The documents of a checkout of this project, or the package's Python."""
    if (here / "include" / "ttr").is_dir() and (here / "docs").is_dir():
        return sorted(here.glob("*.md")) + sorted((here / "docs").glob("*.md"))
    package: Any = ttr.__file__
    return sorted(Path(package).parent.rglob("*.py"))
