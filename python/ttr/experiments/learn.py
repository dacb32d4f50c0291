"""`python -m ttr.experiments learn`: what each published layer learns with the defaults of its name."""

from __future__ import annotations

from collections.abc import Sequence

from ttr.torch.nn import PUBLISHED

from ._figures import Claim, mean
from .studies import command, texts
from .studies.report import panels_by_x
from .studies.results import Results
from .studies.study import Study
from .tasks.by_name import INDUCTION, LONG_RECALL, RECALL, REGRESSION, SHORT_RECALL, TEXT

METHODS = {name: name for name in PUBLISHED}
#: What they memorize within so many tokens is read behind them.
METHODS |= {f"{name} of 4": f"{name}{{mini_batch: 4}}" for name in ("lact", "in_place_ttt")}
METHODS |= {"kernel_smoother": "kernel_smoother", "rls ridge 1": "rls{ridge: 1.0}"}
#: Of every kind one, the best known.
CHOSEN = (
    "softmax", "linear_attention", "retnet", "gla", "mamba2", "mlstm", "deltanet", "gated_deltanet",
    "kda", "longhorn", "rwkv7", "mesa", "rls", "weighted_rls",
)  # fmt: skip
#: The share of answers that has to be right; how many times a reference's error is enough.
RIGHT, TIMES = 0.9, {REGRESSION.name: 2.0, TEXT.name: 1.0}


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
                times = TIMES[name]
                bound, holds = f"at most {times:g} x {best:.4f}", score <= times * best
            figures = f"{task.measure} {score:.{task.digits}f}, {bound}"
            found.append(Claim(f"{name}: {cell.method} learns it", holds, figures))
    return found


STUDY = Study(
    name="learn",
    title="What layers learn by their names",
    summary="LanguageModel with the defaults of a layer's name: recall, induction, regression, text.",
    methods=METHODS,
    chosen=CHOSEN,
    tasks=(SHORT_RECALL, RECALL, LONG_RECALL, INDUCTION, REGRESSION, TEXT),
    claims=claims,
    panels=panels_by_x,
)


def main(arguments: Sequence[str] | None = None) -> int:
    return command.main(STUDY, arguments, texts.with_text, texts.add)
