"""Dask: one regression of a table in parts, and forecasts of a panel in parts.

    import dask.dataframe as dd
    from ttr.sklearn import StreamingForecaster, StreamingRegressor, dask

    model = dask.fit(StreamingRegressor(), dd.read_parquet("rows/"), y="price")
    ahead = dask.forecast_panel(StreamingForecaster(lags=16), dd.read_parquet("panel/"), "1D", steps=12)

Workers fit the partitions, and two fits become one (`StreamingRegressor.merge`) until one is left:
the coefficients, errors and intervals of a fit of all rows. No row leaves its worker.
"""

from __future__ import annotations

from typing import Any

import dask

from ._parts import empty_forecasts, fit_part, forecast_part, merge_parts, merged, tree


def fit(model: Any, frame: Any, y: str) -> Any:
    """A new regressor with the parameters of `model`, of all rows of a Dask frame; all columns but y
    are features. What `StreamingRegressor.merge` refuses is refused."""
    one = dask.delayed(lambda part: fit_part(model, [part], y))
    join = dask.delayed(merge_parts)
    return merged(tree([one(part) for part in frame.to_delayed()], join).compute())


def forecast_panel(
    forecaster: Any, frame: Any, freq: Any, steps: int = 1, level: Any = None, shuffle: bool = True
) -> Any:
    """`forecaster.fit_panel(...).forecast(steps, level)` of a Dask frame `unique_id`, `ds`, `y`, as a
    Dask frame. `freq`: as for `fit_panel`; parts of a table cannot tell it together. `shuffle`
    brings the rows of a series together; False where every series lies in one partition."""
    whole = frame.shuffle("unique_id") if shuffle else frame
    meta = empty_forecasts(frame._meta, level)
    return whole.map_partitions(forecast_part, forecaster, freq, steps, level, meta=meta)
