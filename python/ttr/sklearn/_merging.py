"""Two memories of sums as one (of triangles: _rotated.py), and rows taken back from one.

A and B are sums of rows, so those of two tables add up, and rows can be subtracted; the ridge is in
them once. The least sum of squares follows, too. With Q(m) = sum w g^age |y - m(x)|^2 + ridge |m|^2,
least at m_a for one table and at m_b for n_b later rows, and least at m* for all of them,

    rss = g^n_b [rss_a + |m* - m_a|^2_A_a] + rss_b + |m* - m_b|^2_A_b - g^n_b ridge |m*|^2

(the norms in the metrics of both memories' A, ridge included; the last term is the ridge that was in
both). Where rows are taken back, rss <- rss - sum w e f, with residuals of the fits without and with
them.
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np

import ttr

from ._constants import Array, ridge_of
from ._linear import LinearFit, is_least_squares
from ._memory import RowMemory
from ._residuals import FitResiduals
from ._rotated import RotatedMemory
from ._sums import Sums

#: A memory of sums, or of a triangle.
LeastSquares = RowMemory | RotatedMemory


def check_sums(op: str, recipe: ttr.Recipe, instead: str) -> None:
    """ValueError: a memory that is more than the sums of its rows; what to do instead."""
    if not is_least_squares(recipe):
        raise ValueError(
            f"[{op}] recipe must solve least squares in x itself (affine_rls, rls, weighted_rls) but "
            f"is {recipe}, which keeps no sums of rows: {instead}"
        )
    if recipe.option("ridge_kind") == "relative":
        raise ValueError(
            f"[{op}] recipe must have a ridge of its own but is {recipe}, whose ridge is a share of "
            "all rows' A: take ridge_kind: constant"
        )


def check_alike(mine: dict[str, Any], its: dict[str, Any]) -> None:
    """ValueError: regressors of different {property: value}, which have no rows of one kind."""
    for what, here in mine.items():
        if its[what] != here:
            raise ValueError(
                f"[merge] {what} of both must be {here} but the other's are {its[what]}"
            )


def check_taken_back(memory: LeastSquares, rows: int, latest: bool) -> None:
    """ValueError: more rows than were learned, or of weights that nobody knows."""
    if rows > memory.count:
        raise ValueError(f"[unlearn] X must be of the {memory.count} rows learned but has {rows}")
    if memory.decay < 1 and not latest:
        raise ValueError(
            f"[unlearn] recipe must not forget but is {memory.recipe}, where a row's weight depends on "
            "its age: with latest=True the last rows that were learned can be taken back"
        )
    if memory.decay**rows < _EPS:
        raise ValueError(
            f"[unlearn] X must be rows behind which older ones count but {memory.decay} ** {rows} of "
            "these is rounding: fit the rows that remain"
        )


# ---- Two memories, and one without rows ----------------------------------------------------------


def merged(
    first: RowMemory, first_fit: FitResiduals, later: RowMemory, later_fit: FitResiduals
) -> RowMemory:
    """The memory of the rows of both; ``first_fit`` becomes that of both, too. O(p^3)."""
    fade = first.decay**later.count
    memory = first.and_rows_of(later)
    memory.rounding = np.sqrt((fade * first.rounding) ** 2 + later.rounding**2)
    both = LinearFit(memory)
    shared = fade * float(memory.recipe.option("ridge")) * np.sum(both.coefficients**2, axis=0)
    excess = fade * LinearFit(first).excess(both) + LinearFit(later).excess(both)
    first_fit.join(later_fit, later.count, excess - shared)
    return memory


def without(
    memory: LeastSquares, fit: FitResiduals, rows: Array, values: Array, weights: Array
) -> LeastSquares:
    """The memory without its latest rows; ``fit`` goes along. ValueError, and nothing changed: what
    remains is no sum of rows. O(n p^2 + p^3)."""
    left, fade = memory.count - len(rows), memory.decay ** len(rows)
    ages = np.arange(len(rows) - 1, -1, -1.0)
    whole = memory.sums()
    both = np.concatenate([rows, values], axis=1)
    taken = Sums.of(whole.affine, memory.key_dim, both, weights * memory.decay**ages)
    sums = whole.without(taken).faded(1 / fade)
    rounding = _rounding(memory, whole) / fade
    if left == 0 or sums.weight == 0:
        _check_nothing(sums, rounding)
        sums = Sums.none(whole.affine, memory.key_dim, memory.value_dim)
        rounding = np.zeros(memory.key_dim)
    sums = _definite(sums, rounding, ridge_of(memory.recipe, memory.decay, left))
    new = memory.holding(sums, left, fit)
    before, after = (
        LinearFit(new).residuals(rows, values),
        LinearFit(memory).residuals(rows, values),
    )
    fit.take(before, after, weights)
    if isinstance(new, RotatedMemory):  # which has them itself
        new = new.holding(sums, left, fit)
    new.rounding = rounding
    return new


# ---- What remains --------------------------------------------------------------------------------


def _rounding(memory: LeastSquares, whole: Sums) -> Array:
    """How large rounding errors are on the diagonal of S, [p]: those of a sum of n terms grow as
    sqrt(n), and every difference adds its own."""
    size = _EPS * np.maximum(np.diagonal(whole.scatter), 0)
    before = memory.rounding
    if not before.any():
        before = np.sqrt(memory.count) * size
    return np.asarray(np.hypot(before, 4 * size))


def _check_nothing(sums: Sums, rounding: Array) -> None:
    """ValueError: no row remains, and yet something does."""
    if (np.abs(np.diagonal(sums.scatter)) > 8 * rounding).any():
        raise ValueError(f"{_NOT_LEARNED}, and without the last of them something remains")


def _definite(sums: Sums, rounding: Array, ridge: float) -> Sums:
    """The sums, without the directions that are nothing but rounding. ValueError where some direction
    has less than nothing."""
    if sums.affine and sums.weight < 0:
        raise ValueError(f"{_NOT_LEARNED}, and weigh more than all that were")
    held = np.flatnonzero(rounding)
    if len(held) == 0:
        return sums
    size = np.sqrt(np.outer(rounding[held], rounding[held]))
    values, vectors = np.linalg.eigh(
        (sums.scatter[np.ix_(held, held)] + ridge * np.eye(len(held))) / size
    )
    bound = 8 * len(held)
    if values[0] < -bound:
        raise ValueError(f"{_NOT_LEARNED}, and the sums that remain without them are not positive")
    if values[0] > bound:
        return sums
    warnings.warn(
        "[unlearn] what remains is not positive definite to rounding: its coefficients are those of "
        "least norm; a fit of the rows that remain is exact",
        RuntimeWarning,
        stacklevel=4,
    )
    kept = (vectors * np.where(values > bound, values, 0)) @ vectors.T * size
    scatter = sums.scatter.copy()
    scatter[np.ix_(held, held)] = kept - ridge * np.eye(len(held))
    return dataclasses.replace(sums, scatter=scatter)


_EPS = float(np.finfo(np.float64).eps)
_NOT_LEARNED = "[unlearn] X must be rows that were learned but they were not"
