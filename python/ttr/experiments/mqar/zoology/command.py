"""`python -m ttr.experiments mqar --procedure zoology`: as many runs as there is time for."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ttr._files import write_whole

from ..._progress import Progress
from ..._rows import Rows, versions
from . import report
from .grid import device_of, settings_of, words_of
from .train import Run, Settings, read_state

Row = dict[str, Any]
FOLDER = "mqar-zoology"


def main(options: argparse.Namespace) -> int:
    """ValueError: options that no run has."""
    device = device_of(options.device)
    runs, rows = settings_of(options), Rows(options.out / FOLDER)
    end = math.inf if options.minutes is None else time.monotonic() + 60 * options.minutes
    make(runs, rows, device, end, options.quiet)
    found = [rows.find(s.row()) for s in runs]
    _write(options, report.points(runs, found))
    left = [s for s, row in zip(runs, found) if row is None]
    if left:
        print(_left(left, len(runs), rows), file=sys.stderr)
    return 0


def make(runs: Sequence[Settings], rows: Rows, device: str, end: float, quiet: bool) -> None:
    """Makes the rows that are missing, one after the other, until the time `end`."""
    missing = [s for s in runs if rows.find(s.row()) is None]
    done, total = 0, sum(s.steps - _steps(s, rows) for s in missing)
    progress = Progress(total, quiet)
    for s in missing:
        if time.monotonic() >= end:
            break
        run = Run(s, state_file(rows, s), device)
        rest = s.steps - run.step

        def goes_on(steps: int, done: int = done, words: str = words_of(s)) -> bool:
            progress.show(done + steps, words)
            return time.monotonic() < end

        if run.go_on(goes_on):
            rows.put(s.row(), {**run.row(), "versions": versions()})
            run.file.unlink(missing_ok=True)
        done += rest
    progress.close()


def state_file(rows: Rows, s: Settings) -> Path:
    """Where a run that is not at its end has its state."""
    return rows.path(s.row()).with_suffix(".pt")


def _steps(s: Settings, rows: Rows) -> int:
    state = read_state(state_file(rows, s), s)
    return int(state["step"]) if state else 0


def _write(options: argparse.Namespace, made: Sequence[report.Point]) -> None:
    """Table, picture and claims, of the runs that are there."""
    if not made:
        return
    files = [options.out / f"{FOLDER}.csv"]
    write_whole(files[0], report.table(made))
    picture = report.picture(made)
    if picture:
        files.append(options.out / f"{FOLDER}.svg")
        write_whole(files[-1], picture)
    print(report.text(made), end="\n\n")
    for width in options.widths:
        for claim in report.claims(made, options.lengths, width):
            print(claim)
    print(f"\n{', '.join(map(str, files))}", file=sys.stderr)


def _left(left: Sequence[Settings], total: int, rows: Rows) -> str:
    """What a later call of the same command makes."""
    next_one = left[0]
    words = f"left: {len(left)} of {total} runs; next: {words_of(next_one)}"
    steps = _steps(next_one, rows)
    epoch = f"{steps // next_one.epoch_steps} of {next_one.epochs} epochs made"
    return f"{words}, {epoch}" if steps else words
