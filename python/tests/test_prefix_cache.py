"""The example's cache on disk: the bits of a run that went on, and writers that are killed."""

from __future__ import annotations

import random
import runpy
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("safetensors", reason="files are those of safetensors")

import ttr

PATH = Path(__file__).resolve().parents[2] / "examples" / "python" / "prefix_cache.py"
EXAMPLE = runpy.run_path(str(PATH))


@pytest.mark.parametrize("recipe", ["gated_deltanet", "kda", "mamba2", "rls", "softmax"])
def test_it_goes_on_with_the_same_bits(recipe: str, tmp_path: Path) -> None:
    """A layer that is read in one call, and one that goes on from what was kept of that call."""
    draw, layer = np.random.default_rng(0), ttr.Layer(recipe)
    inputs: dict[str, Any] = {n: draw.standard_normal((1, 200, 2, 8)).astype(np.float32) for n in "qkv"}
    for spec in ttr.input_specs(recipe):
        if spec["keyword"] in ("log_decay", "step", "importance"):
            size = [{"B": 1, "T": 200, "H": 2, "Dk": 8}.get(axis, 1) for axis in spec["shapes"][0]]
            gate = draw.uniform(0.1, 0.9, size).astype(np.float32)
            inputs[spec["keyword"]] = -gate if spec["keyword"] == "log_decay" else gate
    tokens, cache = np.arange(200), EXAMPLE["PrefixCache"](tmp_path, recipe)
    whole, _, states = layer.forward_at([64, 128], **inputs)
    for length, state in zip((64, 128), states):
        cache.keep(tokens[:length], [state])
    found, held = EXAMPLE["PrefixCache"](tmp_path, recipe).look_up(tokens)
    assert found == 128
    rest, _ = layer.forward(**{name: t[:, found:] for name, t in inputs.items()}, state=held[0])
    assert np.array_equal(rest, whole[:, found:])
    assert cache.look_up(np.concatenate([tokens[:100], tokens[:100]]))[0] == 64
    assert cache.look_up(tokens[1:]) == (0, None)
    assert cache.look_up(tokens[:128])[0] == 64  # a token is read in any case
    assert EXAMPLE["PrefixCache"](tmp_path, "another").look_up(tokens) == (0, None)


def test_prompts_have_the_same_answers(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    EXAMPLE["main"](str(tmp_path))
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed] == ["0", "2048", "2048", "2048"]
    assert all(line.endswith("the same bits: True") for line in printed)


def test_files_of_other_lengths_are_refused(tmp_path: Path) -> None:
    cache, tokens = EXAMPLE["PrefixCache"](tmp_path, "m"), np.arange(200)
    cache.keep(tokens[:64], [{"state": np.zeros(4, np.float32)}])
    cache.path(tokens[:64]).rename(cache.path(tokens[:128]))
    with pytest.raises(ValueError, match="must be of 128 tokens but is of"):
        cache.look_up(tokens)
    with pytest.raises(ValueError, match="tokens must be pages of 64 but are 65"):
        cache.keep(tokens[:65], [])


WRITER = """
import runpy, sys
import numpy as np
example = runpy.run_path(sys.argv[1])
cache, first = example["PrefixCache"](sys.argv[2], "m"), int(sys.argv[3])
print("ready", flush=True)
for i in range(first, first + 10000):
    cache.keep(np.full(64, i), [{"state": np.full(1 << 20, i, np.float32)}])
    print(i, flush=True)
"""


def test_writers_that_are_killed_lose_nothing(tmp_path: Path) -> None:
    cache, draw, kept = EXAMPLE["PrefixCache"](tmp_path, "m"), random.Random(0), 0
    for attempt in range(40):
        words = [sys.executable, "-c", WRITER, str(PATH), str(tmp_path), str(kept)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout and writer.stdout.readline() == "ready\n"
            time.sleep(draw.uniform(0.02, 0.15))
            writer.kill()
            kept = max([kept, *(int(line) + 1 for line in writer.stdout.read().split())])
        for i in range(kept):
            found, states = cache.look_up(np.full(65, i))
            assert found == 64 and np.all(states[0]["state"] == i), (attempt, i)
        assert all(cache._read(path, 64) for path in tmp_path.glob("*.safetensors"))
        if kept > 3 and len(list(tmp_path.glob("*.part"))) >= 3:  # so many were in the middle of a file
            return
    pytest.fail("writers were never killed in the middle of a file")
