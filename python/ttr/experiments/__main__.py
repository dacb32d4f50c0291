"""`python -m ttr.experiments NAME`: experiments that train."""

from __future__ import annotations

import importlib.util
import sys

USAGE = """usage: python -m ttr.experiments NAME [options]

  mqar      multi-query associative recall, trained: figure 3 of test-time regression

`python -m ttr.experiments NAME --help` shows the options."""


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
        return 0 if arguments else 2
    if arguments[0] != "mqar":
        print(f"ttr.experiments: '{arguments[0]}' must be mqar", file=sys.stderr)
        return 2
    if importlib.util.find_spec("torch") is None:
        print("ttr.experiments: mqar needs PyTorch: pip install torch", file=sys.stderr)
        return 1
    from .mqar import command

    return command.main(arguments[1:])


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
