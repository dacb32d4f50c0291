"""`python -m ttr.experiments NAME`: experiments that train."""

from __future__ import annotations

import importlib
import importlib.util
import sys

from ttr._names import hint

#: The module of each that has its `main`.
EXPERIMENTS = {
    "mqar": "mqar.command", "exact": "exact", "steps": "steps", "curvature": "curvature", "local": "local",
    "learn": "learn",
}  # fmt: skip

USAGE = """usage: python -m ttr.experiments NAME [options]

  mqar      multi-query associative recall: figure 3 of test-time regression
  exact     least squares beside its one-step neighbours: recall, changing regression, text
  steps     gradient steps a token against the exact solution
  curvature memories between the delta rule and least squares; two ways to forget
  local     local linear attention against softmax: smooth functions in context
  learn     what each published layer learns by its name: recall, induction, regression

`python -m ttr.experiments NAME --help` shows the options."""


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
        return 0 if arguments else 2
    name = arguments[0]
    if name not in EXPERIMENTS:
        known = ", ".join(EXPERIMENTS)
        print(f"ttr.experiments: '{name}' must be of {known}{hint(name, EXPERIMENTS)}", file=sys.stderr)
        return 2
    if importlib.util.find_spec("torch") is None:
        print(f"ttr.experiments: {name} needs PyTorch: pip install torch", file=sys.stderr)
        return 1
    command = importlib.import_module(f".{EXPERIMENTS[name]}", __package__)
    status: int = command.main(arguments[1:])
    return status


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
