"""The changes that CONTRIBUTING.md shows: how many places they touch, and the one in Python, taken away and put
back. tests/contributing makes those in C++."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torch_cases as cases
import ttr.torch.portable

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
#: By heading, the first diff behind it.
WALKS = {
    heading: diff
    for heading, section in re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", TEXT, re.M | re.S)
    for diff in re.findall(r"^```diff\n(.*?)^```", section, re.M | re.S)[:1]
}


def spots_of(diff: str) -> list[tuple[str, str, str]]:
    """The file, the text before and the text after of every spot."""
    found = []
    for name, body in re.findall(r"^\+\+\+ b/([^\n]*)\n(.*?)(?=^--- |\Z)", diff, re.M | re.S):
        for spot in re.split(r"^@@.*\n", body, flags=re.M)[1:]:
            lines = spot.splitlines()
            before = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("+"))
            after = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("-"))
            found.append((name, before, after))
    return found


def test_the_table_counts_the_walks() -> None:
    (table,) = re.findall(r"^\| change \|.*?\n\|[-|]+\n(.*?)\n\n", TEXT, re.M | re.S)
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()]
    counted = [
        [name, str(len({file for file, *_ in spots})), str(len(spots))]
        for name, spots in ((name, spots_of(diff)) for name, diff in WALKS.items())
    ]
    assert rows == counted


def without(diff: str, folder: Path) -> ModuleType:
    """ttr.torch.portable before a diff."""
    folder.mkdir()
    for source in Path(ttr.torch.portable.__file__).parent.glob("*.py"):
        text = source.read_text()
        for name, before, after in spots_of(diff):
            if name.endswith(f"portable/{source.name}"):
                assert text.count(after) == 1, after
                text = text.replace(after, before)
        (folder / source.name).write_text(text)
    name = "ttr.torch.portable_before"
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def test_a_portable_form_is_the_diff_that_is_shown(tmp_path: Path) -> None:
    before = without(WALKS["A portable form"], tmp_path / "portable")
    inputs = cases.inputs("efla", cases.Sizes())
    with pytest.raises(ValueError, match="step: efla is not known there"):
        before.regress("efla", **inputs)
    y = ttr.torch.portable.regress("efla", **inputs)
    assert isinstance(y, torch.Tensor)
    layer = ttr.Layer("efla", engine="definition")
    expected, _ = layer.forward(**{name: x.numpy() for name, x in inputs.items()})
    assert (y - torch.from_numpy(expected)).abs().max() < 1e-12
    longhorn = cases.inputs("longhorn", cases.Sizes())
    assert torch.equal(before.regress("longhorn", **longhorn), ttr.torch.portable.regress("longhorn", **longhorn))


def test_a_table_of_cases_has_the_recipe_of_the_diff() -> None:
    for name, _, after in spots_of(WALKS["A portable form"]):
        assert after in (ROOT / name).read_text()
