"""What a regressor is given, as numbers: tables, weights, times, rows {feature: number}."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.utils.validation import (
    _check_sample_weight,
    check_consistent_length,
    check_is_fitted,
    validate_data,
)

from ._columns import split, times_of
from ._constants import Array
from ._memory import RowMemory
from ._missing import check_known, check_numbers, check_policy, check_weights, filled
from ._rotated import RotatedMemory
from ._rows import are_texts, check_labels, check_number, labels_of


class Tables:
    """The part of a regressor that reads what callers give; its options are the regressor's."""

    time: Any
    nulls: str
    memory_: RowMemory | RotatedMemory
    n_features_in_: int
    _labels: list[Any] | None  # of the columns, where they have some
    _named: dict[Any, int]  # their places by their labels
    _places: dict[Any, int]  # and -1, the time's
    _flat: bool  # y had one axis

    @property
    def _may_be_missing(self) -> bool:
        return bool(self.nulls != "raise")

    def _check_one(self, name: str, number: Any) -> None:
        """ValueError: no number, infinity, or nothing where nothing may be missing."""
        if number is None and self._may_be_missing:
            return
        check_number("learn_one", name, number)
        if np.isfinite(number) or (np.isnan(number) and self._may_be_missing):
            return
        raise ValueError(f"[learn_one] {name} must be finite but is {number}")

    def _time_of(self, x: Mapping[Any, Any]) -> Array:
        if self.time not in x:
            raise ValueError(f"[learn_one] x must have the time {self.time!r} but has {list(x)}")
        return times_of("learn_one", [x[self.time]])

    def _positions(self, features: int) -> list[Any]:
        """The labels of an array's columns, without that of the time."""
        if self.time is None:
            return list(range(features))
        return [place for place in range(features + 1) if place != self.time]

    def _checked(
        self, op: str, X: Any, y: Any, sample_weight: Any, reset: bool
    ) -> tuple[Array, Array, Array | None, Array | None, list[Any] | None]:
        """X, y, weights and times as numbers, missing ones NaN, and the labels of the columns."""
        check_policy(self.nulls)
        times = None
        if self.time is not None:
            X, times = split(op, X, self.time)
            times = times_of(op, times)
        labels, table, target = labels_of(X), X, y
        if not reset:
            check_labels(op, self._labels, X)
        numbers: dict[str, Any] = {"dtype": np.float64, "ensure_all_finite": False}
        separately = numbers, {**numbers, "ensure_2d": False}
        try:
            X, y = validate_data(self, X, y, reset=reset, validate_separately=separately)
        except ValueError:
            check_numbers(op, "X", table)
            check_numbers(op, "y", y)
            raise
        check_consistent_length(X, y)
        check_known(op, "X", X, table, self._may_be_missing)
        check_known(op, "y", y, target, self._may_be_missing)
        weights = None
        if sample_weight is not None:
            check_weights(op, sample_weight)
            weights = _check_sample_weight(sample_weight, X, dtype=np.float64)
            if not weights.any():  # what scikit-learn's newer releases say
                raise ValueError(f"[{op}] sample_weight must have a non-zero number but is all 0")
        return X, y, weights, times, labels

    def _values(self, op: str, y: Array) -> Array:
        """y as [n, outputs]."""
        values, outputs = y.reshape(len(y), -1), self.memory_.value_dim
        if values.shape[1] != outputs:
            raise ValueError(f"[{op}] y must have {outputs} columns but has {values.shape[1]}")
        return values

    def _taken(
        self, X: Array, values: Array, weights: Array | None, times: Array | None
    ) -> tuple[Array, Array, Array | None, Array | None]:
        """Nothing missing, and weights as the recipe takes them."""
        if weights is not None and not self.memory_.weighs:
            if not np.all(weights == 1):
                raise ValueError(
                    f"[sklearn] sample_weight must be of a recipe with importance: input but is of "
                    f"{self.memory_.recipe}"
                )
            weights = None
        table = filled(self.nulls, X, values, weights, times)
        rotated = isinstance(self.memory_, RotatedMemory)
        if table[2] is not None and not self.memory_.weighs and not rotated:
            raise ValueError(
                f"[sklearn] rows that wait must be of a recipe with importance: input but are of "
                f"{self.memory_.recipe}: nulls='drop' leaves them out"
            )
        return table

    def _read(self, X: Any) -> tuple[Array, Array]:
        """X as it is read, and what is predicted of it, [n, outputs]."""
        check_is_fitted(self, "memory_")
        if self.time is not None:
            X, _ = split("predict", X, self.time)
        check_labels("predict", self._labels, X)
        table = X
        try:
            X = validate_data(self, X, reset=False, dtype=np.float64, ensure_all_finite=False)
        except ValueError:
            check_numbers("predict", "X", table)
            raise
        check_known("predict", "X", X, table, self._may_be_missing)
        return X, self._answered(X)

    def _answered(self, X: Array) -> Array:
        """m(x), NaN where a regressor is missing that is not 0 then."""
        missing = np.isnan(X)
        if not missing.any():
            return self.memory_.predict(X)
        answers = self.memory_.predict(np.where(missing, 0, X))
        if self.nulls != "zero":
            answers[missing.any(axis=1)] = np.nan
        return answers

    def _shaped(self, y: Array) -> Array:
        return y[:, 0] if self._flat else y

    # ---- Rows of names ---------------------------------------------------------------------------

    def _name(self, names: list[Any]) -> None:
        if are_texts(names):
            self.feature_names_in_ = np.array(names, dtype=object)
        self._labels = names
        self._place(names)

    def _place(self, names: list[Any]) -> None:
        self._named = {name: place for place, name in enumerate(names)}
        self._places = self._named if self.time is None else {**self._named, self.time: -1}

    def _row(self, x: Mapping[Any, Any]) -> Array:
        row = np.zeros(self.n_features_in_)
        for name, number in x.items():
            place = self._named.get(name)
            if place is not None:
                row[place] = np.nan if number is None else number
        return row
