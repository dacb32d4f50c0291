"""`ttr.sklearn.dask` on a local cluster of two processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dask.dataframe as dd
import numpy as np
import pytest
from cases import FREQ, check_forecasts, check_model, panel, rows
from dask.distributed import Client, LocalCluster
from ttr.sklearn import StreamingForecaster, StreamingRegressor, dask


@pytest.fixture(scope="module", autouse=True)
def client() -> Iterator[Client]:
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster, Client(cluster) as client:
        yield client


@pytest.mark.parametrize("parts", [1, 2, 7])
def test_one_fit_of_all_rows(parts: int) -> None:
    model = dask.fit(StreamingRegressor(), dd.from_pandas(rows(), npartitions=parts), "y")
    check_model(model)


def test_parts_without_rows() -> None:
    frame = dd.from_pandas(rows(), npartitions=4)
    check_model(dask.fit(StreamingRegressor(), dd.concat([frame.loc[:-5], frame]), "y"))
    with pytest.raises(ValueError, match="must have rows"):
        dask.fit(StreamingRegressor(), frame.loc[:-5], "y")


def test_what_does_not_merge_is_refused() -> None:
    with pytest.raises(ValueError, match="keeps no sums of rows"):
        dask.fit(StreamingRegressor("nlms"), dd.from_pandas(rows(), npartitions=2), "y")


@pytest.mark.parametrize("level", [None, [0.8, 0.95]])
def test_forecasts_of_a_panel(level: Any) -> None:
    mixed = panel().sample(frac=1, random_state=0, ignore_index=True)
    frame = dd.from_pandas(mixed, npartitions=3)
    forecaster = StreamingForecaster(lags=4, ahead=3)
    ahead = dask.forecast_panel(forecaster, frame, FREQ, steps=3, level=level)
    check_forecasts(ahead.compute(), forecaster, 3, level)
    assert list(ahead.columns) == list(ahead.compute().columns)
    assert len(np.unique(ahead.map_partitions(len).compute())) >= 1
