"""Kernels for a GPU that is not there: compiled, not run; and the command that measures them on one."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest
from ttr.torch import _gpu_runs, gpu_bench

triton = pytest.importorskip("triton")
DOCUMENT = pathlib.Path(__file__).parents[3] / "docs/performance/gpu.md"
PROGRAM = "from ttr.torch.triton import resources; print(resources.table((64,), (90,)), end='')"


def test_the_table_of_what_kernels_take() -> None:
    text = DOCUMENT.read_text()
    if f"Triton {triton.__version__} " not in text:
        pytest.skip(f"the document has another Triton than {triton.__version__}")
    # Another process: in this one Triton interprets.
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM]
    made = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    rows = made.splitlines()[2:]
    assert len(rows) == 30
    for row in rows:
        assert row in text
        kernel, _, _, _, stack, shared, _ = (cell.strip() for cell in row.strip("|").split("|"))
        assert int(shared) <= 227 * 1024, row
        assert int(stack) <= (0 if kernel in ("solve", "solve, one token", "step, one token") else 60 * 1024), row


def test_times_and_values_on_any_device() -> None:
    """Small, on the CPU: the command itself needs a GPU."""
    found = _gpu_runs.timed("mesa", 8, tokens=20, heads=2, device="cpu")
    assert found["forward"] > 0 and found["both"] > 0
    assert _gpu_runs.timed("kda", 8, tokens=20, heads=2, device="cpu")["both"] > 0
    assert _gpu_runs.timed("local_linear", 4, tokens=5, heads=2, device="cpu")["both"] > 0
    for name in gpu_bench.DECODED:
        assert _gpu_runs.timed_token(name, 8, heads=2, device="cpu")["token"] > 0
    names = ["rls", "delta_product", "softmax"]
    values = _gpu_runs.values(names, tokens=20, width=8, device="cpu")
    for name in names:
        assert len(values[name]["float32"]) == 4
        assert max(values[name]["float32"]) < 1e-4
        assert 0 < max(values[name]["bfloat16"]) < 2e-2


def test_tables_are_put_into_a_document(tmp_path: pathlib.Path) -> None:
    results = {
        "limits": {"device": "some GPU", "torch": "2", "copy": 4.0, "product": 700.0},
        "rls,64": {"forward": 1.0, "both": 3.0, "peak": 100.0},
        "fla gated_delta_rule,64": {"forward": 0.5, "both": 2.0, "peak": 80.0},
        "token rls,64": {"token": 31.0, "replayed": 12.5},
        "rls,128": {"failed": "no time was left"},
        "values,0": {"rls": {"float32": [1e-6, 2e-6], "bfloat16": [1e-3, 2e-3]}, "lru": {"failed": "why"}},
    }
    text = gpu_bench.tables(results)
    assert "| rls over fla gated_delta_rule, 64 | 2.00 | 1.50 | 1.25 | 3.0 |" in text
    assert "| rls,64 | 31.0 | 12.5 |" in text
    assert "| rls | 1e-06 2e-06 | 1e-03 2e-03 |" in text
    path = tmp_path / "gpu.md"
    path.write_text(f"before\n{gpu_bench._MARKS[0]}\nold\n{gpu_bench._MARKS[1]}\nafter\n")
    gpu_bench.write(path, text)
    written = path.read_text()
    assert written.startswith("before\n") and written.endswith("\nafter\n")
    assert "old" not in written and text in written


def test_a_document_without_marks_is_refused_before_any_run(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "other.md"
    path.write_text("something else\n")
    monkeypatch.setattr(sys, "argv", ["gpu_bench", "--list", "--output", str(path)])
    with pytest.raises(SystemExit):
        gpu_bench.main()
    assert "--output must be a document with <!-- measured: begin -->" in capsys.readouterr().err
    assert path.read_text() == "something else\n"


def test_every_run_has_a_name() -> None:
    names = gpu_bench.jobs("")
    assert names[:2] == ["limits", "rls,64"] and len(names) == len(set(names))
    assert gpu_bench.jobs("mesa") == ["mesa,64", "mesa,128", "fla mesa_net,64", "fla mesa_net,128",
                                         "token mesa,64", "token mesa,128"]  # fmt: skip
