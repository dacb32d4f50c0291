"""`python -m ttr.experiments local`: local linear attention against softmax, in context.

Regression of smooth functions from pairs in the context. A fit around every query, of degree 0
(softmax, Nadaraya-Watson), 1 (local linear) or 2, under the exponential kernel of attention and the
Gaussian one; beside them regressions that are global: exact in the kernel's space, and linear. All
have the same parameters and surroundings; how sharp a kernel is follows from the size of keys,
which is learned.
"""

from __future__ import annotations

from collections.abc import Sequence

from ._figures import Claim
from .studies import command
from .studies.report import panels_by_x
from .studies.results import Results
from .studies.study import Study
from .tasks.curves import EDGE, SMOOTH

_ATTENTION = "similarity(exponential) | {} | exact{} | reading(scale: 8)"
_GAUSSIAN = "similarity(gaussian, bandwidth: 0.1) | {} | exact{}"
METHODS = {
    "softmax": _ATTENTION.format("constant", ""),
    "local linear": _ATTENTION.format("polynomial(degree: 1)", "(ridge: 0.01)"),
    "Gaussian, degree 0": _GAUSSIAN.format("constant", ""),
    "Gaussian, degree 1": _GAUSSIAN.format("polynomial(degree: 1)", "(ridge: 0.01)"),
    "Gaussian, degree 2": _GAUSSIAN.format("polynomial(degree: 2)", "(ridge: 0.01)"),
    "kernel ridge": "uniform | kernel(gaussian, bandwidth: 0.1) | exact(ridge: 0.01)",
    "RLS": "rls{ridge: 0.01}",
}
_PAIRS = (
    ("local linear", "softmax"),
    ("Gaussian, degree 1", "Gaussian, degree 0"),
    ("Gaussian, degree 2", "Gaussian, degree 1"),
)


def claims(results: Results) -> list[Claim]:
    """Degree 1 against degree 0 over all, with few neighbours, and near the edge."""
    found: list[Claim] = []
    for task in results.tasks:
        for one, other in _PAIRS:
            found += results.better(task, one, other)
        found += results.better(task, "softmax", "RLS", "softmax is better than a linear fit")
        words = "a regression in the kernel's space is better than local linear"
        found += results.better(task, "kernel ridge", "local linear", words)
    for one, other in _PAIRS[:2]:
        for task, wanted in ((SMOOTH.name, ("2", "4", "64")), (EDGE.name, ("0.05", "1"))):
            places = {x for cell in results.of(task) for x in cell.places}
            for x in wanted:
                found += results.better(task, one, other, x=x) if x in places else []
        found += _gains_at_the_edge(results, one, other)
    return found


def _gains_at_the_edge(results: Results, one: str, other: str) -> list[Claim]:
    """Whether the error falls by a greater factor within .05 of the edge than beyond .4."""
    cells = [results.cells.get((EDGE.name, method)) for method in (one, other)]
    if None in cells or not all(c and {"0.05", "1"} <= set(c.places) for c in cells):
        return []
    edge, inside = (
        [sum(c.at(x).values()) for c in cells if c] for x in ("0.05", "1")
    )  # sums over the same seeds
    at_edge, within = edge[1] / edge[0], inside[1] / inside[0]
    words = f"{EDGE.name}: {one} gains more over {other} at the edge than inside"
    return [Claim(words, at_edge > within, f"error divided by {at_edge:.2f} and {within:.2f}")]


STUDY = Study(
    name="local",
    title="Fits around the query, in context",
    summary="Local linear attention against softmax: regression of smooth functions in context.",
    methods=METHODS,
    chosen=list(METHODS),
    tasks=(SMOOTH, EDGE),
    claims=claims,
    panels=panels_by_x,
)


def main(arguments: Sequence[str] | None = None) -> int:
    return command.main(STUDY, arguments)
