"""A table of rows and a panel, and what one process makes of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
from ttr.sklearn import StreamingForecaster, StreamingRegressor

FREQ = "1D"


def rows() -> pandas.DataFrame:
    random = np.random.default_rng(0)
    frame = pandas.DataFrame(random.standard_normal((1000, 3)) + 50, columns=["a", "b", "c"])
    frame["y"] = frame["a"] - 2 * frame["b"] + 7 + 0.1 * random.standard_normal(1000)
    return frame


def panel() -> pandas.DataFrame:
    """Series of 30 to 59 days, one of a single day, each with a day that is missing."""
    random = np.random.default_rng(1)
    parts = []
    for i in range(20):
        days = np.delete(np.arange(30 + i if i else 1), 20 if i else [])
        stamps = np.datetime64("2024-01-01", "ns") + days.astype("m8[D]")
        values = random.standard_normal(len(days)).cumsum()
        parts.append(pandas.DataFrame({"unique_id": f"s{i}", "ds": stamps, "y": values}))
    return pandas.concat(parts, ignore_index=True)


def check_model(model: StreamingRegressor) -> None:
    """Is it the fit of all rows?"""
    frame = rows()
    whole = StreamingRegressor().fit(frame.drop(columns="y"), frame["y"])
    assert model.n_seen_ == 1000
    np.testing.assert_allclose(model.coef_, whole.coef_, rtol=1e-12)
    np.testing.assert_allclose(model.coef_stderr_, whole.coef_stderr_, rtol=1e-9)
    np.testing.assert_allclose(model.intercept_, whole.intercept_, rtol=1e-10)


def check_forecasts(
    ahead: pandas.DataFrame, forecaster: StreamingForecaster, steps: int, level: Any
) -> None:
    """Are these the numbers of one panel, bit for bit?"""
    whole = forecaster.fit_panel(panel(), FREQ).forecast(steps, level)
    assert list(ahead.columns) == list(whole.columns)
    mine, its = (one.sort_values(["unique_id", "ds"], ignore_index=True) for one in (ahead, whole))
    assert mine["unique_id"].tolist() == its["unique_id"].tolist()
    np.testing.assert_array_equal(
        mine["ds"].to_numpy("M8[ns]"), its["ds"].to_numpy("M8[ns]")
    )
    for name in whole.columns[2:]:
        np.testing.assert_array_equal(mine[name].to_numpy(float), its[name].to_numpy(float))
    assert mine["StreamingForecaster"].isna().sum() == steps  # of the series of one day
