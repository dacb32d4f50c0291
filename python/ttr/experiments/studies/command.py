"""The command of a study: the grid of its runs, and what they say."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import torch

from ttr import Recipe
from ttr._files import write_whole

from .._options import fill, number, numbers, parser, words
from .._rows import Part, Row, Rows, make
from .._train import TEST
from ..tasks.task import Sizes, Task
from . import report
from .results import Results
from .study import Settings, Study, run

EPILOG = """examples:
  python -m ttr.experiments {name} --quick --out results
  python -m ttr.experiments {name} --tasks "{task}" --seeds 5 --out results
  python -m ttr.experiments {name} --tasks "{task}" --quick --methods {method} --recipe "rls{{ridge: 0.01}}"

Runs that are in DIR/{name} are not made again. What is fixed, and what came out:
docs/experiments.md."""


def options_of(study: Study) -> argparse.ArgumentParser:
    """The options that every study has."""
    epilog = EPILOG.format(name=study.name, task=study.tasks[0].name, method=study.chosen[0])
    p = parser(study.name, study.summary, epilog)
    tasks = [task.name for task in study.tasks]
    p.add_argument("--tasks", type=words(tasks), default=tasks, metavar="T,T,...",
                   help=f"({', '.join(tasks)})")  # fmt: skip
    p.add_argument("--methods", type=words(study.methods), default=list(study.chosen),
                   metavar="M,M,...", help=f"of {', '.join(study.methods)}")  # fmt: skip
    p.add_argument("--recipe", action="append", type=recipe, default=[], metavar="RECIPE",
                   help="a layer beside the methods; repeatable")  # fmt: skip
    p.add_argument("--rates", type=numbers(float), metavar="r,r,...", help="(each task's own)")
    p.add_argument("--steps", type=number(int), metavar="N", help="of training (each task's own)")
    p.add_argument("--tests", type=number(int), metavar="N", help="examples (each task's own)")
    p.add_argument("--seeds", type=number(int), metavar="N", help="the first at every rate, the others at the best of its (3; quick 2)")
    return p


def recipe(text: str) -> str:
    """Parses a recipe, which stays as it was typed."""
    try:
        Recipe(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def with_recipes(study: Study, options: argparse.Namespace) -> Study:
    """The study with the recipes of the options as methods, which are then run."""
    options.methods = list(dict.fromkeys([*options.methods, *options.recipe]))
    return replace(study, methods={**{text: text for text in options.recipe}, **study.methods})


def sizes_of(task: Task, options: argparse.Namespace) -> Sizes:
    """A task's numbers, with those of the options in their place."""
    given = {name: getattr(options, name) for name in ("rates", "steps", "tests")}
    known = task.quick if options.quick else task.whole
    return task.check({**known, **{name: v for name, v in given.items() if v is not None}})


def first_seed(study: Study, options: argparse.Namespace) -> list[tuple[Task, Settings]]:
    """Every task and method at every rate: already a whole figure."""
    tasks = [study.task(name) for name in options.tasks]
    sizes = {task.name: sizes_of(task, options) for task in tasks}
    return [
        (task, Settings(task.name, m, study.methods[m], rate, 0, sizes[task.name]))
        for task, m in product(tasks, options.methods)
        for rate in sizes[task.name]["rates"]
    ]


def other_seeds(
    runs: Sequence[tuple[Task, Settings]], first: Results, seeds: int
) -> list[tuple[Task, Settings]]:
    """The rest, seed by seed: of the first seed's runs those at the rate that it has chosen."""
    chosen = [(t, s) for t, s in runs if first.cells[t.name, s.method].rate == s.rate]
    return [(t, replace(s, seed=seed)) for seed in range(1, seeds) for t, s in chosen]


def make_rows(study: Study, options: argparse.Namespace) -> list[Row]:
    """A row for every run, from the folder where it is there, and those of the references."""
    runs = first_seed(study, options)
    rows = _rows_of(runs, study, options)
    others = other_seeds(runs, Results(rows, [task for task, _ in runs]), options.seeds)
    return rows + _rows_of(others, study, options) + references([*runs, *others])


def _rows_of(
    runs: Sequence[tuple[Task, Settings]], study: Study, options: argparse.Namespace
) -> list[Row]:
    parts = [
        Part(s.row(), s.sizes["steps"], _words_of(s), partial(run, task, s)) for task, s in runs
    ]
    return make(Rows(options.out / study.name), parts, options.quiet)


def references(runs: Sequence[tuple[Task, Settings]]) -> list[Row]:
    """What can be had on each task's data by those who know its law, as rows without training."""
    rows: dict[tuple[str, int], Row] = {}
    for task, s in runs:
        if task.reference and (task.name, s.seed) not in rows:
            scores = task.best(s.sizes, TEST + s.seed)
            settings = {
                "task": task.name, "method": task.reference, "recipe": "", "rate": 0.0,
                "seed": s.seed,
            }  # fmt: skip
            rows[task.name, s.seed] = {
                "settings": settings, "scores": scores, "validation": scores, "parameters": 0,
                "seconds": 0.0,
            }  # fmt: skip
    return list(rows.values())


def _words_of(s: Settings) -> str:
    return f"{s.task}, {s.method}, rate {s.rate:g}, seed {s.seed}"


def outputs_of(study: Study, options: argparse.Namespace) -> tuple[Path, Path]:
    """The table and the picture."""
    return options.out / f"{study.name}.csv", options.out / f"{study.name}.svg"


def main(
    study: Study,
    arguments: Sequence[str] | None,
    adjust: Callable[[Study, argparse.Namespace], Study] = lambda study, options: study,
    add: Callable[[argparse.ArgumentParser], None] = lambda parser: None,
) -> int:
    """Runs a study; `add` has options of its own, and `adjust` what they change."""
    p = options_of(study)
    add(p)
    options = p.parse_args(arguments)
    fill(options, {"seeds": 2 if options.quick else 3})
    torch.set_num_threads(options.threads)
    table, picture = outputs_of(study, options)
    try:
        study = adjust(with_recipes(study, options), options)
        rows = make_rows(study, options)
    except ValueError as error:
        print(f"{study.name}: {error}", file=sys.stderr)
        return 2
    results = Results(rows, [study.task(name) for name in options.tasks])
    write_whole(table, report.table(results))
    drawn = report.picture(study.title, results, study.panels(results), study.x_label)
    if drawn:
        write_whole(picture, drawn)
    print(report.text(results))
    print()
    for claim in study.claims(results):
        print(claim)
    print(f"\n{table}, {picture}" if drawn else f"\n{table}", file=sys.stderr)
    return 0
