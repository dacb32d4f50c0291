"""`python -m ttr`, and the script `ttr`: the command."""

from __future__ import annotations

import os
import sys

from ._command import program


def main() -> None:
    """Becomes the command."""
    found = program()
    if found is None:
        sys.exit(
            "ttr: this package was built without the command, and none is on the path. In a clone,"
            " `make install` brings it, and `TTR_COMMAND=ON pip install .` the package with it"
        )
    os.execv(found, [found, *sys.argv[1:]])


if __name__ == "__main__":
    main()
