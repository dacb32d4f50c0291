"""What the stub promises: mypy takes a program that is right, and refuses one that is not."""

import subprocess
import sys
from pathlib import Path

import pytest
import ttr

RIGHT = """
import numpy as np
import ttr
from numpy.typing import NDArray

layer: ttr.Layer = ttr.Layer("gated_deltanet", engine=None)
x = np.zeros((1, 3, 1, 4))
g = np.zeros((1, 3, 1))
y, state = layer.forward(x, x, x, log_decay=g, step=g, threads=2)
z, state, status = layer.forward(x, x, x, log_decay=g, step=g, state=state, return_status=True)
answer: NDArray[np.float64] = ttr.Memory(ttr.Recipe("rls"), key_dim=2).retrieve([1.0, 2.0])
names: list[str] = list(ttr.zoo())
engine: str = ttr.plan("rls").engine
gradients, _ = layer.backward(y, x, x, x, log_decay=g, step=g, wanted=["q"])
version: str = ttr.__version__
"""

WRONG = """
import ttr

ttr.Layer(3)
ttr.Memory("rls", key_dim="two")
ttr.plan("rls").engin
y: int = ttr.Layer("rls").forward()
"""


def check(tmp_path: Path, text: str) -> list[str]:
    program = tmp_path / "program.py"
    program.write_text(text)
    result = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), str(program)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    return [line for line in result.stdout.splitlines() if ": error:" in line]


def test_types(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    assert check(tmp_path, RIGHT) == []
    assert len(check(tmp_path, WRONG)) == 4


def test_the_package_says_that_it_is_typed() -> None:
    folder = Path(ttr.__file__).parent
    assert (folder / "py.typed").exists() and (folder / "_core.pyi").exists()


def test_everything_public_is_documented() -> None:
    for name in ttr.__all__:
        thing = getattr(ttr, name)
        assert name == "__version__" or thing.__doc__, name
        for part in vars(thing) if isinstance(thing, type) else ():
            if part.startswith("_") or part in ("recipe", "heads", "key_dim", "value_dim", "name"):
                continue
            assert getattr(thing, part).__doc__, f"{name}.{part}"
