"""Trains a language model of bytes: from a configuration to a folder that generates.

    python examples/python/language_model.py --text docs README.md --out model
    python examples/python/language_model.py --layers gated_deltanet rls --steps 2000 --out model
    torchrun --nproc-per-node 2 examples/python/language_model.py --text docs --out model

The text is files, and the *.md, *.txt and *.py of folders; a tenth of it is for evaluation. `--out` gets
config.json, model.safetensors and training.pt, from which a run that was cut off goes on bit for bit:
with the same options, call it again. `--config` is a file of JSON in the place of `--layers`
(docs/models.md). Processes take a part of each batch; one process that accumulates as many parts learns
the same, to rounding. Without `--text` it reads itself.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from ttr.torch.nn import LanguageModel, ModelConfig, parameter_groups


def count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1 but is {number}")
    return number


def options_of(arguments: list[str] | None) -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--text", type=Path, nargs="+", default=[Path(__file__)], metavar="PATH")
    p.add_argument("--out", type=Path, required=True, metavar="DIR")
    p.add_argument("--layers", nargs="+", default=["gated_deltanet"], metavar="RECIPE")
    p.add_argument("--config", type=Path, metavar="FILE", help="all of the model, as JSON")
    p.add_argument("--steps", type=count, default=500, help="(500)")
    p.add_argument("--tokens", type=count, default=256, help="of a sequence (256)")
    p.add_argument("--batch", type=count, default=8, help="sequences a part of a step, and process (8)")
    p.add_argument("--accumulate", type=count, default=1, help="parts of a step, in each process (1)")
    p.add_argument("--rate", type=float, default=3e-3, help="(3e-3)")
    p.add_argument("--bfloat16", action="store_true", help="products in bfloat16, parameters in float32")
    p.add_argument("--every", type=count, default=100, help="steps between evaluations, saved (100)")
    p.add_argument("--stop-at", type=int, metavar="STEP", help="as if it were cut off there")
    return p.parse_args(arguments)


# ---- Data ----------------------------------------------------------------------------------------


def read(paths: list[Path]) -> Tensor:
    """All bytes of files, and of folders' documents and programs, in order of their names."""
    suffixes = (".md", ".txt", ".py")
    files: list[Path] = []
    for path in paths:
        files += sorted(f for f in path.rglob("*") if f.suffix in suffixes) if path.is_dir() else [path]
    return torch.tensor(list(b"".join(file.read_bytes() for file in files)), dtype=torch.uint8)


def batch_of(text: Tensor, number: int, count: int, tokens: int) -> Tensor:
    """Batch `number` of an endless data set, [count, tokens + 1]: of its number alone, so that a run that
    goes on, or several processes, need not keep where they are."""
    draw = torch.Generator().manual_seed(number)
    starts = torch.randint(0, len(text) - tokens, (count, 1), generator=draw)
    return text[starts + torch.arange(tokens + 1)].long()


# ---- Training ------------------------------------------------------------------------------------


class Loss(nn.Module):
    """What is differentiated, as a module for DistributedDataParallel."""

    def __init__(self, model: LanguageModel, narrow: bool) -> None:
        super().__init__()
        self.model, self.narrow = model, narrow

    def forward(self, tokens: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=self.narrow):
            return self.model.loss(tokens)


@torch.no_grad()
def bits(loss: Loss, text: Tensor, o: argparse.Namespace) -> float:
    """Bits a byte of a text that has not been learned, the same sequences each time."""
    parts = [loss(batch_of(text, number, o.batch, o.tokens)).item() for number in range(8)]
    return sum(parts) / len(parts) / math.log(2)


