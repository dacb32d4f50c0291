"""Files of Python's programs: whole or not at all, and never over what they are made from."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ttr._files import refuse_inputs, whole, write_whole


def links(tmp_path: Path) -> dict[str, Callable[[Path], Path]]:
    """Ways to say a file's name."""

    def symbolic(path: Path) -> Path:
        (tmp_path / "link").symlink_to(path)
        return tmp_path / "link"

    def hard(path: Path) -> Path:
        (tmp_path / "hard").hardlink_to(path)
        return tmp_path / "hard"

    def detour(path: Path) -> Path:
        (tmp_path / "folder").mkdir()
        return tmp_path / "folder" / ".." / path.name

    return {"itself": lambda path: path, "symbolic": symbolic, "hard": hard, "detour": detour}


@pytest.mark.parametrize("way", ["itself", "symbolic", "hard", "detour"])
def test_an_output_that_is_an_input_is_refused(tmp_path: Path, way: str) -> None:
    text = tmp_path / "text.md"
    text.write_text("read\n")
    output = links(tmp_path)[way](text)
    with pytest.raises(ValueError, match="--out must not lead to an input but"):
        refuse_inputs("--out", [tmp_path / "other.csv", output], [text])
    refuse_inputs("--out", [tmp_path / "other.csv"], [text])


def test_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("old")
    with pytest.raises(RuntimeError), whole(path) as part:
        part.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_a_link_stays_one(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to(target)  # leads nowhere yet
    for text in ("new", "newer"):
        write_whole(link, text)
        assert link.is_symlink() and target.read_text() == text
    target.chmod(0o640)
    write_whole(link, "newest")
    assert target.stat().st_mode & 0o777 == 0o640
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(OSError):
        write_whole(loop, "nothing")
    assert loop.is_symlink()


@pytest.mark.parametrize(
    "name, why", [(".", "is a folder"), ("absent/rows.json", "which is not there"), ("loop", "is none")]
)
def test_a_benchmark_asks_for_its_file_before_it_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, why: str
) -> None:
    pytest.importorskip("torch")
    from ttr import bench

    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    monkeypatch.setattr(bench, "measure", lambda *_: pytest.fail("measured"))
    monkeypatch.setattr(sys, "argv", ["bench", "--json", str(tmp_path / name)])
    with pytest.raises(SystemExit):
        bench.main()
    message = capsys.readouterr().err
    assert "--json must be a file" in message and why in message


def test_a_benchmark_writes_through_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    from ttr import bench

    link = tmp_path / "link.json"
    link.symlink_to(tmp_path / "rows.json")
    monkeypatch.setattr(bench, "measure", lambda *_: [])
    monkeypatch.setattr(sys, "argv", ["bench", "--only", "default", "--json", str(link)])
    bench.main()
    assert json.loads((tmp_path / "rows.json").read_text()) == {"default": []} and link.is_symlink()
