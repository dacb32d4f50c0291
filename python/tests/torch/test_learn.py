"""`python -m ttr.experiments learn`: its tasks, and what it says of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from ttr.experiments import __main__, learn
from ttr.experiments.studies.results import Results
from ttr.experiments.studies.study import Settings, run
from ttr.experiments.tasks import by_name
from ttr.experiments.tasks.task import Task
from ttr.torch.nn import PUBLISHED

FEW: dict[str, Any] = {
    "width": 8, "steps": 2, "batch": 2, "tests": 4, "pairs": 3, "vocabulary": 16, "tokens": 8,
}  # fmt: skip
TASKS = learn.STUDY.tasks


def trained(task: Task, method: str, **changes: Any) -> dict[str, Any]:
    sizes = task.check({**task.quick, **FEW, **changes})
    return run(task, Settings(task.name, method, method, 1e-2, 0, sizes))


@pytest.mark.parametrize("method", ["softmax", "gated_deltanet", "lru"])
@pytest.mark.parametrize("task", TASKS, ids=[task.name for task in TASKS])
def test_a_method_trains_on_a_task(task: Task, method: str) -> None:
    row = trained(task, method)
    assert all(map(torch.isfinite, map(torch.tensor, (*row["loss"], *row["scores"].values()))))
    assert trained(task, method)["scores"] == row["scores"]


def test_every_published_layer_has_a_row() -> None:
    assert set(PUBLISHED) <= set(learn.METHODS) and set(learn.CHOSEN) <= set(learn.METHODS)


@pytest.mark.parametrize("method", ["gated_deltanet", "softmax", "rls", "hgrn2", "ttt_linear", "mamba2"])
def test_recall_is_learned_at_once(method: str) -> None:
    """Recall of 4 pairs of 16 tokens is learned in seconds. With a ridge of 0.001 rls comes to 0.65, hgrn2 and ttt_linear without
    their convolutions to 0.6 and 0.3, mamba2 with dt from 0.01 to 0.8."""
    sizes = {**by_name.SHORT_RECALL.quick, "steps": 150}
    row = run(by_name.SHORT_RECALL, Settings("short recall", method, method, 2e-2, 0, sizes))
    assert row["scores"]["all"] > 0.9, row["scores"]


def test_what_is_copied_stands_before() -> None:
    sizes = {**by_name.INDUCTION.quick, **FEW}
    text, places, answers = by_name.INDUCTION.examples(sizes, 0, 1, 5)
    assert text.shape == (5, 6) and torch.equal(text[:, :3], text[:, 3:])
    assert torch.equal(text.gather(1, places + 1), answers)
    assert all(len(set(row.tolist())) == 3 for row in text)
    with pytest.raises(ValueError, match="pairs must be at most vocabulary = 16 but is 17"):
        by_name.INDUCTION.check({**sizes, "pairs": 17})


def test_claims() -> None:
    def row(task: str, method: str, score: float) -> dict[str, Any]:
        settings = {"task": task, "method": method, "rate": 0.01, "seed": 0}
        return {"settings": settings, "scores": {"all": score}, "validation": {"all": score}}

    rows = [row("recall", "rls", 0.95), row("recall", "lru", 0.5), row("regression", "rls", 0.019)]
    rows += [row("regression", "gla", 0.021), row("regression", "knows the law", 0.01)]
    said = [str(claim) for claim in learn.claims(Results(rows, TASKS))]
    assert len(said) == 4
    assert said[0].startswith("holds: recall: rls learns it (accuracy 0.950, at least 0.9")
    assert said[1].startswith("does not hold: recall: lru") and said[2].startswith("holds: regression: rls")
    assert said[3] == "does not hold: regression: gla learns it (squared error 0.0210, at most 2 x 0.0100)"


def test_a_recipe_of_ones_own_stands_beside_the_methods(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = "decay(scalar) | linear(features: relu) | exact(ridge: 0.1)"
    few = ["--steps", "1", "--tests", "2", "--methods", "rls", "--tasks", "short recall", "--seeds", "1"]
    words = ["learn", "--quick", "--quiet", "--threads", "1", "--out", str(tmp_path), *few]
    assert __main__.main([*words, "--recipe", own]) == 0
    shown = capsys.readouterr().out
    assert f"\n{own} " in shown and "\nrls " in shown
    with pytest.raises(SystemExit):
        __main__.main([*words, "--recipe", "rls{rige: 1}"])
    assert "did you mean ridge?" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        __main__.main([*words, "--methods", "gated_deltane"])
    assert "did you mean gated_deltanet?" in capsys.readouterr().err
    assert __main__.main(["lern"]) == 2
    assert "did you mean learn?" in capsys.readouterr().err


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--steps", "1", "--tests", "2", "--methods", "rls", "--tasks", "induction", "--seeds", "1"]
    words = ["learn", "--quick", "--quiet", "--threads", "1", "--out", str(tmp_path), *few]
    assert __main__.main(words) == 0
    assert "induction: accuracy by pairs" in capsys.readouterr().out
