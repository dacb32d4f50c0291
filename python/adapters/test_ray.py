"""`ttr.sklearn.ray` on a local Ray of two processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import ray
from cases import FREQ, check_forecasts, check_model, panel, rows
from ttr.sklearn import StreamingForecaster, StreamingRegressor
from ttr.sklearn import ray as ttr_ray


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.mark.parametrize("parts", [1, 5])
def test_one_fit_of_all_rows(parts: int) -> None:
    table = ray.data.from_pandas(rows()).repartition(parts)
    check_model(ttr_ray.fit(StreamingRegressor(), table, "y"))


@pytest.mark.parametrize("level", [None, [0.8, 0.95]])
def test_forecasts_of_a_panel(level: Any) -> None:
    table = ray.data.from_pandas(panel().sample(frac=1, random_state=0, ignore_index=True))
    forecaster = StreamingForecaster(lags=4, ahead=3)
    ahead = ttr_ray.forecast_panel(forecaster, table, FREQ, steps=3, level=level)
    check_forecasts(ahead.to_pandas(), forecaster, 3, level)
