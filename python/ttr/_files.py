"""Files that are written whole or not at all, and never over what they are made from."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path


def behind_links(path: Path) -> Path:
    """The file that a path leads to, which need not be there. OSError where its links form a loop."""
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        target.stat()  # says what is wrong with it
    return target


@contextlib.contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A path to write to, beside the file; it takes the file's place when the block has ended. A link
    stays one. Where the block fails nothing has changed."""
    target = behind_links(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        yield part
        if target.exists():
            part.chmod(target.stat().st_mode)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def write_whole(path: Path, text: str) -> None:
    """Writes a file whole or not at all."""
    with whole(path) as part:
        part.write_text(text, encoding="utf-8")


def refuse_inputs(option: str, outputs: Iterable[Path], inputs: Iterable[Path]) -> None:
    """ValueError where one of the files to be written is read as well, under whichever name."""
    read = list(inputs)
    for output in outputs:
        for path in read:
            if output.exists() and path.exists() and output.samefile(path):
                raise ValueError(f"{option} must not lead to an input but {output} is {path}")


def refuse_unwritable(option: str, path: Path) -> None:
    """ValueError before long work whose results could not be written: a folder, or in none."""
    try:
        target = behind_links(path)
    except OSError as error:
        raise ValueError(f"{option} must be a file but {path} is none: {error.strerror}") from None
    if target.is_dir() or not target.parent.is_dir():
        what = "is a folder" if target.is_dir() else f"would be in {target.parent}, which is not there"
        raise ValueError(f"{option} must be a file in a folder that is there but {path} {what}")
