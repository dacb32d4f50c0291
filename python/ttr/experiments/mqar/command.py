"""`python -m ttr.experiments mqar`: the grid of runs, and what they say."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import ttr

from .._progress import Progress
from .._rows import Rows, write_whole
from . import report
from .model import ARCHITECTURES, METHODS
from .train import Settings, run

EPILOG = """examples:
  python -m ttr.experiments mqar --quick --out results
  python -m ttr.experiments mqar --methods RLS,softmax --pairs 128 --out results

Runs that are in DIR/mqar are not made again; a run that is cut off is made anew. Times and what the
paper leaves unstated: docs/experiments.md."""


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="python -m ttr.experiments mqar",
        description="Multi-query associative recall, trained: one layer, keys of two taps.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument(
        "--out", type=Path, default=Path("results"), help="folder of rows, table, picture"
    )
    p.add_argument("--quick", action="store_true", help="a smaller task, in minutes")
    p.add_argument("--methods", type=_words(METHODS), default=list(METHODS), metavar="M,M,...")
    p.add_argument(
        "--architectures", type=_words(ARCHITECTURES), default=list(ARCHITECTURES), metavar="A,A"
    )
    p.add_argument("--pairs", type=_numbers(int), metavar="P,P,...", help="64,128 (quick: 16,32)")
    p.add_argument("--widths", type=_numbers(int), metavar="d,d,...", help="64 (quick: 16)")
    p.add_argument(
        "--lengths", type=_numbers(int), metavar="T,T,...", help="256,512,1024 (quick: less)"
    )
    p.add_argument(
        "--rates", type=_numbers(float), metavar="r,r,...", help="2e-3,5e-3,1e-2 (quick: 2e-2)"
    )
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--steps", type=int, help="of training: 400 (quick: 150)")
    p.add_argument("--vocabulary", type=int, help="8192 (quick: 1024)")
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--labels", type=int, default=16, help="of an example and step in the loss")
    p.add_argument("--tests", type=int, default=32, help="examples a length in the test")
    p.add_argument("--threads", type=int, default=torch.get_num_threads())
    p.add_argument("--quiet", action="store_true", help="no progress on standard error")
    return p


def _words(known: Any) -> Any:
    def parse(text: str) -> list[str]:
        words = [word.strip() for word in text.split(",")]
        for word in words:
            if word not in known:
                raise argparse.ArgumentTypeError(f"'{word}' must be of {', '.join(known)}")
        return words

    return parse


def _numbers(kind: Any) -> Any:
    def parse(text: str) -> list[Any]:
        numbers = [kind(word) for word in text.split(",")]
        if min(numbers) <= 0:
            raise argparse.ArgumentTypeError(f"'{text}' must be above 0")
        return numbers

    return parse


def grid(options: argparse.Namespace) -> list[Settings]:
    """All runs, seed by seed, so that what is there first is a whole figure."""
    quick = options.quick
    pairs = options.pairs or ([16, 32] if quick else [64, 128])
    runs = []
    for seed in range(options.seeds):
        for width in options.widths or ([16] if quick else [64]):
            for count in pairs:
                for architecture in options.architectures:
                    for method in options.methods:
                        for rate in options.rates or ([2e-2] if quick else [2e-3, 5e-3, 1e-2]):
                            runs.append(
                                Settings(
                                    method=method,
                                    architecture=architecture,
                                    pairs=count,
                                    width=width,
                                    rate=rate,
                                    seed=seed,
                                    lengths=tuple(
                                        options.lengths
                                        or ([64, 128, 256] if quick else [256, 512, 1024])
                                    ),
                                    vocabulary=options.vocabulary or (1024 if quick else 8192),
                                    steps=options.steps or (150 if quick else 400),
                                    batch=options.batch,
                                    labels=options.labels,
                                    tests=options.tests,
                                )
                            )
    return runs


def make_rows(runs: Sequence[Settings], out: Path, quiet: bool) -> list[dict[str, Any]]:
    """A row for every run, from the folder where it is there."""
    rows = Rows(out / "mqar")
    found = [rows.find(s.row()) for s in runs]
    missing = sum(s.steps for s, row in zip(runs, found) if row is None)
    progress, done = Progress(missing, quiet), 0
    made = []
    for settings, row in zip(runs, found):
        if row is None:
            what = (
                f"{settings.method}, {settings.architecture}, P = {settings.pairs}, "
                f"rate {settings.rate:g}, seed {settings.seed}"
            )
            results = run(settings, lambda step: progress.show(done + step, what))
            versions = {"ttr": ttr.__version__, "torch": torch.__version__}
            row = rows.put(settings.row(), {**results, "versions": versions})
            done += settings.steps
        made.append(row)
    progress.close()
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    torch.set_num_threads(options.threads)
    try:
        rows = make_rows(grid(options), options.out, options.quiet)
    except ValueError as error:
        print(f"mqar: {error}", file=sys.stderr)
        return 2
    cells = report.cells(rows)
    if not options.widths:
        width = 16 if options.quick else 64
    else:
        width = options.widths[0]
    found = report.claims(cells, width)
    write_whole(options.out / "mqar-trained.csv", report.table(cells))
    write_whole(options.out / "mqar-trained.svg", report.picture(cells))
    print(report.text(cells))
    print()
    for claim in found:
        print(claim)
    print(f"\n{options.out}/mqar-trained.csv, {options.out}/mqar-trained.svg", file=sys.stderr)
    return 0
