"""`python -m ttr.experiments mqar`: its data law, its runs, and what it says of them."""

from __future__ import annotations

import csv
import dataclasses
import json
import re
import shlex
import xml.etree.ElementTree
from pathlib import Path

import numpy as np
import pytest
import torch
from ttr.experiments import __main__
from ttr.experiments._chart import Panel, Series, chart, describe
from ttr.experiments.mqar import command, law, report, train
from ttr.experiments.mqar.model import ARCHITECTURES, METHODS, network, write_gate


def test_examples_are_well_formed() -> None:
    e = law.make(5, 256, 16, 8192, seed=1, number=4)
    assert e.tokens.shape == (5, 256) and e.places.shape == e.answers.shape == (5, 16)
    for text, places, answers in zip(e.tokens, e.places, e.answers):
        cues, responses = text[0:32:2], text[1:32:2]
        assert len(set(cues)) == len(set(responses)) == len(set(places)) == 16
        assert cues.min() >= 1 and cues.max() < 4096
        assert responses.min() >= 4096 and responses.max() < 8192
        assert np.array_equal(text[places], cues) and np.array_equal(answers, responses)
        assert (places % 2 == 0).all() and places.min() >= 32
        assert (np.delete(text[32:], places - 32) == 0).all()
    again = law.make(5, 256, 16, 8192, seed=1, number=4)
    assert np.array_equal(again.tokens, e.tokens)
    assert not np.array_equal(law.make(5, 256, 16, 8192, seed=2, number=4).tokens, e.tokens)
    full = law.make(2, 64, 16, 64, seed=0, number=0)  # every slot is taken
    assert (full.tokens[:, 32::2] > 0).all()


LAW = Path(__file__).resolve().parents[3] / "tests/experiments/mqar_law.json"


@pytest.mark.parametrize("known", json.loads(LAW.read_text(encoding="utf-8")))
def test_slots_follow_zoologys_law(known: dict[str, float]) -> None:
    """The signature of the original generator, from the table that the law of `ttr experiment` is
    held to as well; errors of four standard errors."""
    count, pairs = 2000, int(known["pairs"])
    e = law.make(count, int(known["tokens"]), pairs, 8192, seed=77, number=0)
    slots = (e.places - 2 * pairs) // 2
    error = 4 * slots.std() / np.sqrt(slots.size)
    assert slots.mean() == pytest.approx(known["mean"], abs=error + 0.05)
    assert np.median(slots) == pytest.approx(known["median"], abs=2)
    apart = e.places - 2 * np.arange(pairs)
    error = 4 * apart.std() / np.sqrt(apart.size)
    assert apart.mean() == pytest.approx(known["distance"], abs=error + 0.5)
    if pairs == 16:
        seen = {
            "first": (slots[:, 0] == 0).mean(),
            "second": (slots[:, 0] == 1).mean(),
            "occupied": (slots == 0).any(1).mean(),
        }
        for name, share in seen.items():
            odds = known[name]
            assert share == pytest.approx(odds, abs=4 * np.sqrt(odds * (1 - odds) / count))


def test_the_network_starts_as_the_papers_construction() -> None:
    """Without a step of training it is a memory of bigrams: exact least squares recalls few pairs.
    All of that is due to the lag of the keys: without it a memory learns what every token is, not
    what follows."""
    small = train.Settings(
        method="RLS", architecture="strict", pairs=8, vocabulary=512, lengths=(64,), steps=0
    )  # fmt: skip
    assert train.run(small)["accuracy"]["64"] > 0.95
    for lags in ((1.0, 0.0), (0.5, 0.5)):
        assert train.run(dataclasses.replace(small, lags=lags))["accuracy"]["64"] < 0.05
    steps = dataclasses.replace(small, steps=3, learn_lags=False)
    assert train.run(steps)["lags"] == [0, 1]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains(method: str, architecture: str) -> None:
    small = train.Settings(
        method=method, architecture=architecture, pairs=4, width=8, lengths=(16, 32, 8),
        vocabulary=32, steps=3, batch=4, labels=4, tests=3,
    )  # fmt: skip
    seen: list[int] = []
    row = train.run(small, seen.append)
    assert seen == [1, 2, 3] and set(row["accuracy"]) == {"16", "32"}
    assert np.isfinite(row["loss"]).all() and row == {**train.run(small), "seconds": row["seconds"]}
    gate = write_gate(network(method, architecture, 32, 8))
    assert len(gate) == (2 if architecture == "gate" else 0)


def test_runs_that_are_there_are_not_made_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = "--pairs 4 --widths 8 --lengths 16,32 --vocabulary 32 --steps 2 --batch 4 --rates 0.01"
    words = ["mqar", *sizes.split(), "--methods", "RLS,softmax", "--out", str(tmp_path), "--quiet"]
    assert __main__.main([*words, "--seeds", "1"]) == 0
    rows = sorted((tmp_path / "mqar").glob("*.json"))
    assert len(rows) == 4
    before = [path.stat().st_mtime_ns for path in rows]
    rows[0].write_text(rows[0].read_text()[:50])  # cut off: made anew
    made = []
    run = train.run
    monkeypatch.setattr(command, "run", lambda s, done: made.append(s) or run(s, done))
    assert __main__.main([*words, "--seeds", "2"]) == 0
    assert len(made) == 5 and json.loads(rows[0].read_text())["accuracy"]
    assert [path.stat().st_mtime_ns for path in rows[1:]] == before[1:]
    with (tmp_path / "mqar-trained.csv").open() as file:
        table = list(csv.DictReader(file))
    assert len(table) == 8 and {line["seeds"] for line in table} == {"2"}
    xml.etree.ElementTree.parse(tmp_path / "mqar-trained.svg")
    (panel, *_) = json.loads((tmp_path / "mqar-trained.json").read_text())["panels"]
    assert panel["title"] == "strict, P = 4, d = 8"
    assert [line["name"] for line in panel["series"]] == ["RLS", "softmax"]
    assert "RLS" in capsys.readouterr().out


