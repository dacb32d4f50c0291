"""`python -m ttr.experiments mqar`: the grid of runs, and what they say."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch

from ttr._files import write_whole

from .._chart import draw
from .._options import fill, number, numbers, parser, words
from .._rows import Part, Rows, make
from . import report
from .model import ARCHITECTURES, METHODS
from .train import Settings, run
from .zoology import command as zoology
from .zoology import grid

EPILOG = """examples:
  python -m ttr.experiments mqar --quick --out results
  python -m ttr.experiments mqar --methods RLS,softmax --pairs 128 --out results
  python -m ttr.experiments mqar --procedure zoology --minutes 60 --out results

Runs that are in DIR/mqar are not made again; a run that is cut off is made anew. By the procedure
zoology, in DIR/mqar-zoology, it goes on where it was. Times and what the paper leaves unstated:
docs/experiments.md."""


#: What options mean where they are absent; --quick has numbers of its own.
WHOLE: dict[str, Any] = {
    "pairs": [64, 128],
    "widths": [64],
    "lengths": [256, 512, 1024],
    "rates": [2e-3, 5e-3, 1e-2],
    "vocabulary": 8192,
    "steps": 400,
    "seeds": 3,
    "batch": 32,
    "labels": 16,
    "tests": 32,
}
QUICK: dict[str, Any] = {
    **WHOLE,
    "pairs": [16, 32],
    "widths": [16],
    "lengths": [64, 128, 256],
    "rates": [2e-2],
    "vocabulary": 1024,
    "steps": 150,
}

#: Options of one procedure alone, None being that of this module.
ALONE: dict[str | None, tuple[str, ...]] = {
    None: ("steps", "labels"),
    "zoology": ("examples", "epochs", "minutes", "device"),
}


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options, with those that are absent filled in."""
    p = parser(
        "mqar", "Multi-query associative recall, trained: one layer, keys of two taps.", EPILOG
    )
    methods, architectures = list(METHODS), list(ARCHITECTURES)
    p.add_argument("--methods", type=words(methods), default=methods, metavar="M,M,...")
    p.add_argument(
        "--architectures", type=words(architectures), default=architectures, metavar="A"
    )
    p.add_argument("--pairs", type=numbers(int), metavar="P,P,...", help="(64,128)")
    p.add_argument("--widths", type=numbers(int), metavar="d,d,...", help="(64)")
    p.add_argument("--lengths", type=numbers(int), metavar="T,T,...", help="(256,512,1024)")
    p.add_argument("--rates", type=numbers(float), metavar="r,r,...", help="(2e-3,5e-3,1e-2)")
    p.add_argument("--vocabulary", type=int, metavar="V", help="(8192)")
    p.add_argument("--steps", type=int, metavar="N", help="of training (400); 0: untrained")
    p.add_argument(
        "--lags",
        type=numbers(float, positive=False),
        default=[0.0, 1.0],
        metavar="w,w",
        help="(0,1)",
    )
    p.add_argument("--fixed-lags", action="store_true", help="they are not learned")
    p.add_argument("--seeds", type=int, metavar="N", help="(3; zoology 1)")
    p.add_argument("--batch", type=int, metavar="N", help="examples a step (32; zoology 65536/T)")
    p.add_argument("--labels", type=int, metavar="N", help="in the loss of each (16; zoology all)")
    p.add_argument("--tests", type=int, metavar="N", help="examples a length (32; zoology 3000)")
    _add_zoology(p)
    options = p.parse_args(arguments)
    _refuse(p, options)
    if options.procedure == "zoology":
        return fill(options, grid.QUICK if options.quick else grid.WHOLE)
    return fill(options, QUICK if options.quick else WHOLE)


def _add_zoology(p: argparse.ArgumentParser) -> None:
    g = p.add_argument_group("the procedure of Zoology, which the paper follows")
    g.add_argument("--procedure", choices=["zoology"])
    g.add_argument("--examples", type=number(int), metavar="N", help="of training (100000)")
    g.add_argument("--epochs", type=number(int), metavar="N", help="at most (64)")
    g.add_argument("--device", choices=["cpu", "cuda"], help="(the GPU where there is one)")
    g.add_argument(
        "--minutes",
        type=number(float, positive=False),
        metavar="N",
        help="then it stops, and a later call goes on (until all is done)",
    )


def _refuse(p: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Ends the program where an option is another procedure's, or is not above 0."""
    for procedure, names in ALONE.items():
        for name in names:
            if procedure != options.procedure and getattr(options, name) is not None:
                without = "with" if procedure else "without"
                p.error(f"--{name} must be given {without} --procedure zoology")
    if options.procedure == "zoology":
        for name in ("seeds", "batch", "tests"):
            value = getattr(options, name)
            if value is not None and value < 1:
                p.error(f"--{name} must be above 0 but is {value}")


def _common(options: argparse.Namespace) -> Settings:
    """What all runs have in common."""
    return Settings(
        lengths=tuple(options.lengths),
        vocabulary=options.vocabulary,
        steps=options.steps,
        batch=options.batch,
        labels=options.labels,
        tests=options.tests,
        lags=tuple(options.lags),
        learn_lags=not options.fixed_lags,
    )


def first_seed(options: argparse.Namespace) -> list[Settings]:
    """One run of every combination and rate: already a whole figure."""
    common = _common(options)
    return [
        replace(common, width=width, pairs=pairs, architecture=how, method=method, rate=rate, seed=0)
        for width, pairs, how, method, rate in product(
            options.widths,
            options.pairs,
            options.architectures,
            options.methods,
            options.rates,
        )
    ]


def other_seeds(options: argparse.Namespace, cells: Sequence[report.Cell]) -> list[Settings]:
    """The rest: every combination at the rate that the first seed has chosen, seed by seed."""
    common = _common(options)
    return [
        replace(
            common,
            width=c.width,
            pairs=c.pairs,
            architecture=c.architecture,
            method=c.method,
            rate=c.rate,
            seed=seed,
        )
        for seed in range(1, options.seeds)
        for c in cells
    ]


def make_cells(options: argparse.Namespace) -> list[report.Cell]:
    """All runs: the first seed's at every rate, then the other seeds' at the best."""
    rows = make_rows(first_seed(options), options.out, options.quiet)
    others = other_seeds(options, report.cells(rows))
    return report.cells(rows + make_rows(others, options.out, options.quiet))


def make_rows(runs: Sequence[Settings], out: Path, quiet: bool) -> list[dict[str, Any]]:
    """A row for every run, from the folder where it is there."""
    parts = [Part(s.row(), s.steps, _words_of(s), partial(run, s)) for s in runs]
    return make(Rows(out / "mqar"), parts, quiet)


def _words_of(s: Settings) -> str:
    return f"{s.method}, {s.architecture}, P = {s.pairs}, rate {s.rate:g}, seed {s.seed}"


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    torch.set_num_threads(options.threads)
    try:
        if options.procedure == "zoology":
            return zoology.main(options)
        cells = make_cells(options)
    except ValueError as error:
        print(f"mqar: {error}", file=sys.stderr)
        return 2
    found = [claim for width in options.widths for claim in report.claims(cells, width)]
    described = report.chart(cells)
    outputs = {
        "mqar-trained.csv": report.table(cells),
        "mqar-trained.json": json.dumps(described, allow_nan=False),
        "mqar-trained.svg": draw(described),
    }
    written = [options.out / name for name, text in outputs.items() if text]
    for path in written:
        write_whole(path, outputs[path.name])
    print(report.text(cells))
    print()
    for claim in found:
        print(claim)
    print(f"\n{', '.join(map(str, written))}", file=sys.stderr)
    return 0
