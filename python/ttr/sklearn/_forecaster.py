"""Forecasts of a table's next rows, by a memory that reads it row by row."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ._panel import ForecasterPanel
from ._plot import picture
from ._reading import ReadingForecaster
from ._residuals import check_level
from ._rows import check_horizon, check_number, check_row, check_target, steps_of
from ._watch import warn_of_coverage


class StreamingForecaster(ReadingForecaster):
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
    strategy : "recursive", "direct" or "combined"
        How rows between the next and the horizon are forecast. "recursive": by the one memory of
        rows `horizon` ahead, from earlier rows. "direct": by a memory for each of 1 .. horizon, every
        one with intervals of its own errors. "combined": by the mean of these and of the recursion of
        a memory of the next row, with an intercept where the recipe is linear; intervals are of the
        mean's own errors. It takes no exogenous columns.
    differences : seasons
        [1]: the memory reads x_t - x_{t-1}; [1, 12]: also those of such differences twelve rows apart.
        Forecasts and intervals are of the rows all the same. Horizon 1.
    log : bool
        The memory reads logarithms of rows, all above 0. Forecasts are medians then.
    intervals : "student" or "conformal"
        "student": forecast +- q s of `forecast_interval`. "conformal": quantiles of the sizes of the
        last 250 errors, at a rank that follows what was covered: they assume no distribution, and
        a spike is forgotten 250 rows later.

    calendar : "month", "weekday", "hour", or some of them
        Exogenous columns from the dates of pandas' index: 1 in the column of the row's month (12 of
        them), weekday (7) or hour (24). Those of rows to come are known.

    Attributes
    ----------
    forecasts_ : [n, columns]
        Of the rows that `fit` or `partial_fit` read last, each as it was made `horizon` rows
        before; NaN where there was none yet.
    n_features_in_, n_seen_ : columns; rows read so far, without those that do not count

    Raises ValueError: infinity in y, no rows, fewer of them than `lags` + `horizon` in `fit`, another
    number of columns, other labels of them, times or steps ahead in place of rows, a recipe that cannot
    learn row by row.
    """

    def __init__(
        self,
        recipe: Any = "rls{factor: qr, ridge: 0.1}",
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
        calendar: Sequence[str] = (),
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
        self.calendar = calendar

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.target_tags.required = False
        return tags

    def fit(self, y: Any, target: Any = None, *, X: Any = None) -> StreamingForecaster:
        """Reads a table [rows, columns], or one column [rows], from the start.

        X : [rows, E], known before their rows: plans, weather forecasts, holidays; None: there are none
            Then `predict`, `forecast` and `learn_one` want those of their rows, too.
        target : what scikit-learn's tools pass beside rows; it is not read, which a warning says.

        An index of pandas with dates or periods says when rows were: stamps that it leaves out are
        missing rows, and forecasts come back with the stamps that follow. ValueError: times are given in
        place of the series, or too few rows for one forecast; `partial_fit` takes any number."""
        return self._learn("fit", y, target, X, reset=True)

    def partial_fit(self, y: Any, target: Any = None, *, X: Any = None) -> StreamingForecaster:
        """Goes on with more rows."""
        return self._learn("partial_fit", y, target, X, reset=not hasattr(self, "reader_"))

    def fit_panel(self, table: Any, freq: Any = None, *, X: Iterable[str] = ()) -> ForecasterPanel:
        """A forecaster with these options for each series of a long table; this one stays as it is.

        table : frame (pandas, polars, pyarrow), path of a Parquet file or {column: array} of `unique_id`, `ds` and `y`
            A row is one value of one series. Rows may stand in any order: each series is read by
            rising `ds`, numbers or dates. NaN or None in y is missing, as is a row that is not there.
        freq : what lies between two stamps
            A number, a timedelta64, or a text as "7D", "1M", "15m", "B" (weekdays); None: what most
            rows of the table have between them (dates by months, weekdays or a fixed time).
        X : names of further columns of the table
            Numbers that are known before their rows; `forecast` wants those of the rows to come.

        Series with too few rows are there without forecasts, `reasons_` says why. All
        series are read in one call, on all cores. ValueError, which names id and row (from 0): a stamp twice, missing, or off the
        steps; infinity; an id that is missing; other columns.
        """
        return ForecasterPanel(self, table, freq, X)

    def learn_one(self, y: float | Mapping[Any, float], X: Any = None) -> None:
        """Reads one row: the number of the one column, or {column: number}; NaN or an absent column
        is missing. X: its exogenous columns, numbers or {column: number}. It comes one step behind
        the last."""
        if isinstance(y, Mapping):
            check_row("learn_one", "y", y, "column")
        else:
            check_number("learn_one", "y", y)
        if not hasattr(self, "reader_"):
            self._begin(y, X)
        row = self._row(y)
        if np.isinf(row).any():
            raise ValueError(f"[learn_one] y must be finite or NaN but has infinity: {y}")
        one = self._exogenous.one("learn_one", X, "the row")
        steps = None if self._timeline is None else self._timeline.after(1)
        taken = self._take("learn_one", row[None], steps, one)
        self.forecasts_ = self.reader_.read(taken.rows, taken.known)
        self._timeline = taken.timeline

    def predict(
        self, y: Any = None, *, fh: Any = None, h: int | None = None, X: Any = None
    ) -> Any:
        """The rows to come: `h` of them, or those at the steps ahead `fh` ([1, 2, 12]), X with a row for
        each up to the last. Of pandas they come with the stamps that follow, else as [n, columns], or
        [n] of a column [n].

        Or, with y, the rows of a table that follows what was read, each forecast from the rows before
        it, `horizon` rows earlier, and learned on the way; the forecaster itself stays where it is."""
        check_is_fitted(self, "reader_")
        if (y is not None) + (fh is not None) + (h is not None) != 1:
            raise ValueError("[predict] one of y, fh and h must be given")
        if y is None:
            steps = steps_of(fh, h)
            return self._like(self._rows_ahead(int(steps.max()), X)[steps - 1], steps)
        check_horizon(y)
        taken = self._given("predict", y, X, reset=False)
        forecasts = copy.deepcopy(self.reader_).read(taken.rows, taken.known)[taken.places]
        return forecasts[:, 0] if np.ndim(y) == 1 else forecasts

    def score(self, y: Any, target: Any = None, *, X: Any = None) -> float:
        """1 - (squared errors of `predict`) / (those of repeating the last value known `horizon`
        rows before): 1 is perfect, 0 as good as the naive forecast. Rows and columns without a value
        or a forecast do not count."""
        check_target("score", y, target)
        taken = self._given("score", y, X, reset=False)
        forecasts = copy.deepcopy(self.reader_).read(taken.rows, taken.known)
        naive = self.reader_.repeated(taken.rows)
        known = np.isfinite(taken.rows) & np.isfinite(forecasts) & np.isfinite(naive)
        errors, least = (taken.rows - forecasts)[known], (taken.rows - naive)[known]
        return float(1 - np.sum(errors**2) / np.sum(least**2)) if known.any() else float("nan")

    def forecast(self, steps: int = 1, *, X: Any = None) -> Any:
        """The next rows, as many as one likes, [steps, columns], or as the pandas that was read. Beyond
        the horizon they go on by recursion: forecasts stand in for the rows they are made from, one
        after the other. X: exogenous columns [steps, E] of these rows. ValueError where too few rows
        were read for the first, or X is missing."""
        return self._like(self._rows_ahead(steps, X), np.arange(1, steps + 1), wide=True)

    def forecast_interval(self, steps: int = 1, level: float = 0.95, *, X: Any = None) -> Any:
        """Bounds between which the values of each of the next rows are expected with probability
        `level`, lower and upper, each as `forecast` has its rows. `intervals` "student": forecast +- q s: s is the root mean square of the
        forecaster's own errors, without its first 2 lags columns forecasts, q the quantile of
        Student's t. Beyond the horizon, up to `ahead`, s is that of forecasts which went on so far.
        NaN where no error is known yet, and with a warning beyond `ahead`: nobody has measured those.
        """
        bounds = self._bounds_ahead(steps, level, X)
        lower, upper = (self._like(one, np.arange(1, steps + 1), wide=True) for one in bounds)
        return lower, upper

    def coverage(self, y: Any, level: float = 0.95, *, X: Any = None) -> float:
        """The share of the rows that follow that lie inside of their intervals, each made `horizon` rows
        before; the forecaster stays where it is. NaN where none had bounds. Warns (RuntimeWarning)
        where that is further from the level than chance explains: the promise is not kept."""
        check_level(level)
        taken = self._given("coverage", y, X, reset=False)
        self._check_ahead(1)
        reader, ahead, rows = copy.deepcopy(self.reader_), self.horizon, taken.rows
        bounds = []
        for t, row in enumerate(rows):
            known = None if taken.known is None else taken.known[t : t + 1]
            bounds.append([bound[ahead - 1] for bound in reader.bounds(level, ahead, known)])
            reader.read(row[None], known)
        lower, upper = np.moveaxis(np.array(bounds)[: len(rows) - ahead + 1], 1, 0)
        return warn_of_coverage("coverage", rows[ahead - 1 :], lower, upper, level, ahead)

    def plot(self, y: Any, steps: int = 1, level: float = 0.95, *, X: Any = None) -> str:
        """A picture (SVG, for light and dark pages): the first column of the rows that were read last,
        y or the end of it, their forecasts as they were made, the next steps with bounds, and the
        errors. X: as for `forecast`. Drawn by the command `ttr`; RuntimeError: it is not on the path."""
        rows = self._table("plot", y, reset=False)
        ahead = self._rows_ahead(steps, X)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # where bounds end is seen
            lower, upper = self._bounds_ahead(steps, level, X)
        to_come = np.stack([ahead[:, 0], lower[:, 0], upper[:, 0]])
        return picture(self, rows[:, 0], to_come, level)

    @property
    def condition_(self) -> float:
        """The condition of the memory's Gram matrix, as `ttr forecast` prints it; inf where it is
        singular, which is the rule with units "window" and harmless (docs/forecast.md)."""
        check_is_fitted(self, "reader_")
        return self.reader_.condition

    def predict_one(self, X: Any = None) -> float | dict[Any, float]:
        """The next row as `learn_one` takes it: a number, or {column: number}. NaN before there were
        enough rows. X: its exogenous columns."""
        if not hasattr(self, "reader_"):
            return float("nan")
        one = self._exogenous.one("predict_one", X, "the next row")
        row = self.reader_.ahead(1, self._known_ahead(1, one))[0].tolist()
        if len(row) == 1 and not self._by_name:
            return float(row[0])
        return dict(zip(self._names(), row))

    @property
    def n_seen_(self) -> int:
        check_is_fitted(self, "reader_")
        return self.reader_.rows
