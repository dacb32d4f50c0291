"""Where PyTorch's headers are, without importing PyTorch.

Prints the folder of the package, or nothing. The operators need headers alone, of 2.10 or newer. In
an isolated build the modules of the environment that is built for are out of sight, yet its folders
are there.
"""

from __future__ import annotations

import importlib.util
import re
import sysconfig
from pathlib import Path

LEAST = (2, 10)


def _candidates() -> list[Path]:
    spec = importlib.util.find_spec("torch")
    found = [Path(place) for place in spec.submodule_search_locations or []] if spec else []
    return found + [Path(sysconfig.get_path(name)) / "torch" for name in ("platlib", "purelib")]


def _version(package: Path) -> tuple[int, ...]:
    try:
        text = (package / "version.py").read_text(encoding="utf-8")
    except OSError:
        return ()
    match = re.search(r"^__version__ = ['\"](\d+)\.(\d+)", text, re.MULTILINE)
    return tuple(int(number) for number in match.groups()) if match else ()


def find_torch() -> Path | None:
    """The folder of a PyTorch that has the headers of a stable ABI which is new enough."""
    for package in _candidates():
        headers = package / "include" / "torch" / "csrc" / "stable"
        if _version(package) >= LEAST and headers.is_dir():
            return package
    return None


if __name__ == "__main__":
    print(find_torch() or "")
