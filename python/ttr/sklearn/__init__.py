"""Memories as scikit-learn's estimators: learn from rows as they come, predict at any time.

    from ttr.sklearn import StreamingForecaster, StreamingRegressor

    model = StreamingRegressor("affine_rls{decay: 0.99, importance: input}").fit(X, y)
    lower, upper = model.predict_interval(X_new, level=0.95)
    model.partial_fit(X_new, y_new)
    model.learn_one({"height": 1.7, "age": 40}, 64.0)          # a row as river's users have it

    forecaster = StreamingForecaster(lags=52).fit(series)      # NaN where a value is missing
    next_year = forecaster.forecast(52)

    whole = sum(StreamingRegressor().fit(*part) for part in parts)         # tables together
    recent = StreamingRegressor(window=100)                                # the last 100 rows alone
    fading = StreamingRegressor(half_life="7d", time="at")                 # by a column of dates
    shops = GroupedRegressor(recent, by="shop").fit(frame, y)              # one for every shop
    panel = StreamingForecaster().fit_panel(table)                         # many series: unique_id, ds, y

Every recipe that reads pairs one by one will do (`ttr.zoo()`); the gates that a network would give
are constants. scikit-learn 1.6 or newer is needed here and nowhere else in `ttr`.
"""

import importlib.util

if importlib.util.find_spec("sklearn") is None:
    raise ImportError("ttr.sklearn needs scikit-learn 1.6 or newer: pip install scikit-learn")

from ._forecaster import StreamingForecaster
from ._groups import GroupedRegressor
from ._panel import ForecasterPanel
from ._regressor import RegressionPath, StreamingRegressor

__all__ = [
    "ForecasterPanel",
    "GroupedRegressor",
    "RegressionPath",
    "StreamingForecaster",
    "StreamingRegressor",
]
