"""Programs that people read: docs/sklearn.md's and the example's."""

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]


def test_documented_programs() -> None:
    """Every program of the document goes on where the one before it ended."""
    text = (ROOT / "docs" / "sklearn.md").read_text(encoding="utf-8")
    programs = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(programs) >= 3
    names: dict[str, Any] = {}
    for program in programs:
        exec(compile(program, "docs/sklearn.md", "exec"), names)


def test_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    example = runpy.run_path(str(ROOT / "examples" / "python" / "streaming.py"))
    example["forecast"](ROOT / "data" / "co2_weekly.csv")
    example["regress"]()
    printed = capsys.readouterr().out
    skill = re.search(r"last value: ([\d.]+)", printed)
    assert skill and float(skill[1]) > 0.2
    steady, forgetting = re.findall(r"affine_rls.*: ([\d.]+) \+-", printed)
    assert abs(float(forgetting) - 3) < 0.1 < abs(float(steady) - 3)
    error = re.search(r"on the way: ([\d.]+)", printed)
    assert error and float(error[1]) < 0.33