def test_bad_options(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert __main__.main(["nothing"]) == 2 and __main__.main([]) == 2
    assert __main__.main(["--help"]) == 0
    for words in (["--methods", "GRU"], ["--pairs", "0"], ["--rates", "x"]):
        with pytest.raises(SystemExit) as stop:
            __main__.main(["mqar", *words])
        assert stop.value.code == 2
    assert __main__.main(["mqar", "--vocabulary", "100", "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "'GRU' must be of linear attention, RLS" in said
    assert "[mqar] vocabulary must be even and at least 2 pairs + 2 = 130 but is 100" in said


def row(method: str, seed: int, accuracy: float, **changes: object) -> report.Row:
    settings = {
        "method": method, "architecture": "gate", "pairs": 128, "width": 64, "rate": 0.005,
        "seed": seed, **changes,
    }  # fmt: skip
    return {
        "settings": settings, "accuracy": {"512": accuracy, "1024": accuracy - 0.01},
        "validation": accuracy, "seconds": 1.0,
    }  # fmt: skip


def test_claims_are_decided_by_the_data() -> None:
    rows = [row("RLS", s, 0.99 + 0.001 * s) for s in range(3)]
    rows += [row("linear attention", s, 0.8 + 0.01 * s) for s in range(3)]
    rows += [row("linear attention", s, 0.5, rate=0.1) for s in range(3)]
    rows += [row("linear attention", s, 0.97, pairs=64) for s in range(3)]
    cells = report.cells(rows)
    assert [c.rate for c in cells] == [0.005] * 3  # the better rate
    said = {c.words: c.holds for c in report.claims(cells)}
    assert said["RLS recalls more of P = 128 than linear attention, gate, d = 64"]
    assert said["RLS recalls P = 128 pairs, gate, d = 64"]
    assert not said["linear attention recalls P = d = 64 pairs, gate, d = 64"]
    # Only the first seed has tried every rate, and it is the one that chooses.
    swept = [row("RLS", 0, 0.9, rate=r) for r in (0.01, 0.1)] + [row("RLS", 0, 0.95, rate=0.02)]
    swept += [row("RLS", s, 0.5, rate=0.02) for s in (1, 2)]
    [cell] = report.cells(swept)
    assert cell.rate == 0.02 and len(cell.runs) == 3
    for rates in ((0.01, 0.1), (0.1, 0.01)):  # of equals the smallest, in whatever order they come
        [cell] = report.cells([row("RLS", 0, 1.0, rate=r) for r in rates])
        assert cell.rate == 0.01
    noisy = [row("RLS", s, 0.8 + 0.1 * (-1) ** s) for s in range(3)]
    said = {c.words: c.holds for c in report.claims(report.cells(noisy + rows[3:6]))}
    assert not said["RLS recalls more of P = 128 than linear attention, gate, d = 64"]
    assert "does not hold: " in str(report.claims(report.cells(noisy))[0])


def test_the_map_of_the_paper_has_commands_that_parse() -> None:
    text = (Path(__file__).resolve().parents[3] / "docs/paper.md").read_text(encoding="utf-8")
    found = re.findall(r"`python -m ttr\.experiments mqar([^`]*)`", text)
    assert len(found) == text.count("experiments mqar") >= 3
    for words in found:
        assert command.parse(shlex.split(words)).quick is False


def test_a_chart_is_a_picture() -> None:
    points = Series("x & y", [1, 2], [0.1, float("nan")], [0.5, 0])
    drawn = chart("A < B", "s", [Panel("p", [points])], "T")
    root = xml.etree.ElementTree.fromstring(drawn)
    assert root.tag.endswith("svg") and "A &lt; B" in drawn and "nan" not in drawn
    (described,) = describe("A < B", "s", [Panel("p", [points])], "T")["panels"][0]["series"]
    assert described["low"] == [0.0, None]  # an error ends where the axis does
    assert described["high"] == [0.6, None] and described["y"] == [0.1, None]


def test_the_quick_form_bears_out_the_claims(tmp_path: Path) -> None:
    """A still smaller figure 3: 16 channels, with the write gate."""
    words = "mqar --quick --seeds 2 --architectures gate --threads 1 --quiet".split()
    methods = ["--methods", "linear attention,RLS", "--out", str(tmp_path)]
    assert __main__.main([*words, *methods]) == 0
    options = command.parse([*words[1:], *methods])
    cells = command.make_cells(options)
    said = {c.words: c for c in report.claims(cells, 16)}
    claim = said["RLS recalls more of P = 32 than linear attention, gate, d = 16"]
    assert claim.holds, str(claim)
    claim = said["linear attention recalls less of P = 32, gate, d = 16"]
    assert claim.holds, str(claim)
