"""`python -m ttr.experiments exact | steps | local`: tasks, runs, results, claims, commands."""

from __future__ import annotations

import argparse
import csv
import dataclasses
import importlib
import json
import re
import xml.etree.ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ttr.experiments import __main__, _chart, curvature, exact, local, steps
from ttr.experiments._chart import Axis, Panel, Series, chart, describe
from ttr.experiments._options import words
from ttr.experiments._train import CHOICE, TEST
from ttr.experiments.studies import command, report
from ttr.experiments.studies.results import Results
from ttr.experiments.studies.study import Settings, Study, run
from ttr.experiments.tasks import curves, linear, text
from ttr.experiments.tasks.recall import sample
from ttr.experiments.tasks.task import Task, by_bins

STUDIES = {
    "exact": exact.STUDY, "steps": steps.STUDY, "curvature": curvature.STUDY, "local": local.STUDY,
}  # fmt: skip
TINY = {
    "recall": {"width": 8, "pairs": [2, 4], "vocabulary": 32, "labels_drawn": 2},
    "changing regression": {"inputs": 3, "width": 6, "tokens": 16, "period": 8},
    "regression": {"inputs": 3, "width": 6, "tokens": 12},
    "text": {"width": 8, "heads": 2, "layers": 1, "tokens": 16},
    "curves": {"width": 6, "head_dim": 2, "hidden": 4, "tokens": 8, "terms": 4},
    "surfaces": {"width": 6, "head_dim": 2, "hidden": 4, "tokens": 8, "terms": 4},
}


def tiny(task: Task, **changes: Any) -> Any:
    few = {"steps": 2, "batch": 2, "tests": 4, **TINY[task.name], **changes}
    return task.check({**task.quick, **few})


def trained(study: Study, task: Task, method: str, **changes: Any) -> dict[str, Any]:
    settings = Settings(task.name, method, study.methods[method], 1e-2, 0, tiny(task, **changes))
    return run(task, settings)


@pytest.mark.parametrize(
    ("name", "task", "method"),
    [
        (name, task.name, method)
        for name, study in STUDIES.items()
        for task in study.tasks
        for method in study.methods
        # Ranks of one recipe: the least is enough where sequences are long.
        if task.name != "text" or not method.startswith("low rank") or method == "low rank 1"
    ],
)
def test_every_method_trains_on_every_task(name: str, task: str, method: str) -> None:
    study = STUDIES[name]
    row = trained(study, study.task(task), method)
    assert len(row["loss"]) == 2 and np.isfinite(row["loss"]).all()
    assert np.isfinite(list(row["scores"].values())).all()
    assert "all" in row["validation"] and len(row["scores"]) > 1
    again = trained(study, study.task(task), method)
    assert {**again, "seconds": row["seconds"]} == row


def test_methods_that_are_compared_have_as_many_parameters() -> None:
    def count(study: Study, task: Task, method: str) -> int:
        return trained(study, task, method, steps=0)["parameters"]  # type: ignore[no-any-return]

    for task in exact.STUDY.tasks:
        alike = {count(exact.STUDY, task, m) for m in ("linear attention", "DeltaNet", "RLS")}
        names = ("gated linear attention", "Gated DeltaNet", "weighted RLS", "MesaNet")
        forgetful = {count(exact.STUDY, task, m) for m in names}
        assert len(alike) == len(forgetful) == 1 and max(alike) < max(forgetful)
    for task in local.STUDY.tasks:
        assert len({count(local.STUDY, task, m) for m in local.METHODS}) == 1
    for task in steps.STUDY.tasks:
        single = [m for m in steps.METHODS if m not in ("delta rule, 2", "delta rule, 4")]
        single.remove("delta rule with momentum")
        assert len({count(steps.STUDY, task, m) for m in single}) == 1
    for task in curvature.STUDY.tasks:
        forgetful = {count(curvature.STUDY, task, f"{how} decay") for how in ("coupled", "decoupled")}
        ungated = [m for m in curvature.METHODS if m.startswith("NLMS")]
        others = [m for m in curvature.METHODS if not m.endswith("decay") and m not in ungated]
        for methods in (ungated, others):
            assert len(forgetful) == len({count(curvature.STUDY, task, m) for m in methods}) == 1


# ---- Tasks ---------------------------------------------------------------------------------------


