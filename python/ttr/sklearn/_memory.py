"""A memory that learns rows: whole batches by the layer, single rows by its decoder."""

from __future__ import annotations

from typing import Any

import numpy as np

import ttr

from ._centre import is_due, mean_of, means, moved
from ._constants import (
    Array,
    Constants,
    decay_of,
    gates_of,
    has_ridge_in_state,
    ridge_of,
    takes_importance,
)
from ._sums import Sums


class RowMemory:
    """m, with keys [Dk] and values [Dv], float64.

    ``centres``: keys and values are given to the memory from an origin near their mean. That changes
    no answer of an affine memory that solves least squares, but for its rounding.

    A batch costs what the layer's whole sequences cost (least squares: a factor every 64 rows); a
    row what a decoder's token costs, O(D^2).
    """

    def __init__(
        self,
        recipe: ttr.Recipe,
        constants: Constants,
        key_dim: int,
        value_dim: int,
        centres: bool = False,
    ) -> None:
        self.recipe = recipe
        self.key_dim = key_dim
        self.value_dim = value_dim
        self._gates = gates_of(recipe, constants)
        self._weighs = takes_importance(recipe)
        self.constants = constants
        self.count = 0  # rows learned so far
        self.rounding = np.zeros(key_dim)  # on the diagonal of A, where rows were taken back
        self._centres = centres
        self._placed = not centres  # has the origin been chosen?
        self.key_origin = np.zeros(key_dim)
        self.value_origin = np.zeros(value_dim)
        self._layer = ttr.Layer(recipe)
        self._decoder = ttr.Decoder(
            self._layer, key_dim=key_dim, value_dim=value_dim, dtype="float64"
        )

    def predict(self, rows: Array) -> Array:
        """m(x) of every row, [n, Dv]; changes nothing."""
        if len(rows) == 0:
            return np.empty((0, self.value_dim))
        return self._predict(rows - self.key_origin) + self.value_origin

    def _predict(self, rows: Array) -> Array:
        """From the origin, to values from the origin."""
        queries = _as_tokens(rows)
        gates = self._inputs(queries, reads_only=True)
        return self._decoder.retrieve(queries, **gates)[0, :, 0, :]

    def learn(
        self, rows: Array, values: Array, weights: Array | None = None
    ) -> tuple[Array, Array]:
        """Learns [n, Dk] -> [n, Dv] row by row. Returns by how much a value was more than predicted,
        before its row was learned and after, [n, Dv] each."""
        if len(rows) == 0:
            return values, values
        if not self._placed:
            self._place(rows, values, weights)
        rows, values = rows - self.key_origin, values - self.value_origin
        before, after = self._learn(rows, values, weights)
        if self._centres and is_due(self.count - len(rows), self.count):
            self._move()
        return values - before, values - after

    def _learn(self, rows: Array, values: Array, weights: Array | None) -> tuple[Array, Array]:
        """What is predicted of every row before and after it is learned."""
        keys = _as_tokens(rows)
        first = self._predict(rows[:1])
        inputs = self._inputs(keys)
        if weights is not None:
            inputs["importance"] = weights[None, :, None]
        v = _as_tokens(values)
        if len(rows) == 1:
            self._decoder.memorize(keys, v, **inputs)
            self.count += 1
            return first, self._predict(rows)
        # Behind every write the memory is asked about the row itself and about the next one.
        queries = np.concatenate([keys, np.roll(keys, -1, axis=1)], axis=2)
        y, state = self._layer.forward(queries, keys, v, state=self._decoder.state(), **inputs)
        self._decoder.start(state)
        self.count += len(rows)
        return np.concatenate([first, y[0, :-1, 1, :]]), y[0, :, 0, :]

    def _place(self, rows: Array, values: Array, weights: Array | None) -> None:
        """Puts the origin near the mean of the first rows that count."""
        key, value = mean_of(rows, weights), mean_of(values, weights)
        if key is None or value is None:
            return
        self.key_origin, self.value_origin, self._placed = key, value, True

    def _move(self) -> None:
        """Moves the origin to the mean of what the memory holds."""
        state = self.state
        by = means(state)
        if not self._placed or by is None:
            return
        key, value = self.key_origin + by[0], self.value_origin + by[1]
        # By as much as the origin did move: far from 0 it has fewer digits than a mean.
        self._start(moved(state, key - self.key_origin, value - self.value_origin))
        self.key_origin, self.value_origin = key, value

    def _start(self, state: dict[str, Array]) -> None:
        """Goes on from arrays without the axes of batch and heads."""
        self._decoder.start({name: array[None, None] for name, array in state.items()})

    @property
    def weighs(self) -> bool:
        """May rows have weights?"""
        return self._weighs

    @property
    def state(self) -> dict[str, Array]:
        """Arrays without the axes of batch and heads, of rows from the origin; the recipe's start
        before the first row."""
        return {name: array[0, 0] for name, array in self._whole_state().items()}

    def grown(self, key_dim: int) -> RowMemory:
        """The same, of keys with new channels behind theirs, which have been 0 so far. ValueError:
        a memory of which the old channels are not a part."""
        new = RowMemory(self.recipe, self.constants, key_dim, self.value_dim, self._centres)
        new._placed = self._placed
        new.key_origin[: self.key_dim] = self.key_origin
        new.value_origin = self.value_origin
        new.rounding[: self.key_dim] = self.rounding
        start, mine = new._whole_state(), self._whole_state()
        affine = self.recipe.option("function") == "affine"
        for name, axes in _axes(self.recipe).items():
            if any(axis not in ("N", "S", "H", "Dk", "Dphi", "Dv") for axis in axes):
                raise ValueError(
                    f"[sklearn] a row must have the features of the first but has new ones, which "
                    f"{self.recipe} cannot take in"
                )
            old = mine[name]
            if name == "state.a":  # what is there at the start is the ridge, and fades
                start[name] = start[name] * self.decay**self.count
            elif "S" in axes:
                shape = [*old.shape[:-1], key_dim if axes[-1] == "Dk" else old.shape[-1]]
                start[name] = np.zeros(shape, old.dtype)
            places = tuple(_places(axis, n, key_dim, affine) for axis, n in zip(axes, old.shape))
            start[name][np.ix_(*places)] = old
        new._decoder.start(start)
        new.count = self.count
        return new

    def sums(self) -> Sums:
        """What a memory that solves least squares holds of its rows."""
        origin = np.concatenate([self.key_origin, self.value_origin])
        state, ridge = self.state, self._ridge_within(self.count)
        affine = self.recipe.option("function") == "affine"
        return Sums.of_state(state["state.a"], state["state"], ridge, origin, affine)

    def holding(self, sums: Sums, count: int, fit: object = None) -> RowMemory:
        """A memory of this recipe that holds other sums, of so many rows; their fit leaves nothing in it."""
        new = RowMemory(self.recipe, self.constants, self.key_dim, self.value_dim, self._centres)
        ridge = self._ridge_within(count)
        a, b = sums.state(ridge)
        new._start({"state.a": a, "state": b})
        new.count = count
        new._placed = not self._centres or sums.weight > 0
        if self._centres:
            new.key_origin, new.value_origin = np.split(sums.high, [self.key_dim])
        return new

    def and_rows_of(self, later: RowMemory) -> RowMemory:
        """The memory of the rows of both, which solve least squares: first these."""
        fade, count = self.decay**later.count, self.count + later.count
        return self.holding(self.sums().faded(fade).and_rows_of(later.sums()), count)

    def _ridge_within(self, count: int) -> float:
        """What of the ridge A holds behind so many rows."""
        return ridge_of(self.recipe, self.decay, count) if has_ridge_in_state(self.recipe) else 0.0

    @property
    def decay(self) -> float:
        """g, by which an association fades from one row to the next."""
        return decay_of(self.recipe, self.constants)

    def _whole_state(self) -> dict[str, Any]:
        state = self._decoder.state()
        if state:
            return state
        keys = np.zeros((1, 0, 1, self.key_dim))
        values = np.zeros((1, 0, 1, self.value_dim))
        return self._layer.initial_state(keys, values, **self._inputs(keys))

    def _inputs(self, keys: Array, reads_only: bool = False) -> dict[str, Any]:
        return {
            gate.keyword: gate.array(keys, self.value_dim)
            for gate in self._gates
            if gate.of_query or not (reads_only and gate.per_token)
        }


def _as_tokens(rows: Array) -> Array:
    return rows[None, :, None, :]


def _axes(recipe: ttr.Recipe) -> dict[str, list[str]]:
    if recipe.option("features") != "none":
        return {"features": ["features"]}
    return {spec["name"]: spec["shape"] for spec in ttr.state_specs(recipe)}


def _places(axis: str, length: int, key_dim: int, affine: bool) -> np.ndarray[Any, Any]:
    """Where the entries of an old axis lie in the new one: the 1 of an affine memory stays last."""
    places = np.arange(length)
    if axis == "Dphi" and affine:
        places[-1] = key_dim
    return places
