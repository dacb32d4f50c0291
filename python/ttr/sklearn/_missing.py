"""Rows in which something is missing, and what is no number: where it is, and what becomes of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._constants import Array
from ._rows import check_among, labels_of

POLICIES = ("raise", "drop", "zero", "wait")


def check_policy(nulls: Any) -> None:
    check_among("nulls", nulls, POLICIES)


def check_numbers(op: str, name: str, table: Any) -> None:
    """ValueError that names the first text that is no number; scikit-learn's says what, not where."""
    values = np.asarray(table)
    if values.dtype.kind not in "OUS":
        return
    for place in np.ndindex(values.shape):
        if not isinstance(values[place], (str, bytes)):
            continue
        try:
            float(values[place])
        except ValueError:
            raise ValueError(
                f"[{op}] {name} must be numbers but is {values[place]!r} in {_place(place, table)}"
            ) from None


def check_known(op: str, name: str, numbers: Array, table: Any, missing: bool) -> None:
    """ValueError that names the first infinity, and the first NaN unless some may be missing."""
    bad = ~np.isfinite(numbers) & ~(missing & np.isnan(numbers))
    if not bad.any():
        return
    place = tuple(int(i) for i in np.argwhere(bad)[0])
    hint, found = "", "infinity"
    if np.isnan(numbers[place]):
        hint, found = "; nulls='drop', 'zero' or 'wait' take what is missing", "NaN"
    raise ValueError(f"[{op}] {name} must be finite but is {found} in {_place(place, table)}{hint}")


def check_weights(op: str, weights: Any) -> None:
    """ValueError that names the first weight that is none."""
    numbers = np.asarray(weights)
    if numbers.dtype.kind not in "iuf":
        return  # scikit-learn says
    bad = np.flatnonzero(~((numbers >= 0) & np.isfinite(numbers)))
    if len(bad):
        row, found = bad[0], numbers.ravel()[bad[0]]
        kind = "Negative" if found < 0 else "NaN or infinity"
        raise ValueError(
            f"[{op}] sample_weight must be 0 or more and finite but is {found} in row {row} ({kind})"
        )


def _place(place: tuple[int, ...], table: Any) -> str:
    text = f"row {place[0]}"
    if len(place) > 1:
        labels = labels_of(table)
        text += f", column {place[1] if labels is None else labels[place[1]]!r}"
    return text


def filled(
    nulls: str, X: Array, y: Array, weights: Array | None, times: Array | None
) -> tuple[Array, Array, Array | None, Array | None]:
    """The table as a memory takes it, nothing missing.

    drop: rows in which something is missing are not there. zero: missing regressors are 0, and a row
    without y waits. wait: a row takes its place, time passes and windows move on, and nothing is learned
    from it: its weight is 0.
    """
    of_y = np.isnan(y).reshape(len(y), -1).any(axis=1)
    of_x = np.isnan(X)
    if not of_y.any() and not of_x.any():
        return X, y, weights, times
    if nulls == "zero":
        X, of_x = np.where(of_x, 0, X), np.zeros_like(of_x)
    gone = of_y | of_x.any(axis=1)
    if nulls == "drop":
        some = [None if part is None else part[~gone] for part in (weights, times)]
        return X[~gone], y[~gone], some[0], some[1]
    weights = np.ones(len(X)) if weights is None else weights
    X, y = np.nan_to_num(X, nan=0.0), np.nan_to_num(y, nan=0.0)
    return X, y, np.where(gone, 0.0, weights), times