def squares_left(x: torch.Tensor, y: torch.Tensor) -> float:
    """By a linear fit of y [B, n] to x [B, n, d], summed over n."""
    left = y[..., None] - x @ torch.linalg.lstsq(x, y[..., None]).solution
    return left.square().sum((1, 2)).mean().item()


def test_linear_regression_follows_its_law() -> None:
    sizes = {**linear.CHANGING.quick, "tests": 64}
    x, y = linear.examples(sizes, 64, CHOICE, 0)
    assert torch.allclose(x.square().sum(-1), torch.full(x.shape[:2], 8.0), rtol=1e-5)
    assert y.var().item() == pytest.approx(1.01, rel=0.1)
    again, _ = linear.examples(sizes, 64, CHOICE, 0)
    other, _ = linear.examples(sizes, 64, CHOICE + 1, 0)
    assert torch.equal(x, again) and not torch.equal(x, other)
    # In tests the answer changes every period: each stretch has an exact fit of its own.
    for first in range(0, 96, 32):
        piece = slice(first, first + 32)
        assert squares_left(x[:, piece], y[:, piece]) / (32 - 8) == pytest.approx(0.01, rel=0.2)
    assert squares_left(x, y) / 96 > 0.3
    spread, _ = linear.examples(linear.LASTING.quick, 64, 0, 0)
    sizes_of = spread.square().mean((0, 1))
    assert sizes_of[0] > 3 * sizes_of[-1]


@pytest.mark.parametrize(
    ("task", "floor"), [(linear.CHANGING, 0.01), (linear.LASTING, 0.01), (curves.SMOOTH, 0.0025)]
)
def test_who_knows_the_law_ends_near_the_noise(task: Any, floor: float) -> None:
    best = task.best({**task.quick, "tests": 64}, TEST)
    errors = list(best.values())  # all, then by pairs
    assert min(errors) == errors[-1] and max(errors) > 0.3
    assert floor < errors[-1] < 2 * floor


def test_the_edge_is_harder() -> None:
    best = curves.EDGE.best({**curves.EDGE.quick, "tests": 64}, TEST)
    assert list(best) == ["all", "0.05", "0.1", "0.2", "0.4", "1"]
    assert best["0.05"] > best["1"] > 0.0025


@pytest.mark.parametrize("task", [linear.LASTING, curves.SMOOTH])
def test_a_network_answers_before_it_sees_the_label(task: Any) -> None:
    sizes = tiny(task)
    torch.manual_seed(1)
    network = task.network("rls{ridge: 0.01}", sizes)
    module = linear if task is linear.LASTING else curves
    x, y = module.examples(sizes, 2, 0, 0)
    changed = y.clone()
    changed[:, 5] += 1
    first, second = network(x, y), network(x, changed)
    assert torch.equal(first[:, :6], second[:, :6])
    assert not torch.allclose(first[:, 6:], second[:, 6:])


def test_networks_start_as_regressions_of_the_pairs() -> None:
    """Without training exact least squares finds the answer, but for what else is in its keys."""
    study, task = exact.STUDY, linear.CHANGING
    sizes = {**task.quick, "tokens": 64, "period": 0, "steps": 0, "tests": 32}
    for method, low, high in (("RLS", 0.0, 0.1), ("linear attention", 0.5, np.inf)):
        row = run(task, Settings(task.name, method, study.methods[method], 1e-2, 0, sizes))
        assert low < row["scores"]["64"] < high


def test_bins_take_what_is_at_most_their_edge() -> None:
    values, places = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1, 2, 2, 9])
    assert by_bins(values, places, [1, 2, 4]) == {"all": 2.5, "1": 1.0, "2": 2.5}


