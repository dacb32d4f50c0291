"""Coefficients of a linear memory, from its state."""

from __future__ import annotations

import functools
from typing import Protocol

import numpy as np

import ttr

from ._constants import Array
from ._triangle import Triangle


def is_linear(recipe: ttr.Recipe) -> bool:
    """Is m(x) a linear map of x, with or without an intercept, that does not depend on x itself?"""
    plain = {
        "features": "none",
        "kernel": "none",
        "normalise_sum": "none",
        "normalise_qk": "false",
        "output_norm": "none",
        "tolerance": "0",
    }
    return (
        recipe.option("function") in ("linear", "affine")
        and recipe.option("optimizer") in ("gradient", "sgd", "exact")
        and all(recipe.option(name) == value for name, value in plain.items())
    )


def is_least_squares(recipe: ttr.Recipe) -> bool:
    """Does it solve least squares in x itself, exactly?"""
    return (
        is_linear(recipe)
        and recipe.option("optimizer") == "exact"
        and recipe.option("scale") == "1"
    )


def can_centre(recipe: ttr.Recipe) -> bool:
    """Does moving all rows and values change nothing but the intercept? A ridge that is a share of
    A would."""
    return (
        is_least_squares(recipe)
        and recipe.option("function") == "affine"
        and recipe.option("ridge_kind") != "relative"
    )


class LinearMemory(Protocol):
    """What coefficients are read from."""

    recipe: ttr.Recipe
    key_dim: int

    @property
    def key_origin(self) -> Array: ...
    @property
    def value_origin(self) -> Array: ...
    @property
    def state(self) -> dict[str, Array]: ...
    def predict(self, rows: Array) -> Array: ...


class LinearFit:
    """The map that a memory holds now."""

    def __init__(self, memory: LinearMemory) -> None:
        self._memory = memory
        self._affine = memory.recipe.option("function") == "affine"

    @functools.cached_property
    def coefficients(self) -> Array:
        """[p, outputs]."""
        if is_least_squares(self._memory.recipe):
            return np.asarray(self._solution[: self._memory.key_dim])
        return np.asarray(self._memory.predict(np.eye(self._memory.key_dim)) - self.intercept)

    @functools.cached_property
    def intercept(self) -> Array:
        """[outputs]."""
        if self._affine and is_least_squares(self._memory.recipe):
            memory = self._memory
            at_origin = self._solution[-1] + memory.value_origin
            return np.asarray(at_origin - memory.key_origin @ self.coefficients)
        return np.asarray(self._memory.predict(np.zeros((1, self._memory.key_dim)))[0])

    @property
    def inverse_diagonal(self) -> Array:
        """(A^-1)_jj, the intercept's last: the leverage of x = 0."""
        diagonal = np.sum(self._root**2, axis=1)
        if not self._affine:
            return np.asarray(diagonal)
        return np.append(diagonal[:-1], self.leverage(np.zeros((1, self._memory.key_dim))))

    def leverage(self, rows: Array) -> Array:
        """x^T A^-1 x of every row [n, p], a 1 behind it where there is an intercept."""
        rows = rows - self._memory.key_origin
        if self._affine:
            rows = np.concatenate([rows, np.ones((len(rows), 1))], axis=1)
        return np.asarray(np.sum((rows @ self._root) ** 2, axis=1))

    @property
    def least_squares(self) -> Array:
        """The least weighted sum of squares, ridge included, [outputs], of a memory whose state is a
        triangle."""
        assert self._triangle is not None
        return self._triangle.rss

    def excess(self, other: LinearFit) -> Array:
        """By how much the sum of squares that this fit makes least, ridge included, is more at another
        fit's map, [outputs]: the square of their difference in the metric A + R."""
        mine, its = self._memory, other._memory
        apart = other.coefficients - self.coefficients
        if self._affine:
            # Where this memory has its origin, by coordinates near it.
            there = other.coefficients.T @ (mine.key_origin - its.key_origin) + other._solution[-1]
            there = there + (its.value_origin - mine.value_origin)
            apart = np.concatenate([apart, (there - self._solution[-1])[None]])
        if self._triangle is not None:
            return np.asarray(np.sum((self._triangle.rows[:, : len(apart)] @ apart) ** 2, axis=0))
        metric = self._regularised()
        return np.asarray(np.maximum(np.einsum("pj,pq,qj->j", apart, metric, apart), 0))

    def residuals(self, rows: Array, values: Array) -> Array:
        """y - m(x), [n, outputs]."""
        memory = self._memory
        rows, values = rows - memory.key_origin, values - memory.value_origin
        predicted = rows @ self.coefficients
        return np.asarray(values - predicted - (self._solution[-1] if self._affine else 0))

    @functools.cached_property
    def _triangle(self) -> Triangle | None:
        """What stands for A + R and B in a memory whose rows are rotated."""
        state = self._memory.state
        if "state.r" not in state:
            return None
        triangle, ridge = Triangle.of_state(state), self._ridge_apart()
        return triangle if ridge is None else triangle.with_ridge(ridge)

    @functools.cached_property
    def _solution(self) -> Array:
        if self._triangle is not None:
            return self._triangle.solution()
        # By the root and not by the inverse, whose rounding errors lie in every direction: these lie
        # where A says little and the sum of squares hardly changes. What is left over goes the same way.
        b = self._memory.state["state"]
        x = self._root @ (self._root.T @ b)
        return np.asarray(x + self._root @ (self._root.T @ (b - self._regularised() @ x)))

    @functools.cached_property
    def _root(self) -> Array:
        """F with F F^T = (A + R)^-1, of the smallest norm where it is singular; A + R is scaled to
        ones on the diagonal, as it is solved."""
        if self._triangle is not None:
            return self._triangle.root()
        a = self._regularised()
        scale = np.sqrt(np.diagonal(a))
        scale = 1 / np.where(scale > 0, scale, 1)
        values, vectors = np.linalg.eigh(a * np.outer(scale, scale))
        kept = values > _RANK * len(a) * values[-1]
        return np.asarray(scale[:, None] * vectors[:, kept] / np.sqrt(values[kept]))

    def _regularised(self) -> Array:
        a, ridge = self._memory.state["state.a"], self._ridge_apart()
        if ridge is None:
            return a
        if self._memory.recipe.option("ridge_kind") == "relative":
            ridge *= np.linalg.norm(a)
        return np.asarray(a + np.diag(ridge))

    def _ridge_apart(self) -> Array | None:
        """The ridge of every channel, where it is no part of the state."""
        recipe = self._memory.recipe
        if recipe.option("ridge_kind") == "fading":
            return None
        ridge = np.full(self._memory.key_dim + self._affine, float(recipe.option("ridge")))
        if self._affine:
            ridge[-1] = 0
        return ridge


#: Eigenvalues below that many times the size of A are rounding.
_RANK = 4 * np.finfo(np.float64).eps
