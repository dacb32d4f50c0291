"""What callers give as rows: the labels of a table's columns, single rows, and what is no row."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

# ---- Labels --------------------------------------------------------------------------------------


def labels_of(table: Any) -> list[Any] | None:
    """The labels of a table that has some (pandas, polars, pyarrow). A number is a label, too, no
    position."""
    columns = getattr(table, "column_names", getattr(table, "columns", None))
    return None if columns is None else list(columns)


def are_texts(labels: list[Any]) -> bool:
    return all(isinstance(label, str) for label in labels)


def check_labels(op: str, known: list[Any] | None, table: Any) -> None:
    """ValueError where a table's labels are not those that were learned, in their order. Those that
    are texts are left to scikit-learn. An array has no labels: its columns are those in order."""
    labels = labels_of(table)
    if known is None or labels is None or are_texts([*known, *labels]):
        return
    if labels != known:
        raise ValueError(f"[{op}] the columns of X must be {known}, in this order, but are {labels}")


# ---- Single rows ---------------------------------------------------------------------------------


def check_row(op: str, name: str, row: Any, label: str) -> None:
    """ValueError that names what is no {label: number}."""
    if not isinstance(row, Mapping):
        raise ValueError(f"[{op}] {name} must be {{{label}: number}} but is {type(row).__name__}")
    for key, number in row.items():
        check_number(op, f"{name}[{key!r}]", number)


def check_number(op: str, name: str, number: Any) -> None:
    if not isinstance(number, (numbers.Real, np.ndarray)) or getattr(number, "ndim", 0) > 0:
        raise ValueError(f"[{op}] {name} must be a number but is {number!r}")


def check_count(op: str, name: str, number: Any, hint: str = "") -> None:
    """ValueError where a number is no count, 1 or more."""
    if not isinstance(number, numbers.Integral) or isinstance(number, bool) or number < 1:
        raise ValueError(f"[{op}] {name} must be 1 or more, a whole number, but is {number!r}{hint}")


def check_among(name: str, given: Any, known: tuple[str, ...]) -> None:
    if given not in known:
        raise ValueError(f"[sklearn] {name} must be of {', '.join(known)} but is {given!r}")


def counts_of(name: str, given: Any) -> list[int]:
    """One count, or several. ValueError that names what is none."""
    several = [given] if np.ndim(given) == 0 else list(given)
    for one in several or [given]:
        check_count("sklearn", name, one)
    return [int(one) for one in several]


# ---- What is no series ---------------------------------------------------------------------------


def check_series(op: str, y: Any, target: Any = None) -> None:
    """ValueError where y is when rows were measured, not what was: dates, or one column of rising
    numbers beside another one."""
    given = "nothing" if y is None else _times(y, target)
    if given is not None:
        raise ValueError(
            f"[{op}] y must be the series itself, as neither times nor what stands behind it are read, but is "
            f"{given}: call {op}(series)"
        )


def _times(y: Any, target: Any) -> str | None:
    values = np.asarray(y)
    if values.dtype.kind in "mM":
        return "dates"
    plain = values.dtype.kind in "iuf" and values.size >= 2 and values.size == len(values)
    if target is None or not plain:
        return None
    column = values.reshape(-1)
    same = np.shape(target) in (values.shape, column.shape) and np.array_equal(
        np.ravel(target), column
    )
    if same or not (np.diff(column) > 0).all():
        return None
    return "one column of rising numbers beside another"


def check_target(op: str, y: Any, target: Any) -> None:
    """What stands behind y: scikit-learn passes the target of a regression, which is not read.
    ValueError: times in place of y; a table, which would be exogenous columns."""
    if target is None:
        return
    check_series(op, y, target)
    if np.ndim(target) > 1:
        raise ValueError(
            f"[{op}] exogenous columns must be given by name, {op}(y, X=...), but stand behind y"
        )
    # scikit-learn's tools pass it; a person may have meant it.
    warnings.warn(
        f"[{op}] what stands behind y is not read: exogenous columns are X=...", stacklevel=3 + (op != "score")
    )


def steps_of(fh: Any, h: Any) -> NDArray[np.int64]:
    """The steps ahead: `h` of them, or those of `fh`. ValueError: none that are 1 or more."""
    if fh is None:
        check_count("predict", "h", h)
        return np.arange(1, h + 1)
    steps = np.atleast_1d(np.asarray(fh))
    if steps.dtype.kind not in "iu" or steps.ndim != 1 or steps.size == 0 or (steps < 1).any():
        raise ValueError(f"[predict] fh must be steps ahead, whole numbers of 1 or more, but is {fh}")
    return steps.astype(np.int64)


def check_horizon(y: Any) -> None:
    """ValueError where what follows is given as the steps ahead in other libraries' place: a whole
    number, 1 and what rises from there, or dates."""
    steps = np.asarray(y)
    dates = steps.dtype.kind in "mM"
    if not dates and (steps.dtype.kind not in "iu" or steps.ndim > 1 or steps.size == 0):
        return
    if dates or steps.ndim == 0 or (steps[0] == 1 and (np.diff(steps) > 0).all()):
        form = "dates" if dates else "steps ahead"
        call = f"h={steps.size}" if dates or steps.ndim == 0 else f"fh={steps.tolist()}"
        call = f"h={int(steps)}" if steps.ndim == 0 and not dates else call
        other = "" if dates else ", or give rows that are such numbers as floats"
        raise ValueError(
            f"[predict] y must be the rows that follow but looks like {form}: call predict({call})"
            f"{other}"
        )