def test_text_is_cut_into_three(tmp_path: Path) -> None:
    whole = bytes(range(256)) * 160  # 20 pieces
    parts = text.cut(whole)
    assert [len(part) for part in parts] == [16 * 2048, 2 * 2048, 2 * 2048]
    (tmp_path / "short").write_bytes(whole[:4096])
    task = text.Text(paths=(tmp_path / "short",))
    with pytest.raises(ValueError, match="a tenth has more than 128 bytes but is 4096 bytes"):
        task.check(task.quick)
    (tmp_path / "a.md").write_bytes(whole)
    (tmp_path / "b.bin").write_bytes(whole)
    assert text.named([tmp_path]) == [tmp_path / "a.md"] == text.named([tmp_path / "a.md"])
    for path, said in ((tmp_path / "c", "is not there"), (tmp_path / "d", "no such file")):
        (tmp_path / "d").mkdir(exist_ok=True)
        with pytest.raises(ValueError, match=said):
            text.named([path])
    assert all(path.suffix == ".py" for path in text.own(tmp_path))
    for folder in ("docs", "include/ttr"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "docs" / "b.md").touch()
    assert [path.name for path in text.own(tmp_path)] == ["a.md", "b.md"]
    task = text.Text(paths=(tmp_path / "a.md",))
    said = task.check(task.quick)["text"]
    assert said.startswith("1 files such as a.md, 40960 bytes, sha256 ")


# ---- Results -------------------------------------------------------------------------------------


def row(task: str, method: str, seed: int, score: float, **changes: Any) -> dict[str, Any]:
    settings = {"task": task, "method": method, "recipe": "r", "rate": 0.01, "seed": seed}
    scores = {"all": score * 1.05, "8": score, "16": score * 1.1}
    return {
        "settings": {**settings, **changes}, "scores": scores, "validation": scores,
        "parameters": 7, "seconds": 1.0,
    }  # fmt: skip


def test_claims_are_decided_by_the_data() -> None:
    rows = []
    for seed in range(2):
        rows += [row("recall", "RLS", seed, 0.8 + 0.01 * seed)]
        rows += [row("recall", "DeltaNet", seed, 0.5 + 0.01 * seed)]
        rows += [row("recall", "DeltaNet", seed, 0.1, rate=0.1)]
        rows += [row("changing regression", "weighted RLS", seed, 0.2 + 0.1 * (-1) ** seed)]
        rows += [row("changing regression", "Gated DeltaNet", seed, 0.25)]
        rows += [row("changing regression", "RLS", seed, 0.9 + 0.1 * (-1) ** seed)]
    results = Results(rows, exact.STUDY.tasks)
    assert results.cells["recall", "DeltaNet"].rate == 0.01  # the better one
    said = {claim.words: claim for claim in exact.claims(results)}
    assert said["recall: RLS is better than DeltaNet"].holds
    assert said["recall, pairs 16: RLS is better than DeltaNet"].holds
    noisy = said["changing regression: weighted RLS is better than Gated DeltaNet"]
    assert not noisy.holds and "2 seeds" in noisy.figures
    assert any("forgetting helps" in words and claim.holds for words, claim in said.items())
    assert not any("linear attention" in words for words in said)  # it has not run


def test_a_rate_that_diverges_is_not_chosen() -> None:
    nan = float("nan")
    rows = [row("regression", "exact", 0, nan, rate=0.1), row("regression", "exact", 0, 0.5)]
    assert Results(rows, steps.STUDY.tasks).cells["regression", "exact"].rate == 0.01


def test_iterations_are_lines_over_their_number() -> None:
    scores = {1: 0.5, 2: 0.6, 4: 0.7, 8: 0.795}
    rows = [row("recall", f"conjugate gradients, {n}", 0, s) for n, s in scores.items()]
    rows += [row("recall", "exact", 0, 0.8), row("recall", "linear attention", 0, 0.4)]
    results = Results(rows, steps.STUDY.tasks)
    (panel,) = steps.panels(results)
    lines = {line.name: line for line in panel.series}
    assert list(lines["conjugate gradients"].x) == [1, 2, 4, 8]
    assert lines["exact"].y[0] == lines["exact"].y[1] == pytest.approx(0.84)
    said = {claim.words: claim.holds for claim in steps.claims(results)}
    assert said["recall: conjugate gradients, 8 is as good as exact"]
    assert said["recall: 8 steps of conjugate gradients are better than one"]


def test_gains_at_the_edge_are_compared() -> None:
    rows = []
    for method, edge, inside in (("softmax", 0.4, 0.2), ("local linear", 0.1, 0.1)):
        made = row("surfaces", method, 0, 0.0)
        rows.append({**made, "scores": {"all": inside, "0.05": edge, "1": inside}})
    said = {c.words: c for c in local.claims(Results(rows, local.STUDY.tasks))}
    claim = said["surfaces: local linear gains more over softmax at the edge than inside"]
    assert claim.holds and claim.figures == "error divided by 4.00 and 2.00"


