"""The command `ttr`, which draws charts, too: where it is."""

from __future__ import annotations

import os
import shutil
import sysconfig
from pathlib import Path


def program() -> str | None:
    """The one in this package, or else the first on the path; None where there is none."""
    own = Path(__file__).parent / "bin" / "ttr"
    if own.is_file():
        return str(own)
    # The script of that name in Python's own folder is this package's, and looks here again.
    scripts = Path(sysconfig.get_path("scripts"))
    folders = [f for f in os.environ.get("PATH", "").split(os.pathsep) if f and Path(f) != scripts]
    return shutil.which("ttr", path=os.pathsep.join(folders))
