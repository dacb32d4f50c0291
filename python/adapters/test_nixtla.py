"""`ttr.sklearn.nixtla` among statsforecast's models."""

from __future__ import annotations

import numpy as np
import pandas
import pytest
from cases import panel
from statsforecast import StatsForecast
from statsforecast.models import Naive
from ttr.sklearn import StreamingForecaster
from ttr.sklearn.nixtla import MemoryModel


def table() -> pandas.DataFrame:
    """Without gaps, which statsforecast does not know."""
    whole = panel()
    whole = whole[whole["unique_id"] != "s0"].copy()
    whole["ds"] = whole.groupby("unique_id").cumcount()
    return whole


def test_forecasts_are_those_of_a_panel() -> None:
    frame = table()
    ahead = StatsForecast(models=[MemoryModel(lags=4), Naive()], freq=1).forecast(
        df=frame, h=3, level=[80]
    )
    expected = StreamingForecaster(lags=4, ahead=3).fit_panel(frame).forecast(3, 0.8)
    whole = ahead.merge(expected, on=["unique_id", "ds"], suffixes=("", "-panel"))
    assert len(whole) == len(ahead) == 3 * 19
    for name in ("", "-lo-80", "-hi-80"):
        np.testing.assert_array_equal(
            whole[f"StreamingForecaster{name}"], whole[f"StreamingForecaster{name}-panel"]
        )


def test_it_is_validated_and_fitted_as_others_are() -> None:
    frame = table()
    forecaster = StatsForecast(models=[MemoryModel(lags=4, alias="memory")], freq=1)
    found = forecaster.cross_validation(df=frame, h=2, n_windows=3, level=[90])
    assert np.isfinite(found[["memory", "memory-lo-90", "memory-hi-90"]].to_numpy()).all()
    ahead = forecaster.fit(frame).predict(h=2)
    cut = frame[frame["unique_id"] == "s5"]["y"].to_numpy()
    own = StreamingForecaster(lags=4).fit(cut)
    np.testing.assert_array_equal(ahead[ahead["unique_id"] == "s5"]["memory"], own.forecast(2)[:, 0])
    first = found[(found["unique_id"] == "s5")].sort_values(["cutoff", "ds"]).iloc[0]
    before = StreamingForecaster(lags=4).fit(cut[:-4])
    assert first["memory"] == before.forecast()[0, 0]
    with pytest.raises(ValueError, match="X must be given for the 2 rows to come"):
        MemoryModel(lags=4).fit(cut, np.ones((len(cut), 1))).predict(2)


def test_further_columns_are_exogenous() -> None:
    frame = table()
    frame["sun"] = np.random.default_rng(0).standard_normal(len(frame))
    frame["y"] += 10 * frame["sun"]
    last = frame.groupby("unique_id").tail(3)
    read = frame.drop(last.index)
    ahead = StatsForecast(models=[MemoryModel(lags=4)], freq=1).forecast(
        df=read, h=3, X_df=last.drop(columns="y"), level=[80]
    )
    whole = StreamingForecaster(lags=4, ahead=3).fit_panel(read, X=["sun"]).forecast(3, 0.8, X=last)
    both = ahead.merge(whole, on=["unique_id", "ds"], suffixes=("", "-panel"))
    assert len(both) == len(last)
    for name in ("", "-lo-80"):
        np.testing.assert_array_equal(
            both[f"StreamingForecaster{name}"], both[f"StreamingForecaster{name}-panel"]
        )
