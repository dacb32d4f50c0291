"""Memories that forecast a stream, and a layer that reads it in parts. NumPy alone.

    python examples/python/forecast.py [data/co2_weekly.csv]

Part 1 is what a notebook on recursive least squares would show: every week the memory forecasts the
next value from the last 52, then learns what came. Part 2 is the same regression as a sequence layer:
all weeks in one call, in parts that hand a state on, and token by token. The numbers are the same.
"""

from __future__ import annotations

import csv
import sys
import tempfile
from pathlib import Path

import numpy as np
import ttr

LAGS = 52
RECIPE = "affine_rls{decay: 0.999, ridge: 0.1}"


def read_column(path: Path, column: str) -> np.ndarray:
    """The numbers of one column, relative to their mean; rows without one are left out."""
    with path.open(newline="") as file:
        rows = [row[column] for row in csv.DictReader(file)]
    numbers = np.array([float(row) for row in rows if row not in ("", "NA")])
    return numbers - numbers.mean()


def stream(series: np.ndarray) -> np.ndarray:
    """Forecasts of series[LAGS:], each made before its value is read."""
    memory = ttr.Memory(RECIPE, key_dim=LAGS)
    forecasts = []
    for t in range(LAGS, len(series)):
        window = series[t - LAGS : t]
        forecasts.append(memory.retrieve(window)[0])
        memory.memorize(window, series[t])

    # A memory is a file: what is loaded goes on bit for bit.
    with tempfile.TemporaryDirectory() as folder:
        memory.save(Path(folder) / "memory.safetensors")
        again = ttr.Memory.load(Path(folder) / "memory.safetensors")
    assert again.retrieve(series[-LAGS:]) == memory.retrieve(series[-LAGS:])
    print(f"{memory.count} weeks, condition {memory.condition():.3g}")
    return np.array(forecasts)


def as_layer(series: np.ndarray) -> np.ndarray:
    """The same forecasts from whole sequences: [B, T, H, D] = [1, weeks, 1, lags]."""
    windows = np.lib.stride_tricks.sliding_window_view(series, LAGS)[:-1]  # overlap: nothing is copied
    keys = windows[None, :, None, :]
    values = series[LAGS:][None, :, None, None]

    # read: before, as a forecast is made before its value is known.
    layer = ttr.Layer(ttr.Recipe(RECIPE).with_options(read="before"))
    half = keys.shape[1] // 2
    first, state = layer.forward(keys[:, :half], keys[:, :half], values[:, :half])
    rest, state = layer.forward(keys[:, half:-3], keys[:, half:-3], values[:, half:-3], state=state)

    # A decoder goes on where the prompt ended, one token at a time.
    decoder = ttr.Decoder(layer, key_dim=LAGS, value_dim=1, dtype="float64")
    decoder.start(state)
    last = [
        decoder.step(keys[:, t : t + 1], keys[:, t : t + 1], values[:, t : t + 1])
        for t in range(keys.shape[1] - 3, keys.shape[1])
    ]
    return np.concatenate([first, rest, *last], axis=1)[0, :, 0, 0]


def main(path: Path) -> None:
    series = read_column(path, "co2")
    plan = ttr.plan(RECIPE, key_dim=LAGS, value_dim=1)
    print(f"{RECIPE} runs on {plan.engine}: {plan.why}")

    forecasts = stream(series)
    came = series[LAGS:]
    naive = series[LAGS - 1 : -1]
    settled = slice(LAGS, None)  # after a year of learning
    for name, guess in (("the last value", naive), ("the memory", forecasts)):
        error = np.sqrt(np.mean((guess - came)[settled] ** 2))
        print(f"root mean square error of {name}: {error:.3f} ppm")

    difference = np.abs(as_layer(series) - forecasts).max()
    print(f"the layer's forecasts differ by {difference:.1e}")


if __name__ == "__main__":
    here = Path(__file__).resolve().parents[2]
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else here / "data" / "co2_weekly.csv")
