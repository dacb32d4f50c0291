"""`python -m ttr.experiments learn`: what each published layer learns with the defaults of its name."""

from __future__ import annotations

from collections.abc import Sequence

from ttr.torch.nn import PUBLISHED

from ._figures import Claim, mean
from .studies import command
from .studies.report import panels_by_x
from .studies.results import Results
from .studies.study import Study
from .tasks.by_name import INDUCTION, LONG_RECALL, RECALL, REGRESSION

_NAMES = (*PUBLISHED, "softmax", "kernel_smoother", "rls")
METHODS = {name: name for name in _NAMES} | {"rls ridge 1": "rls{ridge: 1.0}"}
#: Of every kind one, the best known.
CHOSEN = (
    "softmax", "linear_attention", "retnet", "gla", "mamba2", "mlstm", "deltanet", "gated_deltanet",
    "kda", "longhorn", "rwkv7", "mesa", "rls", "rls ridge 1",
)  # fmt: skip
#: Of an answer that is asked, what has to be right, and of ridge regression's error how many times.
RIGHT, TIMES = 0.9, 2.0


def claims(results: Results) -> list[Claim]:
    """Whether each layer learns each task."""
    found = []
    for name, task in results.tasks.items():
        law = results.cells.get((name, task.reference))
        for cell in results.of(name):
            if cell is law:
                continue
            score = mean(list(cell.at().values()))[0]
            if law is None:
                bound, holds = f"at least {RIGHT:g}", score >= RIGHT
            else:
                best = mean(list(law.at().values()))[0]
                bound, holds = f"at most {TIMES:g} x {best:.4f}", score <= TIMES * best
            figures = f"{task.measure} {score:.{task.digits}f}, {bound}"
            found.append(Claim(f"{name}: {cell.method} learns it", holds, figures))
    return found


STUDY = Study(
    name="learn",
    title="What layers learn by their names",
    summary="LanguageModel with the defaults of a layer's name: recall, induction, regression.",
    methods=METHODS,
    chosen=CHOSEN,
    tasks=(RECALL, LONG_RECALL, INDUCTION, REGRESSION),
    claims=claims,
    panels=panels_by_x,
)


def main(arguments: Sequence[str] | None = None) -> int:
    return command.main(STUDY, arguments)