def test_tables_and_pictures() -> None:
    rows = [row("recall", m, s, 0.5 + s / 10) for m in ("RLS", "DeltaNet") for s in range(2)]
    results = Results(rows, exact.STUDY.tasks)
    lines = list(csv.DictReader(report.table(results).splitlines()))
    assert [line["x"] for line in lines[:3]] == ["8", "16", "all"] and len(lines) == 6
    assert lines[0]["score"] == "0.55" and lines[0]["standard_error"] == "0.05"
    assert "RLS" in report.text(results) and "0.550 ± 0.050" in report.text(results)
    drawn = report.picture("A < B", results, report.panels_by_x(results), "")
    xml.etree.ElementTree.fromstring(drawn)
    assert "A &lt; B" in drawn and ">pairs<" in drawn and "mean of 2 seeds" in drawn


def test_axes_have_room_and_round_numbers() -> None:
    nan = float("nan")
    lines = [Series("s", [1, 2, 3], [1e-4, nan, 1.0], [nan, 0.1, 0.1])]
    panels = [Panel("p", lines, Axis(log=True), "x"), Panel("q", lines, Axis(2.0, 4.0))]
    drawn = chart("t", "s", panels, "shares")
    xml.etree.ElementTree.fromstring(drawn)
    said = re.sub(r"(?<=>)\s+", "", re.sub("<[^>]*>", "|", drawn))
    assert "nan" not in drawn and "|x|" in said and "|shares|" in said
    for tick in ("2", "2.5", "3", "3.5", "4"):
        assert f"|{tick}|" in said
    assert re.search(r"10\|+-4\|", said) and re.search(r"10\|+-1\|", said)  # powers of ten
    (logarithmic, linear) = describe("t", "s", panels, "shares")["panels"]
    assert logarithmic["y"] == {"scale": "log10"}
    assert linear["y"] == {"scale": "linear", "min": 2.0, "max": 4.0}
    assert logarithmic["x"] == {"label": "x", "scale": "log2"}
    shares = [Panel("p", [Series("s", [0.05, 1], [1, 2], [0, 0])])]
    assert describe("t", "s", shares, "")["panels"][0]["x"]["scale"] == "log10"


def test_without_the_command_there_is_a_table_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_chart, "program", lambda: None)
    few = ["--tasks", "changing regression", "--steps", "1", "--tests", "2", "--rates", "0.01"]
    assert __main__.main(words_for("exact", tmp_path, *few, "--methods", "RLS")) == 0
    assert (tmp_path / "exact.csv").exists() and not (tmp_path / "exact.svg").exists()
    assert "no picture, which the command ttr draws" in capsys.readouterr().err


# ---- Commands ------------------------------------------------------------------------------------


def words_for(name: str, out: Path, *more: str) -> list[str]:
    return [name, "--quick", "--quiet", "--threads", "1", "--out", str(out), *more]


def test_runs_that_are_there_are_not_made_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    few = ["--tasks", "changing regression", "--steps", "2", "--tests", "4", "--rates", "0.01"]
    words = words_for("exact", tmp_path, *few, "--methods", "RLS,DeltaNet")
    assert __main__.main([*words, "--seeds", "1"]) == 0
    rows = sorted((tmp_path / "exact").glob("*.json"))
    settings = [json.loads(path.read_text())["settings"] for path in rows]
    assert {s["method"] for s in settings} == {"RLS", "DeltaNet"}
    assert all(s["sizes"]["tests"] == 4 and "rates" not in s["sizes"] for s in settings)
    made: list[str] = []
    monkeypatch.setattr(
        command, "run", lambda task, s, done: made.append(s.method) or run(task, s, done)
    )
    assert __main__.main(words) == 0  # two seeds
    assert sorted(made) == ["DeltaNet", "RLS"]
    out = capsys.readouterr().out
    assert "knows the law" in out and "changing regression: RLS is better than DeltaNet" in out
    xml.etree.ElementTree.parse(tmp_path / "exact.svg")
    with (tmp_path / "exact.csv").open() as file:
        assert {line["seeds"] for line in csv.DictReader(file)} == {"2"}


def test_methods_are_chosen_by_their_names() -> None:
    for study in STUDIES.values():
        known = list(study.methods)
        assert words(known)(",".join(known)) == known, study.name
    with pytest.raises(argparse.ArgumentTypeError, match="'Gaussian' must be of .*Gaussian, degree 1"):
        words(local.METHODS)("softmax, Gaussian, degree 7")


