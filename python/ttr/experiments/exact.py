"""`python -m ttr.experiments exact`: least squares beside its one-step neighbours.

One regression, three ways to solve it: one gradient step over all pairs (linear attention), one
gradient step a pair (the delta rule), exactly (least squares); each without forgetting and with.
Layers that ask for as many inputs have as many parameters, and the same surroundings
(`tasks.task.design`).
"""

from __future__ import annotations

from collections.abc import Sequence

from ._figures import Claim
from .studies import command, texts
from .studies.report import panels_by_x
from .studies.results import Results
from .studies.study import Study
from .tasks.linear import CHANGING
from .tasks.recall import RECALL
from .tasks.text import Text

METHODS = {
    "linear attention": "importance(input) | linear | gradient",
    "DeltaNet": "deltanet",
    "RLS": "importance(input) | linear | exact(ridge: 0.01)",
    "gated linear attention": "decay(scalar) x importance(input) | linear | gradient",
    "Gated DeltaNet": "gated_deltanet",
    "weighted RLS": "weighted_rls{ridge: 0.01}",
    "MesaNet": "mesa{ridge: 0.01}",
    "Longhorn": "longhorn",
}
_CHOSEN = list(METHODS)[:-1]


def claims(results: Results) -> list[Claim]:
    """Exact against one step, over all and after the most pairs."""
    found: list[Claim] = []
    for task in results.tasks:
        for one, others in (
            ("RLS", ("linear attention", "DeltaNet")),
            ("weighted RLS", ("gated linear attention", "Gated DeltaNet")),
            ("MesaNet", ("Gated DeltaNet",)),
        ):
            for other in others:
                found += results.better(task, one, other)
    for one, other in (("RLS", "DeltaNet"), ("weighted RLS", "Gated DeltaNet")):
        for task in (RECALL.name, CHANGING.name):
            for cell in results.of(task)[:1]:
                found += results.better(task, one, other, x=cell.places[-1])
    words = "forgetting helps least squares where the answer changes"
    found += results.better(CHANGING.name, "weighted RLS", "RLS", words)
    return found


STUDY = Study(
    name="exact",
    title="What the exact memory buys",
    summary="Least squares beside its one-step neighbours, trained, at equal parameters.",
    methods=METHODS,
    chosen=_CHOSEN,
    tasks=(RECALL, CHANGING, Text()),
    claims=claims,
    panels=panels_by_x,
)


def main(arguments: Sequence[str] | None = None) -> int:
    return command.main(STUDY, arguments, texts.with_text, texts.add)
