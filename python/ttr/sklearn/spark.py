"""Spark: one regression of a table in parts, and forecasts of a panel in parts.

    from ttr.sklearn import StreamingForecaster, StreamingRegressor, spark

    model = spark.fit(StreamingRegressor(), session.read.parquet("rows/"), y="price")
    ahead = spark.forecast_panel(StreamingForecaster(lags=16), table, "1D", steps=12)

Executors fit the partitions batch by batch (`mapInPandas`), and two fits become one
(`StreamingRegressor.merge`) until one is left (`treeReduce`): the coefficients, errors and intervals
of a fit of all rows. No row leaves its executor.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pandas

from ._parts import empty_forecasts, fit_part, forecast_part, merge_parts, merged


def fit(model: Any, frame: Any, y: str) -> Any:
    """A new regressor with the parameters of `model`, of all rows of a Spark frame; all columns but
    y are features. What `StreamingRegressor.merge` refuses is refused."""

    def fitted(frames: Iterator[Any]) -> Iterator[Any]:
        yield pandas.DataFrame({"model": [pickle.dumps(fit_part(model, frames, y))]})

    def merge(a: bytes, b: bytes) -> bytes:
        return pickle.dumps(merge_parts(pickle.loads(a), pickle.loads(b)))

    parts = frame.mapInPandas(fitted, "model binary").rdd.map(lambda row: bytes(row.model))
    if parts.getNumPartitions() == 0:
        return merged(None)
    return merged(pickle.loads(parts.treeReduce(merge)))


def forecast_panel(
    forecaster: Any, frame: Any, freq: Any, steps: int = 1, level: Any = None
) -> Any:
    """`forecaster.fit_panel(...).forecast(steps, level)` of a Spark frame `unique_id`, `ds`, `y`, as a
    Spark frame. `freq`: as for `fit_panel`; parts of a table cannot tell it together. The rows of
    a series are brought together, and a partition's series are read in one call."""

    def forecasts(frames: Iterator[Any]) -> Iterator[Any]:
        parts = [part for part in frames if len(part) > 0]
        if parts:
            whole = pandas.concat(parts, ignore_index=True)
            yield forecast_part(whole, forecaster, freq, steps, level)

    table = frame.select("unique_id", "ds", "y")
    names = list(empty_forecasts(table.limit(0).toPandas(), level).columns)
    types = {field.name: field.dataType.simpleString() for field in table.schema.fields}
    schema = ", ".join(f"`{name}` {types.get(name, 'double')}" for name in names)
    return table.repartition("unique_id").mapInPandas(forecasts, schema)
