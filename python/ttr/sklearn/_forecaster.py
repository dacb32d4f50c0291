"""Forecasts of a table's next rows, by a memory that reads it row by row."""

from __future__ import annotations

import copy
import numbers
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from ._constants import Array, Constants, decay_of, gates_of, interval_decay_of, streamable
from ._panel import ForecasterPanel
from ._plot import picture
from ._reader import Reader
from ._residuals import check_level
from ._rows import (
    are_texts,
    check_among,
    check_count,
    check_horizon,
    check_labels,
    check_number,
    check_row,
    check_series,
    counts_of,
    labels_of,
)
from ._watch import warn_of_coverage


class StreamingForecaster(BaseEstimator):  # type: ignore[misc]
    """A memory of *window -> next row*, which is asked at every row what comes next.

    The key is the window of the last `lags` rows of all columns, the value the row `horizon` after
    it; nothing is trained beforehand, and forecasts, missing values, units and intervals are those
    of the command `ttr forecast` (docs/forecast.md), number by number up to the horizon.

    Missing values are NaN. A forecast takes their place in later windows; from the (lags + 1)-th row
    of a gap on the window's mean does, so that a long gap ends flat. A row without any value is not
    learned; in a row with some the forecasts are learned in place of the others. Rows before the
    first one that has a value in every column do not count.

    Parameters
    ----------
    recipe : as for `StreamingRegressor`
    lags : int >= 1, or some of them
        16: the last 16 rows; [1, 12, 13]: those rows alone, rising.
    horizon : int >= 1
    units : "window" or "raw"
        "window": relative to each window's mean and length, so that a shift of the data or a factor
        changes forecasts by just that. "raw": the data as they are.
    step, decay, momentum, weight_decay : float
        Gates of recipes that take these from a network.
    interval_decay : float or None
        How the errors behind intervals fade a row; None: as the recipe's associations do.
    ahead : int or None
        Rows ahead that have intervals. Errors beyond the horizon are measured while rows are read: that
        takes an answer of the memory for each such row at every row (64 at most). None: the horizon.
    strategy : "recursive" or "direct"
        How rows between the next and the horizon are forecast. "recursive": by the one memory of
        rows `horizon` ahead, from earlier rows. "direct": by a memory for each of 1 .. horizon, every
        one with intervals of its own errors.
    differences : seasons
        [1]: the memory reads x_t - x_{t-1}; [1, 12]: also those of such differences twelve rows apart.
        Forecasts and intervals are of the rows all the same. Horizon 1.
    log : bool
        The memory reads logarithms of rows, all above 0. Forecasts are medians then.
    intervals : "student" or "conformal"
        "student": forecast +- q s of `forecast_interval`. "conformal": quantiles of the sizes of the
        last 250 errors, at a rank that follows what was covered: they assume no distribution, and
        a spike is forgotten 250 rows later.

    Attributes
    ----------
    forecasts_ : [n, columns]
        Of the rows that `fit` or `partial_fit` read last, each as it was made `horizon` rows
        before; NaN where there was none yet.
    n_features_in_, n_seen_ : columns; rows read so far, without those that do not count

    Raises ValueError: infinity in X, no rows, fewer of them than `lags` + `horizon` in `fit`, another
    number of columns, other labels of them, times or steps ahead in place of rows, a recipe that cannot
    learn row by row.
    """

    reader_: Reader
    _labels: list[Any] | None  # of the columns, where they have some
    _by_name: bool  # a row is a mapping

    def __init__(
        self,
        recipe: Any = "rls{ridge: 0.1}",
        *,
        lags: int | Sequence[int] = 16,
        horizon: int = 1,
        units: str = "window",
        step: float = 0.5,
        decay: float = 0.99,
        momentum: float = 0.5,
        weight_decay: float = 0.01,
        interval_decay: float | None = None,
        ahead: int | None = None,
        strategy: str = "recursive",
        differences: Sequence[int] = (),
        log: bool = False,
        intervals: str = "student",
    ) -> None:
        self.recipe = recipe
        self.lags = lags
        self.horizon = horizon
        self.units = units
        self.step = step
        self.decay = decay
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.interval_decay = interval_decay
        self.ahead = ahead
        self.strategy = strategy
        self.differences = differences
        self.log = log
        self.intervals = intervals

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.target_tags.required = False
        return tags

    def fit(self, X: Any, y: Any = None) -> StreamingForecaster:
        """Reads a table [rows, columns], or one column [rows], from the start. y is not used: X that
        looks like times beside it is refused. ValueError of fewer rows than a first forecast's row is
        number; `partial_fit` takes any."""
        return self._learn("fit", X, y, reset=True)

    def partial_fit(self, X: Any, y: Any = None) -> StreamingForecaster:
        """Goes on with more rows."""
        return self._learn("partial_fit", X, y, reset=not hasattr(self, "reader_"))

    def fit_panel(self, table: Any, freq: Any = None) -> ForecasterPanel:
        """A forecaster with these options for each series of a long table; this one stays as it is.

        table : frame (pandas, polars, pyarrow), path of a Parquet file or {column: array} of `unique_id`, `ds` and `y`
            A row is one value of one series. Rows may stand in any order: each series is read by
            rising `ds`, numbers or dates. NaN or None in y is missing, as is a row that is not there.
        freq : what lies between two stamps
            A number, a timedelta64, or a text as "7D", "1M", "15m", "B" (weekdays); None: what most
            rows of the table have between them (dates by months, weekdays or a fixed time).

        Series with too few rows are there without forecasts, `reasons_` says why. All
        series are read in one call, on all cores. ValueError, which names id and row (from 0): a stamp twice, missing, or off the
        steps; infinity; an id that is missing; other columns.
        """
        return ForecasterPanel(self, table, freq)

    def learn_one(self, y: float | Mapping[Any, float]) -> None:
        """Reads one row: the number of the one column, or {column: number}; NaN or an absent column
        is missing."""
        if isinstance(y, Mapping):
            check_row("learn_one", "y", y, "column")
        else:
            check_number("learn_one", "y", y)
        if not hasattr(self, "reader_"):
            self._begin(y)
        row = self._row(y)
        if np.isinf(row).any():
            raise ValueError(f"[learn_one] y must be finite or NaN but has infinity: {y}")
        self.forecasts_ = self.reader_.read(row[None])

    def predict(self, X: Any) -> Array:
        """The rows of a table that follows what was read, each forecast from the rows before it,
        `horizon` rows earlier, and learned on the way. The forecaster itself stays where it is.
        [n, columns], or [n] of one column [n]. `forecast` is what has no such rows yet."""
        check_is_fitted(self, "reader_")
        check_horizon(X)
        rows = self._table("predict", X, None, reset=False)
        reader = copy.deepcopy(self.reader_)
        forecasts = reader.read(rows)
        return forecasts[:, 0] if np.ndim(X) == 1 else forecasts

    def score(self, X: Any, y: Any = None) -> float:
        """1 - (squared errors of `predict`) / (those of repeating the last value known `horizon`
        rows before): 1 is perfect, 0 as good as the naive forecast. Rows and columns without a value
        or a forecast do not count."""
        rows = self._table("score", X, y, reset=False)
        forecasts = self.predict(X)
        forecasts = forecasts.reshape(rows.shape)
        naive = self.reader_.repeated(rows)
        known = np.isfinite(rows) & np.isfinite(forecasts) & np.isfinite(naive)
        errors, least = (rows - forecasts)[known], (rows - naive)[known]
        return float(1 - np.sum(errors**2) / np.sum(least**2)) if known.any() else float("nan")

    def forecast(self, steps: int = 1) -> Array:
        """The next rows, [steps, columns], as many as one likes. Beyond the horizon they go on by
        recursion: forecasts stand in for the rows they are made from, one after the other. ValueError
        where too few rows were read for the first."""
        self._check_ahead(steps)
        return self.reader_.ahead(steps)

    def forecast_interval(self, steps: int = 1, level: float = 0.95) -> tuple[Array, Array]:
        """Bounds between which the values of each of the next rows are expected with probability
        `level`, [steps, columns] each. `intervals` "student": forecast +- q s: s is the root mean square of the
        forecaster's own errors, without its first 2 lags columns forecasts, q the quantile of
        Student's t. Beyond the horizon, up to `ahead`, s is that of forecasts which went on so far.
        NaN where no error is known yet, and with a warning beyond `ahead`: nobody has measured those.
        """
        check_level(level)
        self._check_ahead(steps)
        measured = max(self.horizon, self.ahead or 1)
        if steps > measured:
            warnings.warn(
                f"[forecast_interval] rows {measured + 1} to {steps} ahead have no bounds (NaN): errors "
                f"are measured while rows are read, up to {measured} ahead: give ahead={steps}",
                stacklevel=2,
            )
        return self.reader_.bounds(level, steps)

    def coverage(self, X: Any, level: float = 0.95) -> float:
        """The share of the rows that follow that lie inside of their intervals, each made `horizon` rows
        before; the forecaster stays where it is. NaN where none had bounds. Warns (RuntimeWarning)
        where that is further from the level than chance explains: the promise is not kept."""
        check_level(level)
        rows = self._table("coverage", X, None, reset=False)
        self._check_ahead(1)
        reader, ahead = copy.deepcopy(self.reader_), self.horizon
        bounds = []
        for row in rows:
            bounds.append([bound[ahead - 1] for bound in reader.bounds(level, ahead)])
            reader.read(row[None])
        lower, upper = np.moveaxis(np.array(bounds)[: len(rows) - ahead + 1], 1, 0)
        return warn_of_coverage("coverage", rows[ahead - 1 :], lower, upper, level, ahead)

    def plot(self, X: Any, steps: int = 1, level: float = 0.95) -> str:
        """A picture (SVG, for light and dark pages): the first column of the rows that were read last,
        X or the end of it, their forecasts as they were made, the next steps with bounds, and the
        errors. Drawn by the command `ttr`; RuntimeError: it is not on the path."""
        rows = self._table("plot", X, None, reset=False)
        self._check_ahead(steps)
        check_level(level)
        return picture(self, rows[:, 0], steps, level)

    @property
    def condition_(self) -> float:
        """The condition of the memory's Gram matrix, as `ttr forecast` prints it; inf where it is
        singular, which is the rule with units "window" and harmless (docs/forecast.md)."""
        check_is_fitted(self, "reader_")
        return self.reader_.condition

    def predict_one(self) -> float | dict[Any, float]:
        """The next row as `learn_one` takes it: a number, or {column: number}. NaN before there were
        enough rows."""
        if not hasattr(self, "reader_"):
            return float("nan")
        row = self.reader_.pending().tolist()
        if len(row) == 1 and not self._by_name:
            return float(row[0])
        return dict(zip(self._names(), row))

    @property
    def n_seen_(self) -> int:
        check_is_fitted(self, "reader_")
        return self.reader_.rows

    # ---- The way there ---------------------------------------------------------------------------

    def _learn(self, op: str, X: Any, y: Any, reset: bool) -> StreamingForecaster:
        rows = self._table(op, X, y, reset)
        reader = self._reader(rows.shape[1]) if reset else self.reader_
        forecasts = reader.read(rows)
        needed = self._needed() + 1
        if op == "fit" and reader.rows < needed:
            raise ValueError(
                f"[fit] X must have at least lags + horizon{self._behind()} = {needed} samples but has {reader.rows} "
                f"sample{'s' * (reader.rows != 1)} of known values: take fewer lags, or partial_fit"
            )
        if reset:
            self.reader_, self._labels, self._by_name = reader, labels_of(X), False
        self.forecasts_ = forecasts
        return self

    def _begin(self, y: float | Mapping[Any, float]) -> None:
        """The first row says which columns there are."""
        self._by_name = isinstance(y, Mapping)
        labels = list(y) if isinstance(y, Mapping) else None
        if labels == []:
            raise ValueError("[learn_one] y must have a column in the first row but is {}")
        columns = 1 if labels is None else len(labels)
        reader = self._reader(columns)
        self.reader_, self._labels, self.n_features_in_ = reader, labels, columns
        if labels is not None and are_texts(labels):
            self.feature_names_in_ = np.array(labels, dtype=object)

    def _table(self, op: str, X: Any, y: Any, reset: bool) -> Array:
        check_series(op, X, y)
        if not reset:
            check_labels(op, self._labels, X)
        if np.ndim(X) == 1 and not hasattr(X, "columns"):
            X = np.asarray(X)[:, None]
        return np.asarray(
            validate_data(self, X, reset=reset, dtype=np.float64, ensure_all_finite="allow-nan")
        )

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

    def _of_one_column(self) -> StreamingForecaster:
        """A new one with these options, which has read nothing yet."""
        new = StreamingForecaster(**self.get_params(deep=False))
        new.reader_, new._labels, new._by_name = self._reader(1), None, False
        new.n_features_in_ = 1
        return new

    def _reader(self, columns: int) -> Reader:
        if self.units not in ("window", "raw"):
            raise ValueError(f"[sklearn] units must be 'window' or 'raw' but is {self.units!r}")
        check_count("sklearn", "horizon", self.horizon)
        check_among("strategy", self.strategy, ("recursive", "direct"))
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
            conformal=_RECENT if self.intervals == "conformal" else 0,
            direct=self.strategy == "direct",
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
