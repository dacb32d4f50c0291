"""Where the origin of an affine memory's rows lies: near their mean, whatever was measured.

A fit with an intercept does not change where every x is moved by c and every y by d: only the
intercept does. The Gram matrix of what lies far from the origin has few digits left for what
differs, so the rows that the memory is given are moved to where their mean is. With

    A = sum w [x; 1] [x; 1]^T + ridge,   B = sum w [x; 1] y^T

and T = [I, -c; 0, 1] a state moves exactly: A <- T A T^T, B <- T (B - A e d^T), e the last unit
vector. The ridge, which the intercept has none of, stays. Of a triangle (_triangle.py) only the means
move.
"""

from __future__ import annotations

import numpy as np

from ._constants import Array

#: Rows after which a memory of many rows is moved again; one of fewer is at every power of two.
_ROWS = 64


def is_due(before: int, after: int) -> bool:
    """Is the origin to be moved, now that rows before .. after have been learned?"""
    if after >= _ROWS:
        return before // _ROWS != after // _ROWS
    return before.bit_length() != after.bit_length()


def mean_of(rows: Array, weights: Array | None) -> Array | None:
    """The mean of the rows that count; None where none does."""
    if weights is not None:
        rows = rows[weights > 0]
    return np.asarray(rows.mean(axis=0)) if len(rows) else None


def few_bits(x: Array) -> Array:
    """x to four bits, which leave whole numbers whole."""
    mantissa, exponent = np.frexp(x)
    return np.asarray(np.ldexp(np.round(16 * mantissa) / 16, exponent))


def means(state: dict[str, Array]) -> tuple[Array, Array] | None:
    """c and d: the weighted means of x and y, from what is beside the 1; None where nothing
    counts."""
    b = state["state"]
    if "state.r" in state:  # the row of the 1 has them
        r = state["state.r"]
        return (r[-1, :-1], b[-1]) if r[-1, -1] > 0 else None
    a = state["state.a"]
    weight = a[-1, -1]
    return (a[-1, :-1] / weight, b[-1] / weight) if weight > 0 else None


def moved(state: dict[str, Array], c: Array, d: Array) -> dict[str, Array]:
    """The state of the rows x - c, y - d."""
    a, b = state["state.a"], state["state"]
    b = b - np.outer(a[:, -1], d)
    b[:-1] -= np.outer(c, b[-1])
    a = a.copy()
    a[:-1] -= np.outer(c, a[-1])
    a[:, :-1] -= np.outer(a[:, -1], c)
    return {"state.a": (a + a.T) / 2, "state": b}
