"""The programs of docs/pytorch.md, docs/models.md and docs/weights.md, and README's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from ttr.torch.nn import PUBLISHED
from ttr.torch.nn._words import table

ROOT = Path(__file__).resolve().parents[3]


def programs(document: str) -> list[str]:
    """The Python programs of a document that use PyTorch."""
    text = (ROOT / document).read_text(encoding="utf-8")
    found = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [program for program in found if "torch" in program]


def test_readme() -> None:
    program, training = programs("README.md")
    names: dict[str, Any] = {}
    exec(compile(program, "README.md", "exec"), names)
    assert names["y"].shape == names["o"].shape == (1, 512, 8, 64)
    scaled = names["o"] * 64**0.5
    torch.testing.assert_close(names["y"], scaled, rtol=1e-4, atol=1e-4)
    exec(compile(training, "README.md", "exec"), names)
    assert names["loss"] < 0.5


@pytest.mark.parametrize(("document", "count"), [("docs/pytorch.md", 8), ("docs/models.md", 5), ("docs/weights.md", 1)])
def test_every_program_goes_on_where_the_one_before_it_ended(document: str, count: int) -> None:
    found = programs(document)
    assert len(found) == count
    names: dict[str, Any] = {}
    for program in found:
        exec(compile(program, document, "exec"), names)


def test_the_table_of_designs_is_that_of_the_program() -> None:
    text = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    want = table(PUBLISHED)
    assert want in text, f"docs/models.md must have this table:\n{want}"
