"""The programs of docs/transformers.md, and its table of families."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

transformers = pytest.importorskip("transformers", reason="the models are those of transformers")

from transformer_models import FAMILIES

TEXT = (Path(__file__).resolve().parents[3] / "docs/transformers.md").read_text(encoding="utf-8")


def test_programs(capsys: Any) -> None:
    found = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    assert len(found) == 3
    names: dict[str, Any] = {}
    for program in found:
        exec(compile(program, "docs/transformers.md", "exec"), names)
    assert re.search(r"torch_recurrent_gated_delta_rule +57  ttr", capsys.readouterr().out)


def test_the_table_has_all_families() -> None:
    """Those of the newest release that is known; an older one has fewer."""
    table = TEXT.split("<!-- families:")[1].split("\n\nWhere")[0]
    rows = dict(re.findall(r"^\| (\w+) \| ([^|]+) \|", table, re.MULTILINE))
    rows.pop("family")
    assert FAMILIES.items() <= rows.items()
    if not transformers.__version__.startswith("5.23."):
        assert FAMILIES == rows
