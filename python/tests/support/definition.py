"""The judge: a recipe's definition on tensors, by the command `ttr apply`.

The command is $TTR_COMMAND, else `ttr` on the path; tests that need it are skipped without it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor

from . import safetensors


def _command() -> str:
    command = os.environ.get("TTR_COMMAND") or shutil.which("ttr")
    if command is None:
        pytest.skip("needs the command ttr (TTR_COMMAND)")
    return command


def _file_name(argument: str) -> str:
    return argument.replace("features_", "features.")


def apply(recipe: str, inputs: Mapping[str, Tensor], state: Mapping[str, Tensor], *flags: str) -> dict[str, Tensor]:
    """What `ttr apply RECIPE --in ... FLAGS` writes, by name."""
    tensors = {_file_name(name): tensor.detach().numpy() for name, tensor in inputs.items()}
    tensors.update({name: tensor.detach().numpy() for name, tensor in state.items()})
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder, "in.safetensors"), Path(folder, "out.safetensors")
        safetensors.write(given, tensors)
        line = [_command(), "apply", recipe, "--in", str(given), "--out", str(made), "--quiet", *flags]
        done = subprocess.run(line, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return {name: torch.from_numpy(array) for name, array in safetensors.read(made).items()}
