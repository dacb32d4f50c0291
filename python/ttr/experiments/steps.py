"""`python -m ttr.experiments steps`: gradient steps a token against the exact solution.

The same regression, solved by n iterations a token: gradient descent on all pairs, conjugate
gradients, n writes of the delta rule (DeltaProduct, which has n keys, values and step sizes a
token, and so more parameters), one write with momentum; and exactly. Nothing forgets.

Gradient descent divides its steps by the diagonal of the curvature, eta = 0.12. No eigenvalue of
what it iterates is above the number of channels, 16 in both forms, so that eta below 2 / 16
converges whatever the keys are.
"""

from __future__ import annotations

from collections.abc import Sequence

from ._chart import Panel
from ._figures import Claim, mean
from .studies import command
from .studies.report import panels_by_number
from .studies.results import Results
from .studies.study import Study
from .tasks.linear import LASTING
from .tasks.recall import SMALL_RECALL

COUNTS = (1, 2, 4, 8)
_GRADIENT, _CONJUGATE, _WRITES = "gradient descent", "conjugate gradients", "delta rule"
_SOLVERS = {
    _GRADIENT: "gradient(steps: {n}, eta: 0.12, preconditioner: diagonal, ridge: 0.01)",
    _CONJUGATE: "conjugate_gradient(steps: {n}, ridge: 0.01)",
}
METHODS = {
    "linear attention": "importance(input) | linear | gradient",
    **{
        f"{name}, {n}": f"importance(input) | linear | {solver.format(n=n)}"
        for name, solver in _SOLVERS.items()
        for n in COUNTS
    },
    f"{_WRITES}, 1": "deltanet",
    **{f"{_WRITES}, {n}": f"uniform | linear | sgd(steps: {n})" for n in COUNTS[1:3]},
    "delta rule with momentum": "momentum_deltanet",
    "exact": "importance(input) | linear | exact(ridge: 0.01)",
}


def claims(results: Results) -> list[Claim]:
    found: list[Claim] = []
    most = COUNTS[-1]
    for task in results.tasks:
        found += results.better(task, "exact", f"{_WRITES}, 1", "exact is better than one write")
        found += results.better(task, "exact", f"{_WRITES}, 4", "exact is better than four writes")
        found += results.better(task, f"{_WRITES}, 4", f"{_WRITES}, 1", "writing more often helps")
        words = "momentum helps the delta rule"
        found += results.better(task, "delta rule with momentum", f"{_WRITES}, 1", words)
        for name in _SOLVERS:
            words = f"{most} steps of {name} are better than one"
            found += results.better(task, f"{name}, {most}", f"{name}, 1", words)
            words = f"exact is better than one step of {name}"
            found += results.better(task, "exact", f"{name}, 1", words)
            found += _as_good(results, task, f"{name}, {most}")
    return found


def _as_good(results: Results, task: str, method: str) -> list[Claim]:
    """Whether a method comes as near to exact as a tenth of the way from linear attention to it."""
    cells = [results.cells.get((task, m)) for m in (method, "exact", "linear attention")]
    if None in cells:
        return []
    some, exact, linear = (mean(list(c.at().values()))[0] for c in cells if c)
    left = (some - exact) / (linear - exact) if linear != exact else 0.0
    words = f"{task}: {method} is as good as exact"
    figures = f"{some:.3f} and {exact:.3f}; of the way from linear attention {left:.2f} is left"
    return [Claim(words, left <= 0.1, f"{figures}, at most .1")]


def panels(results: Results) -> list[Panel]:
    """A panel a task: the score over all by iterations; a level line for what has no number."""
    return panels_by_number(results, (COUNTS[0], COUNTS[-1]), ", ")


STUDY = Study(
    name="steps",
    title="Steps a token against the exact solution",
    summary="Iterations of a memory's regression at every token, trained, beside its solution.",
    methods=METHODS,
    chosen=list(METHODS),
    tasks=(SMALL_RECALL, LASTING),
    claims=claims,
    panels=panels,
    x_label="iterations a token",
)


def main(arguments: Sequence[str] | None = None) -> int:
    return command.main(STUDY, arguments)
