"""`python -m ttr.experiments mqar --procedure zoology`: data, runs, and where they go on."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import xml.etree.ElementTree
from pathlib import Path
from typing import Any

import pytest
import torch
from ttr.experiments import __main__
from ttr.experiments.mqar import command, law
from ttr.experiments.mqar.model import ARCHITECTURES, METHODS
from ttr.experiments.mqar.zoology import data, grid, report, train

SMALL = train.Settings(
    method="RLS", pairs=4, width=8, tokens=16, rate=2e-2, vocabulary=32, examples=700, epochs=4,
    batch=64, tests=50,
)  # fmt: skip
WORDS = (
    "mqar --procedure zoology --device cpu --threads 1 --quiet --pairs 4 --widths 8 --lengths 16 "
    "--rates 0.02 --vocabulary 32 --examples 700 --epochs 4 --batch 64 --tests 50"
).split()


def made(settings: train.Settings, folder: Path) -> dict[str, Any]:
    run = train.Run(settings, folder / "state.pt", "cpu")
    assert run.go_on(lambda steps: True)
    return {**run.row(), "seconds": 0}


def test_a_set_is_drawn_once_and_a_greater_one_begins_with_it() -> None:
    few, tests = data.sets(1200, 30, 16, 4, 32, 3, "cpu")
    more, _ = data.sets(1300, 30, 16, 4, 32, 3, "cpu")
    assert len(few) == 1200 and len(tests) == 30 and torch.equal(more.tokens[:1200], few.tokens)
    assert not torch.equal(few.tokens[:30], tests.tokens)
    tokens, places, answers = few.batch(slice(1000, 1200))
    drawn = law.make(data.PART, 16, 4, 32, 3, 1)
    assert torch.equal(tokens, torch.from_numpy(drawn.tokens[:200]))
    assert torch.equal(places, torch.from_numpy(drawn.places[:200]))
    assert torch.equal(answers, torch.from_numpy(drawn.answers[:200]))


def test_a_run_learns(tmp_path: Path) -> None:
    """Better than chance among the 16 responses, and than what is left when the four of an example
    are known."""
    row = made(SMALL, tmp_path)
    assert row["validation"] > 0.5 and row["accuracy"] == {"16": row["validation"]}
    assert row["loss"][-1] < row["loss"][0] < math.log(32) + 0.1
    assert row["ended"] in ("epochs", "accuracy") and len(row["accuracies"]) == len(row["loss"])


@pytest.mark.parametrize("steps", [11, 15])  # behind the first epoch, and within the second
def test_a_run_that_is_cut_off_goes_on(steps: int, tmp_path: Path) -> None:
    whole = made(SMALL, tmp_path / "whole")
    run = train.Run(SMALL, tmp_path / "state.pt", "cpu")
    assert not run.go_on(lambda done: done < steps)
    torch.rand(3)  # the state of the generator is not what a run depends on
    later = train.Run(SMALL, tmp_path / "state.pt", "cpu")
    assert later.step == steps and made(SMALL, tmp_path) == whole
    ended = train.Run(SMALL, tmp_path / "state.pt", "cpu")
    assert ended.ended and ended.go_on(lambda done: False)
    assert {**ended.row(), "seconds": 0} == whole


def test_a_run_that_is_killed_goes_on_from_its_last_epoch(tmp_path: Path) -> None:
    def stop(done: int) -> bool:
        if done == 13:
            raise KeyboardInterrupt
        return True

    with pytest.raises(KeyboardInterrupt):
        train.Run(SMALL, tmp_path / "state.pt", "cpu").go_on(stop)
    assert train.Run(SMALL, tmp_path / "state.pt", "cpu").step == SMALL.epoch_steps == 11
    assert made(SMALL, tmp_path) == made(SMALL, tmp_path / "whole")


def test_a_state_of_other_settings_or_a_broken_one_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "state.pt"
    train.Run(SMALL, file, "cpu").go_on(lambda done: done < 12)
    assert train.Run(dataclasses.replace(SMALL, rate=1e-3), file, "cpu").step == 0
    file.write_bytes(file.read_bytes()[:1000])
    assert train.Run(SMALL, file, "cpu").step == 0
    file.write_text("no state")
    assert train.Run(SMALL, file, "cpu").step == 0


def test_why_runs_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "ENOUGH", 0.1)
    row = made(SMALL, tmp_path / "accuracy")
    assert row["ended"] == "accuracy" and len(row["accuracies"]) < SMALL.epochs
    run = train.Run(SMALL, tmp_path / "loss.pt", "cpu")
    with torch.no_grad():
        run.model.embedding.weight.fill_(math.inf)
    assert run.go_on(lambda done: True) and run.row()["ended"] == "loss"
    assert run.row()["validation"] == 0 and run.step == SMALL.epoch_steps


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains(method: str, architecture: str, tmp_path: Path) -> None:
    few = dataclasses.replace(
        SMALL, method=method, architecture=architecture, examples=64, batch=32, epochs=2
    )
    row = made(few, tmp_path)
    assert len(row["loss"]) == 2 and all(map(math.isfinite, row["loss"]))


def test_the_rate_falls_epoch_by_epoch(tmp_path: Path) -> None:
    run = train.Run(SMALL, tmp_path / "state.pt", "cpu")
    seen = []

    def note(done: int) -> bool:
        seen.append(run.optimizer.param_groups[0]["lr"] / SMALL.rate)
        return True

    run.go_on(note)
    whole = [0.5 * (1 + math.cos(math.pi * epoch / 4)) for epoch in range(len(run.losses))]
    assert list(dict.fromkeys(seen)) == pytest.approx(whole) and len(whole) > 1


def test_the_papers_two_layers_come_first() -> None:
    runs = grid.settings_of(command.parse(["--procedure", "zoology"]))
    assert len(runs) == 5 * 4 * len(METHODS) * len(ARCHITECTURES)
    first = [(s.method, s.pairs, s.tokens) for s in runs[:40:4]]
    sizes = [(64, 256), (128, 512), (64, 512), (128, 1024), (64, 1024)]
    assert first == [(m, p, t) for p, t in sizes for m in ("RLS", "linear attention")]
    assert {s.architecture for s in runs[:40]} == {"strict"} and runs[40].method == "DeltaNet"
    rates = [10 ** (-2 - 2 * i / 3) for i in range(4)]
    assert [s.rate for s in runs[:4]] == pytest.approx(rates, 1e-4)
    assert {(s.tokens, s.batch) for s in runs} == {(256, 256), (512, 128), (1024, 64)}
    assert {(s.examples, s.epochs, s.tests) for s in runs} == {(100_000, 64, 3000)}


def test_the_command_stops_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [*WORDS, "--methods", "RLS,softmax", "--architectures", "strict"]
    words += ["--out", str(tmp_path)]
    assert __main__.main([*words, "--minutes", "0"]) == 0
    out, err = capsys.readouterr()
    next_one = "next: RLS, strict, P = 4, d = 8, T = 16, rate 0.02, seed 0"
    assert not out and err == f"left: 2 of 2 runs; {next_one}\n"
    assert not (tmp_path / "mqar-zoology.csv").exists()

    now = [0.0]  # of a clock on which a step takes a second: a minute is not enough for both runs
    monkeypatch.setattr("ttr.experiments.mqar.zoology.command.time.monotonic", lambda: now[0])
    step = train.Run._make_step

    def slow(run: train.Run, training: data.Examples) -> None:
        now[0] += 1
        step(run, training)

    monkeypatch.setattr(train.Run, "_make_step", slow)
    assert __main__.main([*words, "--minutes", "1"]) == 0
    out, err = capsys.readouterr()
    assert "left: 1 of 2 runs; next: softmax, strict" in err
    assert "1 of 4 epochs made" in err and "softmax" not in out
    assert len(list((tmp_path / "mqar-zoology").glob("*.pt"))) == 1
    assert __main__.main(words) == 0
    out, err = capsys.readouterr()
    assert "left" not in err and "softmax" in out
    rows = [json.loads(f.read_text()) for f in (tmp_path / "mqar-zoology").iterdir()]
    assert len(rows) == 2
    assert {**made(SMALL, tmp_path), "seconds": 0}.items() <= {
        **next(r for r in rows if r["settings"]["method"] == "RLS"), "seconds": 0
    }.items()  # fmt: skip
    with (tmp_path / "mqar-zoology.csv").open() as file:
        assert [line["method"] for line in csv.DictReader(file)] == ["RLS", "softmax"]
    xml.etree.ElementTree.parse(tmp_path / "mqar-zoology.svg")


def test_bad_options(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    bad = {
        "--steps 5": "--steps must be given without --procedure zoology",
        "--labels 5": "--labels must be given without --procedure zoology",
        "--minutes -1": "argument --minutes: '-1' must be at least 0",
        "--epochs 0": "argument --epochs: '0' must be above 0",
        "--examples 0": "argument --examples: '0' must be above 0",
        "--device tpu": "argument --device: invalid choice: 'tpu'",
        "--tests 0": "--tests must be above 0 but is 0",
        "--seeds 0": "--seeds must be above 0 but is 0",
    }
    for words, said in bad.items():
        with pytest.raises(SystemExit) as stop:
            __main__.main([*WORDS, *words.split()])
        assert stop.value.code == 2 and said in capsys.readouterr().err
    for words in ("--minutes 1", "--device cpu", "--epochs 2", "--examples 5"):
        with pytest.raises(SystemExit):
            __main__.main(["mqar", *words.split()])
        name = words.split()[0]
        assert f"{name} must be given with --procedure zoology" in capsys.readouterr().err
    out = ["--out", str(tmp_path)]
    assert __main__.main([*WORDS, *out, "--lengths", "8,12"]) == 2
    said = "lengths must have one of at least 4 pairs = 16 but are 8, 12"
    assert said in capsys.readouterr().err
    assert __main__.main([*WORDS, *out, "--vocabulary", "8"]) == 2
    assert "vocabulary must be even and at least" in capsys.readouterr().err
    if not torch.cuda.is_available():
        assert __main__.main([*WORDS, *out, "--device", "cuda"]) == 2
        assert "device must be cpu" in capsys.readouterr().err


def test_what_unfinished_runs_say() -> None:
    """A point takes each seed's best rate; claims and picture take what is whole."""
    runs = [
        dataclasses.replace(SMALL, method=m, pairs=p, tokens=t, rate=r)
        for m in ("RLS", "linear attention")
        for p, t in ((8, 32), (8, 64), (16, 64))
        for r in (0.01, 0.001)
    ]
    rows: list[report.Row | None] = [
        {
            "settings": s.row(), "validation": 1 - 10 * s.rate, "accuracies": [0.5],
            "accuracy": {str(s.tokens): 1 - 10 * s.rate}, "seconds": 1.0,
        }
        for s in runs
    ]  # fmt: skip
    rows[8:10] = [None, None]  # linear attention, P = 8, T = 64
    rows[6] = None  # and one rate at T = 32
    points = report.points(runs, rows)
    assert len(points) == 5 and [p.whole for p in points] == [True] * 3 + [False, True]
    assert points[0].accuracies == [0.99]
    claims = " ".join(c.words for c in report.claims(points, [32, 64], 8))
    assert "RLS recalls P = 16" in claims and "linear attention recalls P = d" not in claims
    assert report.picture([]) == "" and "P = 16" in report.picture(points)
    assert len(report.table(points).splitlines()) == 6 and "0.990" in report.text(points)
