"""A regressor for every group of a table's rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted

from ._columns import split
from ._constants import Array
from ._regressor import RegressionPath, StreamingRegressor
from ._rows import check_row


class GroupedRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """As many regressors as a column has values: windows, half-lives and everything else are of a group's
    rows alone.

    Parameters
    ----------
    regressor : StreamingRegressor or None
        What every group gets a copy of; None: the default. Its positions (``time=1``) count without the
        column of groups.
    by : a label or a position
        The column that says of which group a row is. It is no regressor.

    Attributes
    ----------
    regressors_ : {group: StreamingRegressor}, in the order in which they came

    Raises ValueError: what one regressor raises; rows are counted within the group, which is named.
    Groups before it have learned then.
    """

    def __init__(self, regressor: StreamingRegressor | None = None, *, by: Any = 0) -> None:
        self.regressor = regressor
        self.by = by

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> GroupedRegressor:
        """Learns X [n, p] -> y from nothing, every group in the order of its rows."""
        self.regressors_: dict[Any, StreamingRegressor] = {}
        return self.partial_fit(X, y, sample_weight)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> GroupedRegressor:
        """Goes on with more rows, and with groups that are new."""
        self._each("partial_fit", X, y, sample_weight)
        return self

    def path(self, X: Any, y: Any, sample_weight: Any = None) -> RegressionPath:
        """`StreamingRegressor.path` of every group, in the order of the table's rows."""
        found: list[Array] = []
        for rows, path in self._each("path", X, y, sample_weight):
            if not found:
                found = [np.full((len(y), *each.shape[1:]), np.nan) for each in path]
            for whole, each in zip(found, path):
                whole[rows] = each
        return RegressionPath(*found)

    def predict(self, X: Any) -> Array:
        """m(x) of every row by its group's regressor; NaN of a group that nothing is known of."""
        check_is_fitted(self, "regressors_")
        table, groups = split("predict", X, self.by)
        answers: Array | None = None
        for group, rows in _rows_of(groups):
            if group in self.regressors_:
                found = self.regressors_[group].predict(_safe_indexing(table, rows))
                if answers is None:
                    answers = np.full((len(groups), *found.shape[1:]), np.nan)
                answers[rows] = found
        return np.full(len(groups), np.nan) if answers is None else answers

    def learn_one(self, x: Mapping[Any, Any], y: float, w: float = 1.0) -> None:
        """Learns one row {feature: number}, with the group under `by`."""
        group, row = self._row("learn_one", x)
        if not hasattr(self, "regressors_"):
            self.regressors_ = {}
        model = self.regressors_.get(group) or self._new()
        model.learn_one(row, y, w)
        self.regressors_[group] = model

    def predict_one(self, x: Mapping[Any, Any]) -> float:
        """m(x) of one row; NaN of a group that nothing is known of."""
        group, row = self._row("predict_one", x)
        model = getattr(self, "regressors_", {}).get(group)
        return float("nan") if model is None else model.predict_one(row)

    def _row(self, op: str, x: Mapping[Any, Any]) -> tuple[Any, dict[Any, Any]]:
        check_row(op, "x", x, "feature", numbers=False)
        if self.by not in x:
            raise ValueError(f"[{op}] x must have the group {self.by!r} but has {list(x)}")
        return x[self.by], {name: number for name, number in x.items() if name != self.by}

    def _new(self) -> StreamingRegressor:
        model = StreamingRegressor() if self.regressor is None else self.regressor
        return clone(model)  # type: ignore[no-any-return]

    def _each(self, op: str, X: Any, y: Any, sample_weight: Any) -> list[tuple[Array, Any]]:
        """Calls a method of every group's regressor: its rows, and what came back. A regressor is known
        once it has learned."""
        table, groups = split(op, X, self.by)
        if len(groups) != len(y):
            raise ValueError(f"[{op}] y must have {len(groups)} rows but has {len(y)}")
        if not hasattr(self, "regressors_"):
            self.regressors_ = {}
        found = []
        for group, rows in _rows_of(groups):
            model = self.regressors_.get(group) or self._new()
            weights = None if sample_weight is None else np.asarray(sample_weight)[rows]
            part = _safe_indexing(table, rows), _safe_indexing(y, rows), weights
            try:
                found.append((rows, getattr(model, op)(*part)))
            except ValueError as error:
                raise ValueError(f"{error}, of the group {group!r}") from error
            self.regressors_[group] = model
        return found


def _rows_of(groups: Any) -> Iterator[tuple[Any, Array]]:
    """Every group and its rows, in the order in which groups come."""
    names, first, of = np.unique(np.asarray(groups), return_index=True, return_inverse=True)
    order = np.argsort(of, kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(of, minlength=len(names)))[:-1])
    for i in np.argsort(first):
        yield names[i].item() if hasattr(names[i], "item") else names[i], parts[i]
