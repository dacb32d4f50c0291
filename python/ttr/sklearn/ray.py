"""Ray: one regression of a table in parts, and forecasts of a panel in parts.

    import ray.data
    from ttr.sklearn import StreamingForecaster, StreamingRegressor, ray as ttr_ray

    model = ttr_ray.fit(StreamingRegressor(), ray.data.read_parquet("rows/"), y="price")
    ahead = ttr_ray.forecast_panel(StreamingForecaster(lags=16), table, "1D", steps=12)

Tasks fit the blocks of a data set, and two fits become one (`StreamingRegressor.merge`) until one is
left: the coefficients, errors and intervals of a fit of all rows. No row leaves its node.
"""

from __future__ import annotations

from typing import Any

import ray

from ._parts import fit_part, forecast_part, merge_parts, merged, tree


def fit(model: Any, table: Any, y: str) -> Any:
    """A new regressor with the parameters of `model`, of all rows of a `ray.data.Dataset`, whose
    blocks become frames of pandas; all columns but y are features. What `StreamingRegressor.merge`
    refuses is refused."""
    one = ray.remote(lambda part: fit_part(model, [part], y))
    join = ray.remote(merge_parts)
    parts = [one.remote(part) for part in table.to_pandas_refs()]
    return merged(ray.get(tree(parts, join.remote)))


def forecast_panel(
    forecaster: Any, table: Any, freq: Any, steps: int = 1, level: Any = None, parts: int = 2
) -> Any:
    """`forecaster.fit_panel(...).forecast(steps, level)` of a `ray.data.Dataset` of `unique_id`,
    `ds`, `y`, as a data set of as many blocks as `parts`. `freq`: as for `fit_panel`; parts of a table
    cannot tell it together. The rows of a series are brought together."""
    whole = table.repartition(parts, keys=["unique_id"]).to_pandas_refs()
    one = ray.remote(lambda part: forecast_part(part, forecaster, freq, steps, level))
    return ray.data.from_pandas_refs([one.remote(part) for part in whole])