def share(step: int, steps: int) -> float:
    """Of the rate: a rise over a tenth of the steps, at most 100, then half a cosine to a tenth."""
    rise = max(1, min(100, steps // 10))
    rest = max(0, step - rise) / max(1, steps - rise)
    return min(1, (step + 1) / rise) * (0.55 + 0.45 * math.cos(math.pi * rest))


class Training:
    """A model, its optimizer, and the step that it is at; `save` and `resume` keep all of it."""

    def __init__(self, o: argparse.Namespace, rank: int, processes: int) -> None:
        self.o, self.rank, self.processes, self.step = o, rank, processes, 0
        torch.manual_seed(0)
        self.model = LanguageModel.from_config(config_of(o))
        self.loss = Loss(self.model, o.bfloat16)
        self.parallel = DistributedDataParallel(self.loss) if processes > 1 else self.loss
        self.optimizer = torch.optim.AdamW(parameter_groups(self.model), lr=o.rate, betas=(0.9, 0.95))
        self.rates = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: share(step, o.steps))

    def advance(self, text: Tensor) -> float:
        """One step: parts of a batch, of which each process takes its own; the loss of this process."""
        o, total = self.o, 0.0
        for part in range(o.accumulate):
            number = (self.step * o.accumulate + part) * self.processes + self.rank
            last = part == o.accumulate - 1
            alone = self.processes > 1 and not last  # gradients are exchanged with the last part
            with self.parallel.no_sync() if alone else contextlib.nullcontext():
                loss = self.parallel(batch_of(text, number, o.batch, o.tokens)) / o.accumulate
                loss.backward()
            total += loss.item()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.rates.step()
        self.step += 1
        return total

    def save(self) -> None:
        self.model.save_pretrained(self.o.out)
        parts = {"model": self.model, "optimizer": self.optimizer, "rates": self.rates}
        held = {name: part.state_dict() for name, part in parts.items()}
        part = self.o.out / ".training.pt"  # never half a file in its place
        torch.save({"step": self.step, **held}, part)
        part.replace(self.o.out / "training.pt")

    def resume(self) -> None:
        path = self.o.out / "training.pt"
        if path.exists():
            if ModelConfig.from_dict(read_json(self.o.out / "config.json")).to_dict() != self.model.config.to_dict():
                sys.exit(f"--layers or --config must be what {self.o.out} was begun with, or --out another folder")
            held = torch.load(path, weights_only=True)
            self.step = held["step"]
            self.model.load_state_dict(held["model"])
            self.optimizer.load_state_dict(held["optimizer"])
            self.rates.load_state_dict(held["rates"])


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def config_of(o: argparse.Namespace) -> ModelConfig:
    if o.config is not None:
        config = ModelConfig.from_dict(read_json(o.config))
        if config.vocabulary < 256:
            sys.exit(f"the vocabulary of --config must be 256 at least, as bytes are, but is {config.vocabulary}")
        return config
    return ModelConfig(o.layers, vocabulary=256, hidden_size=128, num_heads=4, num_layers=4)


def main(arguments: list[str] | None = None) -> float:
    """Bits a byte at the end."""
    o = options_of(arguments)
    processes, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    if processes > 1 and not dist.is_initialized():
        dist.init_process_group("gloo")
    text = read(o.text)
    known, unknown = text[: len(text) * 9 // 10], text[len(text) * 9 // 10 :]
    if len(unknown) <= o.tokens:
        least = f"so long that a tenth has more than {o.tokens} bytes"
        sys.exit(f"--text must be {least} but has {len(text)} in all")
    o.out.mkdir(parents=True, exist_ok=True)  # what cannot be written is said before any work
    training, start = Training(o, rank, processes), time.perf_counter()
    training.resume()
    first, found = training.step, math.nan
    last = o.steps if o.stop_at is None else min(o.stop_at, o.steps)
    while training.step < last:
        loss = training.advance(known)
        if training.step % o.every == 0 or training.step == last:
            found = bits(training.loss, unknown, o)
            if rank == 0:
                training.save()
                each = (time.perf_counter() - start) / (training.step - first)
                print(
                    f"step {training.step} of {o.steps}: loss {loss / math.log(2):.3f}, evaluated {found:.3f} "
                    f"bits a byte, {1e3 * each:.0f} ms a step", flush=True,
                )  # fmt: skip
    if first == last:  # all was done before
        found = bits(training.loss, unknown, o)
    if rank == 0:
        prompt = unknown[None, :32].long()
        told = training.model.generate(prompt, 64, temperature=0.8, top_p=0.95)[0]
        print(bytes(told.tolist()).decode(errors="replace"))
    if processes > 1:
        dist.destroy_process_group()
    return found


if __name__ == "__main__":
    main()
