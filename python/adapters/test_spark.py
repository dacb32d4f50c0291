"""`ttr.sklearn.spark` on a local Spark of two executors' threads, each with Python processes of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from cases import FREQ, check_forecasts, check_model, panel, rows
from pyspark.sql import SparkSession
from ttr.sklearn import StreamingForecaster, StreamingRegressor, spark


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "3")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.mark.parametrize("parts", [1, 5])
def test_one_fit_of_all_rows(session: SparkSession, parts: int) -> None:
    frame = session.createDataFrame(rows()).repartition(parts)
    check_model(spark.fit(StreamingRegressor(), frame, "y"))


def test_parts_without_rows(session: SparkSession) -> None:
    frame = session.createDataFrame(rows())
    with pytest.raises(ValueError, match="must have rows"):
        spark.fit(StreamingRegressor(), frame.where("y > 1e9"), "y")


@pytest.mark.parametrize("level", [None, [0.8, 0.95]])
def test_forecasts_of_a_panel(session: SparkSession, level: Any) -> None:
    frame = session.createDataFrame(panel().sample(frac=1, random_state=0, ignore_index=True))
    forecaster = StreamingForecaster(lags=4, ahead=3)
    ahead = spark.forecast_panel(forecaster, frame, FREQ, steps=3, level=level)
    check_forecasts(ahead.toPandas(), forecaster, 3, level)
