"""Many series in one long table, a forecaster for each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from ._constants import Array
from ._exogenous import Exogenous, calendar_names, calendar_of
from ._long import Series, check_spacing, filled, opened, rows_at, split
from ._reader import read_tables
from ._residuals import check_level
from ._rows import check_count
from ._stamps import KEPT, Spacing, Stamps, spacing_from, spacing_of

if TYPE_CHECKING:
    from ._forecaster import StreamingForecaster


class ForecasterPanel:
    """Forecasters of the series of one table, all with the same options.

    A table is long, as forecasting libraries have it: a row says that series `unique_id` had the value
    `y` at `ds`. A dictionary of arrays, or a frame (pandas, polars, pyarrow); forecasts come as the same.
    The path of a Parquet file is read by pyarrow, those three columns of it, and those that X names: exogenous
    columns, known before their rows.

    Attributes
    ----------
    forecasters_ : {id: StreamingForecaster}
        In the order in which the table has them.
    freq_ : what lies between two stamps
    reasons_ : {id: text}
        Why a series has no forecast yet: too few rows. Its forecasts are NaN.
    """

    def __init__(
        self, forecaster: StreamingForecaster, table: Any, freq: Any = None, X: Iterable[str] = ()
    ) -> None:
        names = [X] if isinstance(X, str) else list(X)
        calendar = calendar_names("fit_panel", forecaster.calendar)
        self._exogenous = Exogenous(len(names), names, calendar)
        table = opened("fit_panel", table, names)
        series = split("fit_panel", table, self._labels)
        self.freq_ = _spacing(series, freq)
        self._kind = type(table)
        self._forecaster = clone(forecaster)
        self._dated = series[0].stamps.dtype.kind == "M"
        if self._exogenous.calendar and not self._dated:
            raise ValueError("[fit_panel] ds must be dates where calendar is given but are numbers")
        self._stamps: dict[Any, Stamps] = {}  # the last ones, which say how a series goes on
        self.forecasters_: dict[Any, StreamingForecaster] = {}
        self._learn("fit_panel", series)

    def partial_fit(self, table: Any) -> ForecasterPanel:
        """Goes on with more rows, each behind those of its series; series may be new. ValueError, and
        nothing learned: as `fit_panel`, and rows that are not behind what is there."""
        series = split("partial_fit", opened("partial_fit", table, self._labels), self._labels)
        if (series[0].stamps.dtype.kind == "M") != self._dated:
            kinds = ("dates", "numbers") if self._dated else ("numbers", "dates")
            raise ValueError(f"[partial_fit] ds must be {kinds[0]} as before but are {kinds[1]}")
        self._learn("partial_fit", series)
        return self

    def forecast(
        self, steps: int = 1, level: float | Iterable[float] | None = None, *, X: Any = None
    ) -> Any:
        """The next rows of every series: `unique_id`, `ds` and `StreamingForecaster`; with levels, each
        above 0 and below 1, also `StreamingForecaster-lo-95` and `-hi-95` (for .95), the bounds of
        `StreamingForecaster.forecast_interval`: NaN, and a warning, beyond the horizon and `ahead`. NaN
        of series in `reasons_`.

        X : table of `unique_id`, `ds` and the exogenous columns of these rows, where the panel has some.
            ValueError that names the id and the stamp of a row that is not there.
        """
        check_count("forecast", "steps", steps, ": all rows up to the last one come")
        levels = [] if level is None else list(np.atleast_1d(np.asarray(level, np.float64)))
        for one in levels:
            check_level(one)
        silent = self.reasons_
        known = self._known_ahead(steps, X)
        parts = [
            self._ahead(name, steps, levels, name in silent, known[name]) for name in self.forecasters_
        ]
        whole = {column: np.concatenate([part[column] for part in parts]) for column in parts[0]}
        return self._like({"unique_id": np.repeat(self._ids(), steps), **whole})

    @property
    def reasons_(self) -> dict[Any, str]:
        found = {}
        for name, forecaster in self.forecasters_.items():
            needed, rows = forecaster._needed(), forecaster.n_seen_
            if rows < needed:
                found[name] = (
                    f"{needed} rows from the first value on are needed, and {rows} are there"
                )
        return found

    # ---- The way there ---------------------------------------------------------------------------

    def _learn(self, op: str, series: list[Series]) -> None:
        """All or nothing: every series is checked before the first is learned."""
        known = {one.name: self._stamps.get(one.name, one.stamps[:0]) for one in series}
        calendar = self._exogenous.calendar
        reach = self._forecaster._reach()
        rows = {
            one.name: filled(op, one, known[one.name], self.freq_, calendar, reach) for one in series
        }
        for one in series:
            if one.name not in self.forecasters_:
                self.forecasters_[one.name] = self._forecaster._of_one_column(self._exogenous)
            self._stamps[one.name] = np.concatenate([known[one.name], one.stamps])[-KEPT:]
        forecasters = [self.forecasters_[one.name] for one in series]
        tables = [rows[one.name].values[:, None] for one in series]
        exogenous = [rows[one.name].known for one in series]
        forecasts = read_tables([one.reader_ for one in forecasters], tables, exogenous)
        for forecaster, made in zip(forecasters, forecasts):
            forecaster.forecasts_ = made

    @property
    def _labels(self) -> list[Any]:
        return self._exogenous.labels or []

    def _known_ahead(self, steps: int, X: Any) -> dict[Any, Array | None]:
        """The exogenous columns of the rows to come, for every series."""
        calendar, labels = self._exogenous.calendar, self._labels
        if (X is None) == bool(labels):
            given = "None" if X is None else "given"
            wanted = f"a table of unique_id, ds, {', '.join(labels)}" if labels else "None"
            raise ValueError(f"[forecast] X must be {wanted}, as fit_panel's had, but is {given}")
        if self._exogenous.count == 0:
            return dict.fromkeys(self.forecasters_)
        table = opened("forecast", X, labels)
        rows = {one.name: one for one in (split("forecast", table, labels, False) if labels else [])}
        known: dict[Any, Array | None] = {}
        for name in self.forecasters_:
            stamps = self.freq_.after(self._stamps[name], steps)
            columns = calendar_of(calendar, stamps) if calendar else np.zeros((steps, 0))
            if labels:
                columns = np.hstack([rows_at("forecast", name, rows.get(name), stamps), columns])
            known[name] = columns
        return known

    def _ahead(
        self, name: Any, steps: int, levels: list[float], silent: bool, known: Array | None
    ) -> dict[str, Any]:
        forecaster, missing = self.forecasters_[name], np.full(steps, np.nan)
        columns: dict[str, NDArray[Any]] = {
            "ds": self.freq_.after(self._stamps[name], steps),
            _MODEL: missing if silent else forecaster.reader_.ahead(steps, known)[:, 0],
        }
        if levels and not silent:
            forecaster._warn_beyond(steps)
        for level in levels:
            bounds = (missing, missing)
            if not silent:
                bounds = forecaster.reader_.bounds(level, steps, known)
            for side, bound in zip(("lo", "hi"), bounds):
                columns[f"{_MODEL}-{side}-{100 * level:.10g}"] = bound.reshape(steps)
        return columns

    def _ids(self) -> NDArray[Any]:
        names = list(self.forecasters_)
        if {type(name) for name in names} in ({str}, {int}):
            return np.array(names)
        ids = np.empty(len(names), dtype=object)
        ids[:] = names
        return ids

    def _like(self, columns: dict[str, NDArray[Any]]) -> Any:
        """In the kind of table that was learned."""
        if issubclass(self._kind, Mapping):
            return columns
        if hasattr(self._kind, "from_pydict"):  # pyarrow
            return self._kind.from_pydict(columns)
        return self._kind({n: c.tolist() if c.dtype == object else c for n, c in columns.items()})


def _spacing(series: list[Series], freq: Any) -> Spacing:
    if freq is not None:
        return spacing_from(freq, series[0].stamps.dtype.kind == "M")
    spacing = spacing_of([one.stamps for one in series])
    check_spacing(series, spacing)
    assert spacing is not None
    return spacing


#: The column of forecasts, named as forecasting libraries name theirs: by the model's class.
_MODEL = "StreamingForecaster"
