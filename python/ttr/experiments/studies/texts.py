"""The option of studies whose last task is a text."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from ttr._files import refuse_inputs

from ..tasks.text import named
from . import command
from .study import Study


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--text", type=Path, nargs="+", default=[], metavar="PATH",
        help="files, or folders of .md, .txt, .rst and .py (the documents of the checkout that is "
        "the current directory; elsewhere the package's own Python)",
    )  # fmt: skip


def with_text(study: Study, options: argparse.Namespace) -> Study:
    """The study on the text that is given, which no output may be written over."""
    if options.text:
        refuse_inputs("--out", command.outputs_of(study, options), named(options.text))
    last: Any = study.tasks[-1]
    return replace(study, tasks=(*study.tasks[:-1], replace(last, paths=tuple(options.text))))