def test_labels_of_a_loss_are_of_all_pairs() -> None:
    places = torch.arange(12).repeat(4, 1)
    drawn = [sample(places, 100 + places, 3, 7, step) for step in range(20)]
    assert all(p.shape == (4, 3) and torch.equal(a, 100 + p) for p, a in drawn)
    assert set(torch.cat([p for p, _ in drawn]).flatten().tolist()) == set(range(12))
    assert all(len(set(row.tolist())) == 3 for p, _ in drawn for row in p)
    assert torch.equal(drawn[5][0], sample(places, places, 3, 7, 5)[0])
    assert sample(places, places, 16, 7, 0)[0].shape == (4, 12)


def test_the_first_seed_chooses_the_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fake(task: Any, s: Any, done: Any) -> dict[str, Any]:
        error = abs(s.rate - 0.02) if s.seed == 0 else abs(s.rate - 0.01)
        made.append((s.rate, s.seed))
        scores = {"all": error, "1": error}
        return {"validation": scores, "scores": scores, "parameters": 1, "seconds": 0.0}

    made: list[tuple[float, int]] = []
    monkeypatch.setattr(command, "run", fake)
    few = ["--tasks", "changing regression", "--tests", "2", "--rates", "0.01,0.02,0.03"]
    words = words_for("exact", tmp_path, *few, "--methods", "RLS", "--seeds", "3")
    assert __main__.main(words) == 0
    assert made == [(0.01, 0), (0.02, 0), (0.03, 0), (0.02, 1), (0.02, 2)]
    with (tmp_path / "exact.csv").open() as file:
        lines = [line for line in csv.DictReader(file) if line["method"] == "RLS"]
    assert {(line["rate"], line["seeds"]) for line in lines} == {("0.02", "3")}
    capsys.readouterr()


@pytest.mark.parametrize(("name", "method"), [("exact", "RLS"), ("curvature", "NLMS")])
def test_text_is_what_is_named(tmp_path: Path, name: str, method: str) -> None:
    path = tmp_path / "t.txt"
    path.write_bytes(b"All work and no play. " * 2000)
    few = ["--tasks", "text", "--steps", "1", "--tests", "2", "--methods", method, "--seeds", "1"]
    assert __main__.main(words_for(name, tmp_path, *few, "--text", str(path))) == 0
    (made,) = (tmp_path / name).glob("*.json")
    assert "t.txt, 44000 bytes" in json.loads(made.read_text())["settings"]["sizes"]["text"]


@pytest.mark.parametrize("name", ["exact.csv", "exact.svg"])
def test_a_text_is_not_written_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (tmp_path / name).write_text("a text\n")
    (tmp_path / "link.md").symlink_to(tmp_path / name)
    assert exact.main(["--quick", "--out", str(tmp_path), "--text", str(tmp_path / "link.md")]) == 2
    assert "--out must not lead to an input" in capsys.readouterr().err
    assert (tmp_path / name).read_text() == "a text\n"


def test_bad_options(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for words in (["--methods", "GRU"], ["--steps", "0"], ["--tasks", "chess"], ["--rates", "-1"]):
        with pytest.raises(SystemExit) as stop:
            __main__.main(words_for("exact", tmp_path, *words))
        assert stop.value.code == 2
    gone = str(tmp_path / "gone")
    assert __main__.main(words_for("exact", tmp_path, "--text", gone)) == 2
    said = capsys.readouterr().err
    assert "'GRU' must be of linear attention, DeltaNet" in said
    assert f"exact: --text must be files or folders but {gone} is not there" in said
    for name in __main__.EXPERIMENTS.values():
        assert callable(importlib.import_module(f"ttr.experiments.{name}").main)
    with pytest.raises(ValueError, match="at least two periods = 64 but is 48"):
        linear.CHANGING.check({**linear.CHANGING.quick, "tokens": 48})
    with pytest.raises(ValueError, match=r"inputs \+ 2 = 3 but is 2"):
        curves.SMOOTH.check({**curves.SMOOTH.quick, "width": 2})
    frozen = Settings("t", "m", "r", 0.1, 0, {})
    with pytest.raises(dataclasses.FrozenInstanceError):
        frozen.rate = 1.0  # type: ignore[misc]
