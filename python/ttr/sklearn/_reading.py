"""How a forecaster reads what it is given: the way behind `StreamingForecaster`'s methods."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from ._constants import Array, Constants, decay_of, gates_of, interval_decay_of, streamable
from ._exogenous import Exogenous, calendar_names, calendar_of, exogenous_of
from ._missing import check_known, check_numbers
from ._reader import Reader
from ._residuals import check_level
from ._rows import (
    are_texts,
    check_among,
    check_count,
    check_labels,
    check_series,
    check_target,
    counts_of,
    labels_of,
)
from ._taking import Taken, take
from ._timeline import Timeline, dates_of, timeline_of

Own = TypeVar("Own", bound="ReadingForecaster")


class ReadingForecaster(BaseEstimator):  # type: ignore[misc]
    """What `StreamingForecaster` has no word for."""

    recipe: Any
    lags: int | Sequence[int]
    horizon: int
    units: str
    step: float
    decay: float
    momentum: float
    weight_decay: float
    interval_decay: float | None
    ahead: int | None
    strategy: str
    differences: Sequence[int]
    log: bool
    intervals: str
    calendar: Sequence[str]

    reader_: Reader
    forecasts_: Array
    n_features_in_: int
    _exogenous: Exogenous
    _timeline: Timeline | None  # of the rows read, where they had an index
    _one_axis: bool  # one column that was given as [n]
    _name: Any  # of such a column
    _labels: list[Any] | None  # of the columns, where they have some
    _by_name: bool  # a row is a mapping

    def _learn(self: Own, op: str, y: Any, target: Any, X: Any, reset: bool) -> Own:
        check_target(op, y, target)
        taken = self._given(op, y, X, reset)
        reader = taken.reader
        forecasts = reader.read(taken.rows, taken.known)[taken.places]
        needed = self._needed() + 1
        if op == "fit" and reader.rows < needed:
            raise ValueError(
                f"[fit] y must have at least lags + horizon{self._behind()} = {needed} samples but has {reader.rows} "
                f"sample{'s' * (reader.rows != 1)} of known values: take fewer lags, or partial_fit"
            )
        if reset:
            self.reader_, self._labels, self._by_name = reader, labels_of(y), False
            self._exogenous, self._one_axis = taken.exogenous, np.ndim(y) == 1
            self._name = getattr(y, "name", None)
        self._timeline = taken.timeline
        self.forecasts_ = forecasts
        return self

    def _begin(self, y: float | Mapping[Any, float], X: Any) -> None:
        """The first row says which columns there are."""
        labels = list(y) if isinstance(y, Mapping) else None
        if labels == []:
            raise ValueError("[learn_one] y must have a column in the first row but is {}")
        if calendar_names("learn_one", self.calendar):
            raise ValueError("[learn_one] calendar must be () where no row had a date: begin with fit")
        columns = 1 if labels is None else len(labels)
        if isinstance(X, Mapping):
            exogenous = Exogenous(len(X), list(X), ())
        else:
            exogenous = Exogenous(0 if X is None else np.size(X), None, ())
        self.reader_ = self._reader(columns, exogenous.count)
        self._by_name = labels is not None
        self._labels, self.n_features_in_, self._exogenous = labels, columns, exogenous
        self._timeline, self._one_axis, self._name = None, labels is None, None
        if labels is not None and are_texts(labels):
            self.feature_names_in_ = np.array(labels, dtype=object)

    def _table(self, op: str, y: Any, reset: bool) -> Array:
        check_series(op, y)
        if not reset:
            check_labels(op, self._labels, y)
        check_numbers(op, "y", y)
        table = np.asarray(y)[:, None] if np.ndim(y) == 1 and not hasattr(y, "columns") else y
        numbers = np.asarray(
            validate_data(self, table, reset=reset, dtype=np.float64, ensure_all_finite=False)
        )
        check_known(op, "y", numbers, table, missing=True)
        return numbers

    def _given(self, op: str, y: Any, X: Any, reset: bool) -> Taken:
        """The rows of a call, absent ones among them, and what is known of these."""
        table = self._table(op, y, reset)
        exogenous = exogenous_of(op, X, self.calendar) if reset else self._exogenous
        known = exogenous.rows(op, X, len(table), f"the {len(table)} rows of y")
        if reset:
            timeline = timeline_of(y)
            reader = self._reader(table.shape[1], exogenous.count)
        else:
            timeline, reader = self._timeline, self.reader_
        index = getattr(y, "index", None) if timeline is not None else None
        if index is None and timeline is not None:
            index = timeline.after(len(table))
        return take(op, Taken(table, known, exogenous, timeline, reader), index, self._reach())

    def _take(self, op: str, rows: Array, index: Any, known: Array) -> Taken:
        given = Taken(rows, known, self._exogenous, self._timeline, self.reader_)
        return take(op, given, index, self._reach())

    def _reach(self) -> int:
        """Rows ahead whose errors are measured."""
        return max(self.horizon, self.ahead or 1)

    def _known_ahead(self, steps: int, X: Array) -> Array | None:
        """The exogenous columns of the next rows."""
        if self._exogenous.count == 0:
            return None
        dates = np.zeros(steps, "M8[D]")
        if self._exogenous.calendar:
            assert self._timeline is not None
            dates = dates_of(self._timeline.after(steps))
        return np.hstack([X, calendar_of(self._exogenous.calendar, dates)])

    def _rows_ahead(self, steps: int, X: Any = None) -> Array:
        self._check_ahead(steps)
        known = self._exogenous.rows("forecast", X, steps, f"the {steps} rows to come")
        return self.reader_.ahead(steps, self._known_ahead(steps, known))

    def _bounds_ahead(self, steps: int, level: float, X: Any = None) -> tuple[Array, Array]:
        check_level(level)
        self._check_ahead(steps)
        self._warn_beyond(steps)
        known = self._exogenous.rows("forecast_interval", X, steps, f"the {steps} rows to come")
        return self.reader_.bounds(level, steps, self._known_ahead(steps, known))

    def _warn_beyond(self, steps: int) -> None:
        measured = self._reach()
        if steps > measured:
            warnings.warn(
                f"[forecast_interval] rows {measured + 1} to {steps} ahead have no bounds (NaN): errors "
                f"are measured while rows are read, up to {measured} ahead: give ahead={steps}",
                stacklevel=4,
            )

    def _like(self, rows: Array, steps: NDArray[np.int64], wide: bool = False) -> Any:
        """In the kind that was read."""
        if self._timeline is None:
            return rows[:, 0] if self._one_axis and not wide else rows
        import pandas

        index = self._timeline.after(int(steps.max()))[steps - 1]
        if self._one_axis:
            return pandas.Series(rows[:, 0], index=index, name=self._name)
        return pandas.DataFrame(rows, index=index, columns=self._labels)

    def _names(self) -> list[Any]:
        """What a row that is a mapping calls the columns: where nobody has, by their numbers."""
        return list(range(self.n_features_in_)) if self._labels is None else self._labels

    def _row(self, y: float | Mapping[Any, float]) -> Array:
        if not isinstance(y, Mapping):
            if self.n_features_in_ != 1:
                raise ValueError(
                    f"[learn_one] y must be a mapping of the {self.n_features_in_} columns but is "
                    f"{y}"
                )
            return np.array([y], np.float64)
        names = self._names()
        for name in y:
            if name not in names:
                raise ValueError(f"[learn_one] y must be of the columns {names} but has {name!r}")
        self._by_name = True
        return np.array([y.get(name, np.nan) for name in names], np.float64)

    def _of_one_column(self: Own, exogenous: Exogenous) -> Own:
        """A new one with these options, which has read nothing yet."""
        new: Own = clone(self)
        new.reader_, new._labels, new._by_name = self._reader(1, exogenous.count), None, False
        new._exogenous, new._timeline, new._one_axis, new._name = exogenous, None, True, None
        new.n_features_in_ = 1
        return new

    def _reader(self, columns: int, exogenous: int) -> Reader:
        if self.units not in ("window", "raw"):
            raise ValueError(f"[sklearn] units must be 'window' or 'raw' but is {self.units!r}")
        check_count("sklearn", "horizon", self.horizon)
        check_among("strategy", self.strategy, ("recursive", "direct", "combined"))
        check_among("intervals", self.intervals, ("student", "conformal"))
        lags = counts_of("lags", self.lags)
        differences = [] if len(self.differences) == 0 else counts_of("differences", self.differences)
        recipe = streamable(self.recipe)
        constants = Constants(self.step, self.decay, self.momentum, self.weight_decay)
        gates_of(recipe, constants)  # ValueError: none that is a constant
        if self.ahead is not None:
            check_count("sklearn", "ahead", self.ahead)
        return Reader(
            recipe,
            constants,
            lags=lags[-1],
            sparse_lags=[] if isinstance(self.lags, numbers.Integral) else lags,
            columns=columns,
            horizon=self.horizon,
            ahead=0 if self.ahead is None else self.ahead,
            raw=self.units == "raw",
            interval_decay=interval_decay_of(self.interval_decay, decay_of(recipe, constants)),
            differences=differences,
            exogenous=exogenous,
            conformal=_RECENT if self.intervals == "conformal" else 0,
            strategy=self.strategy,
            logarithm=bool(self.log),
        )

    def _needed(self) -> int:
        """Rows before the first forecast."""
        return counts_of("lags", self.lags)[-1] + self.horizon - 1 + int(sum(self.differences))

    def _behind(self) -> str:
        return " + differences" if len(self.differences) else ""

    def _check_ahead(self, steps: int) -> None:
        check_is_fitted(self, "reader_")
        check_count("forecast", "steps", steps, ": all rows up to the last one come")
        needed = self._needed()
        if self.reader_.rows < needed:
            raise ValueError(
                f"[forecast] rows read must be at least {needed}, for {self.lags} lags, but are "
                f"{self.reader_.rows}: read more (partial_fit, learn_one), or take fewer lags"
            )


#: Errors behind conformal intervals.
_RECENT = 250
