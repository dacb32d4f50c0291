"""`python -m ttr.experiments curvature`: memories between the delta rule and least squares.

A step a pair, divided by what the memory knows of the curvature: nothing (the delta rule), a diagonal, the
`rank` longest directions of the keys so far (`low_rank_rls`, O(rank Dk) numbers beside M: a quasi-Newton
memory), all of it (least squares). All ask for one write gate, and have as many parameters.

Beside them two ways to forget: weight decay that the step size multiplies (coupled, which is Gated
DeltaNet in other letters) and that it does not (decoupled). And steps that divide by the length of the
key alone: NLMS, which the paper says nobody has tried as a layer and which asks for no gate, and Longhorn,
both with keys of any length.
"""

from __future__ import annotations

from collections.abc import Sequence

from ._chart import Panel
from ._figures import Claim
from .studies import command, texts
from .studies.report import panels_by_number
from .studies.results import Results
from .studies.study import Study
from .tasks.linear import CHANGING
from .tasks.recall import RECALL
from .tasks.text import Text

RANKS = (1, 4, 8, 16)
_LOW, _NONE, _ALL = "low rank", "delta rule", "least squares"
_COUPLED, _DECOUPLED = "coupled decay", "decoupled decay"
_NLMS, _GATED_NLMS, _LONGHORN = "NLMS", "NLMS with eps = 1", "Longhorn"
METHODS = {
    _NONE: "deltanet",
    "diagonal": "uniform | linear | sgd(preconditioner: diagonal)",
    **{f"{_LOW} {n}": f"low_rank_rls{{rank: {n}, step: input}}" for n in RANKS},
    f"{_LOW} 4 fading": "low_rank_rls{rank: 4, step: input, curvature_decay: 0.95}",
    _ALL: "importance(input) | linear | exact(ridge: 1)",
    _COUPLED: "leaky_lms",
    _DECOUPLED: "decoupled_lms",
    _NLMS: "nlms",
    f"{_NLMS} of unit keys": "nlms{normalise_qk: true}",
    _GATED_NLMS: "nlms{eps: 1}",
    _LONGHORN: "longhorn",
}


def claims(results: Results) -> list[Claim]:
    found: list[Claim] = []
    for task in results.tasks:
        for n in RANKS:
            words = f"a curvature of rank {n} is better than none"
            found += results.better(task, f"{_LOW} {n}", _NONE, words)
        found += results.better(task, _ALL, f"{_LOW} 4", "all of the curvature is better than 4")
        found += results.better(task, _DECOUPLED, _COUPLED, "decoupling the decay helps")
        found += results.better(task, _NLMS, _NONE, "NLMS is better than the delta rule")
        found += results.better(task, _NLMS, _LONGHORN)
        words = "NLMS gains where short keys write less (eps = 1)"
        found += results.better(task, _GATED_NLMS, _NLMS, words)
        found += results.better(task, _GATED_NLMS, _LONGHORN)
        found += results.better(task, _NLMS, f"{_NLMS} of unit keys", "NLMS gains by keys of any length")
    return found


def panels(results: Results) -> list[Panel]:
    """A panel a task: the score over all by the rank; level lines for what has none."""
    return panels_by_number(results, (RANKS[0], RANKS[-1]), " ")


STUDY = Study(
    name="curvature",
    title="Between the delta rule and least squares",
    summary="A step a pair divided by a curvature of rank 0 to Dk or by the key's length, trained.",
    methods=METHODS,
    chosen=list(METHODS),
    tasks=(RECALL, CHANGING, Text()),
    claims=claims,
    panels=panels,
    x_label="rank of the curvature",
)


def main(arguments: Sequence[str] | None = None) -> int:
    return command.main(STUDY, arguments, texts.with_text, texts.add)
