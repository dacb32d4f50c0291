"""examples/python/language_model.py, in a short form."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from ttr.torch.nn import LanguageModel

pytest.importorskip("safetensors", reason="models are kept in folders")

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "python" / "language_model.py"
MODEL = {
    "layers": ["gated_deltanet", "rls"], "vocabulary": 256, "hidden_size": 16, "num_heads": 2,
    "num_layers": 2,
}  # fmt: skip


def words(folder: Path, out: str, *more: Any) -> list[str]:
    config = folder / "config.json"
    config.write_text(json.dumps(MODEL), encoding="utf-8")
    sizes = ["--steps", 6, "--every", 2, "--tokens", 16, "--batch", 2]
    return [str(w) for w in ("--config", config, "--out", folder / out, *sizes, *more)]


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    return LanguageModel.from_pretrained(folder).state_dict()


def test_it_learns_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main = runpy.run_path(str(EXAMPLE))["main"]
    found = main(words(tmp_path, "model", "--steps", 60, "--every", 30, "--rate", 0.02))
    assert found < 6.5  # of 8; drawn weights have more
    said = capsys.readouterr().out
    assert "step 60 of 60: loss" in said and said.count("bits a byte") == 2
    model = LanguageModel.from_pretrained(tmp_path / "model")
    assert model.config.hidden_size == 16
    assert main(words(tmp_path, "model", "--steps", 60, "--every", 30)) == found  # all was done


def test_a_run_that_was_cut_off_goes_on_bit_for_bit(tmp_path: Path) -> None:
    main = runpy.run_path(str(EXAMPLE))["main"]
    whole = main(words(tmp_path, "whole"))
    main(words(tmp_path, "cut", "--stop-at", 3))
    assert torch.load(tmp_path / "cut" / "training.pt", weights_only=True)["step"] == 3
    assert main(words(tmp_path, "cut")) == whole
    want, found = tensors(tmp_path / "whole"), tensors(tmp_path / "cut")
    assert all(torch.equal(found[name], want[name]) for name in want)


def test_parts_processes_and_bfloat16(tmp_path: Path) -> None:
    """Two parts, or two processes with one each, learn the same; in bfloat16, nearly."""
    main = runpy.run_path(str(EXAMPLE))["main"]
    main(words(tmp_path, "parts", "--accumulate", 2, "--steps", 2))
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    given = words(tmp_path, "processes", "--steps", 2)
    subprocess.run([*run, str(EXAMPLE), *given], check=True, capture_output=True, timeout=300)
    main(words(tmp_path, "narrow", "--accumulate", 2, "--steps", 2, "--bfloat16"))
    main(words(tmp_path, "half", "--steps", 2))
    want = tensors(tmp_path / "parts")
    apart = {
        out: max((t - want[n]).abs().max().item() for n, t in tensors(tmp_path / out).items())
        for out in ("processes", "narrow", "half")
    }
    assert apart["processes"] < 1e-5 < apart["narrow"] and apart["half"] > 1e-3, apart
    assert all(t.dtype == torch.float32 for t in tensors(tmp_path / "narrow").values())


def test_a_text_that_is_too_short(tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("all work and no play")
    main = runpy.run_path(str(EXAMPLE))["main"]
    with pytest.raises(SystemExit, match="a tenth has more than 16 bytes but has 20 in all"):
        main(words(tmp_path, "model", "--text", tmp_path / "short.txt"))


def test_options_that_no_run_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main = runpy.run_path(str(EXAMPLE))["main"]
    for option in ("--accumulate", "--batch", "--tokens", "--steps", "--every"):
        with pytest.raises(SystemExit):
            main(words(tmp_path, "model", option, 0))
        assert f"argument {option}: must be at least 1 but is 0" in capsys.readouterr().err
    main(words(tmp_path, "model", "--steps", 1))
    given = words(tmp_path, "model")
    (tmp_path / "config.json").write_text(json.dumps({**MODEL, "num_layers": 1}))
    with pytest.raises(SystemExit, match="--layers or --config must be what .*model was begun with"):
        main(given)
    (tmp_path / "config.json").write_text(json.dumps({**MODEL, "vocabulary": 100}))
    with pytest.raises(SystemExit, match="vocabulary of --config must be 256 at least, as bytes are, but is 100"):
        main(given)
