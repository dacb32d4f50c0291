"""Programs that people read: README's, docs/python.md's and the example's."""

import contextlib
import io
import re
import runpy
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


def blocks(document: str) -> list[str]:
    """The Python programs of a document that need no PyTorch."""
    text = (ROOT / document).read_text(encoding="utf-8")
    programs = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [program for program in programs if "torch" not in program]


def test_readme() -> None:
    (program,) = blocks("README.md")[:1]
    printed = io.StringIO()
    names: dict[str, Any] = {}
    with contextlib.redirect_stdout(printed):
        exec(compile(program, "README.md", "exec"), names)
    match = re.search(r"forecast (-?[\d.]+), came (-?[\d.]+)", printed.getvalue())
    assert match
    assert float(match[1]) == pytest.approx(np.sin(0.1 * 199), abs=1e-3)
    assert float(match[2]) == pytest.approx(np.sin(0.1 * 199), abs=1e-6)
    assert np.shape(names["y"]) == (1, 512, 8, 64)


def test_documented_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every program of docs/python.md goes on where the one before it ended."""
    monkeypatch.chdir(tmp_path)
    programs = blocks("docs/python.md")
    assert len(programs) >= 4
    names: dict[str, Any] = {}
    for program in programs:
        exec(compile(program, "docs/python.md", "exec"), names)


def test_forecast(capsys: pytest.CaptureFixture[str]) -> None:
    example = runpy.run_path(str(ROOT / "examples" / "python" / "forecast.py"))
    example["main"](ROOT / "data" / "co2_weekly.csv")
    printed = capsys.readouterr().out
    errors = [float(n) for n in re.findall(r"error of .*: ([\d.]+) ppm", printed)]
    assert len(errors) == 2 and errors[1] < 0.9 * errors[0]
    match = re.search(r"differ by ([\de.+-]+)", printed)
    assert match and float(match[1]) < 1e-6  # eps times the condition, 5e5, times the data's 40


def test_server(capsys: pytest.CaptureFixture[str]) -> None:
    """However streams are batched, and with whatever is kept and guessed: the texts are the same."""
    example = runpy.run_path(str(ROOT / "examples" / "python" / "server.py"))
    texts = example["main"](6)
    assert len(texts) == 5 and all(len(texts[0]) == 6 == len(other) for other in texts)
    assert all(other == texts[0] for other in texts)
    printed = capsys.readouterr().out
    steps = [int(n) for n in re.findall(r"steps: (\d+)", printed)]
    assert steps[4] < 0.7 * steps[3]  # guesses were right
    assert "prompt tokens from the cache" in printed


def test_panel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn")
    pictures = tmp_path if shutil.which("ttr") else None
    example = runpy.run_path(str(ROOT / "examples" / "panel" / "panel.py"))
    error, naive, inside = example["main"](pictures)
    assert error < 0.65 * naive and 0.87 < inside < 0.96
    assert "40 series go on after 132 rows" in capsys.readouterr().out
    if pictures is not None:
        drawn = (pictures / "shop-00.svg").read_text(encoding="utf-8")
        assert drawn.lstrip().startswith("<svg") and "to come, 90 %" in drawn
