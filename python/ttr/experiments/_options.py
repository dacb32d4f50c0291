"""What the commands of the experiments have in common."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch

from ttr._names import hint


def parser(name: str, description: str, epilog: str) -> argparse.ArgumentParser:
    """A command's options, those that every experiment has."""
    p = argparse.ArgumentParser(
        prog=f"python -m ttr.experiments {name}",
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("--out", type=Path, default=Path("results"), metavar="DIR", help="(results)")
    p.add_argument("--quick", action="store_true", help="a smaller task, in minutes")
    p.add_argument("--threads", type=int, default=torch.get_num_threads(), metavar="N")
    p.add_argument("--quiet", action="store_true", help="no progress on standard error")
    return p


def fill(options: argparse.Namespace, defaults: Mapping[str, Any]) -> argparse.Namespace:
    """The options, with those that are absent filled in."""
    for name, value in defaults.items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    return options


def words(known: Collection[str]) -> Any:
    """Parses names of `known`, with commas between them; some have commas of their own."""

    def parse(text: str) -> list[str]:
        parts, names = [part.strip() for part in text.split(",")], []
        while parts:
            joined = (", ".join(parts[:count]) for count in range(len(parts), 0, -1))
            name = next((name for name in joined if name in known), None)
            if name is None:
                meant = hint(parts[0], known)
                raise argparse.ArgumentTypeError(f"'{parts[0]}' must be of {', '.join(known)}{meant}")
            names.append(name)
            del parts[: name.count(",") + 1]
        return names

    return parse


def numbers(kind: Any, positive: bool = True) -> Any:
    """Parses numbers with commas between them."""

    def parse(text: str) -> list[Any]:
        values = [kind(word) for word in text.split(",")]
        if positive and min(values) <= 0:
            raise argparse.ArgumentTypeError(f"'{text}' must be above 0")
        return values

    return parse


def number(kind: Any, positive: bool = True) -> Any:
    """Parses a number above 0, or at least 0."""

    def parse(text: str) -> Any:
        value = kind(text)
        if value < 0 or (positive and value == 0):
            raise argparse.ArgumentTypeError(
                f"'{text}' must be {'above' if positive else 'at least'} 0"
            )
        return value

    return parse
