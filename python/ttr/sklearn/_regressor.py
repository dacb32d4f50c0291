"""Regression that learns row by row."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

import ttr

from ._constants import Array, Constants, interval_decay_of, streamable
from ._forgetting import Forgetting
from ._learned import Learned
from ._linear import can_centre, is_least_squares
from ._memory import RowMemory
from ._merging import check_alike, check_sums, check_taken_back, merged, without
from ._residuals import FitResiduals, PredictiveResiduals
from ._rotated import RotatedMemory
from ._rows import check_number, check_row
from ._triangle import is_rotated


class RegressionPath(NamedTuple):
    """What a regressor was on the way through a table: of every row what was predicted before it was
    learned, [n] or [n, outputs], and the map behind it, [n, p] or [n, outputs, p], and its intercept."""

    predictions: Array
    coef: Array
    intercept: Array


class StreamingRegressor(Learned, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A memory of rows, y = m(x), that goes on learning.

        m_t = argmin_m  sum_{i<=t} w_i g^(t-i) |y_i - m(x_i)|^2 + ridge

    for the least-squares recipes, exactly after every row; what the recipe says for all others
    (delta rules, kernels, networks). `fit` = `partial_fit` in any parts = `learn_one` row by row, to
    rounding. Rows have an order: with forgetting later ones count more.

    Parameters
    ----------
    recipe : a name of `ttr.zoo()`, one with changes in braces, a recipe line or a `ttr.Recipe`
        Default: least squares with an intercept, ridge 1e-3 on the coefficients, no forgetting, by
        rotations of rows (``factor: qr``), which keep all their digits. It forgets with a decay,
        "affine_rls{factor: qr, decay: 0.99, importance: input}". Any recipe must read keys and queries,
        one pair a row.
    step, decay, momentum, weight_decay : float
        The gates of recipes that take these from a network. step >= 0, 0 < decay <= 1,
        0 <= momentum < 1, 0 <= weight_decay <= 1.
    interval_decay : float or None
        How the errors behind intervals fade a row, of memories that solve no least squares; None: as
        the recipe's associations do. 0 < interval_decay <= 1.
    window : int >= 1, a duration such as "6h", or None
        The map is learned from the last ``window`` rows alone, or from those that are less than that
        older than the last row by the column ``time``; for recipes that solve least squares in x.
        Everything is then what a fit of just these rows gives. Nothing is subtracted as rows leave,
        so that errors do not outlive them. Kept are up to 2 n rows and 2 sqrt(n) triangles.
    half_life : number > 0, a duration such as "7d", or None
        A row's weight halves in so many rows, or in that time by the column ``time``; for recipes that
        solve least squares in x and have no decay of their own. The ridge stays (``ridge_kind:
        constant``): a direction that no row excites any more is answered by 0 and not by noise.
    time : a label, a position, or None
        The column of X that says when a row was: dates (seconds since 1970) or numbers, rising or equal.
        It is no regressor. "6h" is 21600 of its units.
    nulls : "raise", "drop", "zero" or "wait"
        What NaN in X or y means. raise: an error. drop: the row is not there. zero: missing regressors
        are 0, and a row without y waits. wait: the row takes its place, so that time passes and windows
        move on, and nothing is learned from it. `predict` answers NaN where one is missing, but for zero.

    Attributes
    ----------
    coef_, intercept_ : [p] and float, or [outputs, p] and [outputs]
        y = coef_ x + intercept_, of linear memories; AttributeError of others.
    coef_stderr_, intercept_stderr_ : the same shapes
        Standard errors, of memories that solve least squares. With the normal equations' sums, which
        are the memory's state, A = sum w g^age x x^T + ridge and B = sum w g^age x y^T (x with a 1
        behind it):

            coef = A^-1 B,    stderr_j^2 = s^2 (S2 / S) (A^-1)_jj,    s^2 = rss / (S (1 - p / n_eff))

        S = sum g^age, S2 = sum g^(2 age), n_eff = S^2 / S2, p coefficients and the intercept; without
        forgetting s^2 (A^-1)_jj with s^2 = rss / (n - p), as in every textbook. With forgetting
        rows are taken to be alike over time, and coefficients constant. NaN for n_eff <= p.
    residual_variance_ : float or [outputs]
        s^2. Of other memories the mean square of their prediction errors, each before its row was
        learned, without those of the first 2 p rows.
    n_features_in_, feature_names_in_, n_seen_

    Memory and time: O(p^2) numbers and O(p^2) a row for least squares, p of one step rules.

    Raises ValueError, and learns nothing: infinity, and NaN under nulls="raise", by row and column; times
    that fall; weights that the recipe does not take ("importance: input"), below 0 or not finite; a
    recipe that cannot learn row by row.
    """

    def __init__(
        self,
        recipe: Any = "affine_rls{factor: qr, importance: input}",
        *,
        step: float = 0.5,
        decay: float = 0.99,
        momentum: float = 0.5,
        weight_decay: float = 0.01,
        interval_decay: float | None = None,
        window: Any = None,
        half_life: Any = None,
        time: Any = None,
        nulls: str = "raise",
    ) -> None:
        self.recipe = recipe
        self.step = step
        self.decay = decay
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.interval_decay = interval_decay
        self.window = window
        self.half_life = half_life
        self.time = time
        self.nulls = nulls

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.input_tags.allow_nan = self.nulls != "raise"
        return tags

    # ---- Learning --------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> StreamingRegressor:
        """Learns X [n, p] -> y [n] or [n, outputs] from nothing, in the order of the rows."""
        return self._learn(X, y, sample_weight, reset=True)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> StreamingRegressor:
        """Goes on with more rows."""
        return self._learn(X, y, sample_weight, reset=not hasattr(self, "memory_"))

    def path(self, X: Any, y: Any, sample_weight: Any = None) -> RegressionPath:
        """`partial_fit`, and what the regressor was behind every row: rolling coefficients with a window,
        expanding ones without, and forecasts one row ahead. For recipes that solve least squares in x.
        O(p^3) a row. Rows that ``nulls="drop"`` leaves out have none."""
        table = self._table("path", X, y, sample_weight, reset=not hasattr(self, "memory_"))
        if not isinstance(self.memory_, RotatedMemory):
            raise ValueError(
                f"[path] recipe must have factor: qr, or a window or half_life, but is {self.memory_.recipe}"
            )
        predictions, maps = self.memory_.own.path(*table)
        coef, intercept = maps[:, :-1].transpose(0, 2, 1), maps[:, -1]
        if self._flat:
            return RegressionPath(predictions[:, 0], coef[:, 0], intercept[:, 0])
        return RegressionPath(predictions, coef, intercept)

    def learn_one(self, x: Mapping[Any, float], y: float, w: float = 1.0) -> None:
        """Learns one row {feature: number}. A feature that is absent is 0; one that is new has been
        0 in all rows before."""
        memory = getattr(self, "memory_", None)
        if isinstance(memory, RotatedMemory) and isinstance(x, dict) and (w == 1 or memory.weighs):
            if memory.own.learn_row(x, self._places, y, w):
                return
        check_row("learn_one", "x", x, "feature", numbers=False)
        plain = {name: x[name] for name in x if self.time is None or name != self.time}
        for name, number in plain.items():
            self._check_one(f"x[{name!r}]", number)
        self._check_one("y", y)
        check_number("learn_one", "w", w)
        if not 0 <= w < np.inf:  # NaN fails
            raise ValueError(f"[learn_one] w must be 0 or more and finite but is {w}")
        times = None if self.time is None else self._time_of(x)
        if memory is None:
            if not plain:
                raise ValueError(f"[learn_one] x must have a feature in the first row but is {x}")
            self._start(list(plain), 1, flat=True)
            self._name(list(plain))
        elif not plain.keys() <= self._named.keys():
            self._grow(list(plain))
        if self.memory_.value_dim != 1:
            raise ValueError(
                f"[learn_one] the regressor must have one output but has {self.memory_.value_dim}"
            )
        value = np.array([[np.nan if y is None else float(y)]])
        weights = None if w == 1 else np.array([float(w)])
        self._write(*self._taken(self._row(plain)[None], value, weights, times))

    def _learn(self, X: Any, y: Any, sample_weight: Any, reset: bool) -> StreamingRegressor:
        self._write(*self._table("partial_fit" if not reset else "fit", X, y, sample_weight, reset))
        return self

    def _table(
        self, op: str, X: Any, y: Any, sample_weight: Any, reset: bool
    ) -> tuple[Array, Array, Array | None, Array | None]:
        """A table as the memory takes it, which is made anew."""
        X, y, weights, times, labels = self._checked(op, X, y, sample_weight, reset)
        if reset:
            self._labels = labels
            names = labels if labels is not None else self._positions(X.shape[1])
            self._start(names, 1 if y.ndim == 1 else y.shape[1], flat=y.ndim == 1)
        return self._taken(X, self._values(op, y), weights, times)

    def _start(self, names: list[Any], outputs: int, flat: bool) -> None:
        recipe = streamable(self.recipe)
        constants = Constants(self.step, self.decay, self.momentum, self.weight_decay)
        if self.window is not None or self.half_life is not None:
            check_sums("sklearn", recipe, "nadaraya_watson{window: 100} has a window of its own")
        forgetting = Forgetting.of(
            recipe, constants, self.window, self.half_life, self.time is not None
        )
        if self.half_life is not None:  # beside which a ridge that faded would be none
            recipe = recipe.with_options(ridge_kind="constant")
        features = len(names)
        self.memory_ = self._memory(recipe, constants, features, outputs, forgetting)
        self.n_features_in_ = features
        self._place(names)
        self._flat = flat
        self._fit = self._errors = None
        if isinstance(self.memory_, RotatedMemory):
            return
        if is_least_squares(recipe):
            parameters = features + (recipe.option("function") == "affine")
            self._fit = FitResiduals(forgetting.decay, outputs, parameters)
        else:
            fading = interval_decay_of(self.interval_decay, forgetting.decay)
            self._errors = PredictiveResiduals(fading, outputs, 2 * features)

    def _memory(
        self,
        recipe: ttr.Recipe,
        constants: Constants,
        features: int,
        outputs: int,
        forgetting: Forgetting,
    ) -> RowMemory | RotatedMemory:
        rotated = is_rotated(recipe) and is_least_squares(recipe)
        if rotated or self.window is not None or self.half_life is not None:
            return RotatedMemory(recipe, constants, features, outputs, forgetting)
        return RowMemory(recipe, constants, features, outputs, can_centre(recipe))

    def _write(
        self, rows: Array, values: Array, weights: Array | None, times: Array | None
    ) -> None:
        if isinstance(self.memory_, RotatedMemory):
            self.memory_.memorize(rows, values, weights, times)
            return
        before, after = self.memory_.learn(rows, values, weights)
        weight = np.ones(len(rows)) if weights is None else weights
        if self._fit is not None:
            self._fit.add(before, after, weight)
        elif self._errors is not None:
            self._errors.add(before[weight > 0])

    # ---- Tables together, rows taken back --------------------------------------------------------

    def merge(self, later: StreamingRegressor) -> StreamingRegressor:
        """A new regressor that has learned the rows of both, as one fit would: first this one's, then
        the other's. Neither changes. `sum(parts)` and `a + b` do the same.

            A = g^n A_a + A_b,   B = g^n B_a + B_b         n rows in b, the ridge once

        Coefficients, standard errors and intervals are those of one fit to rounding, in any order and
        nesting without forgetting; with it the parts follow each other in time. (With forgetting and
        ridge_kind: constant the residual variance is approximate, as is its recursion itself.)
        O(p^3), whatever the number of rows. With a window: the last rows of both.

        ValueError: another recipe, other gates, features or outputs; a recipe that solves no least
        squares in x itself, or whose ridge is a share of A. NotFittedError: nothing learned.
        """
        for regressor in (self, later):
            check_is_fitted(regressor, "memory_", msg=_UNFITTED)
            check_sums("merge", regressor.memory_.recipe, "fit one regressor on all rows")
        check_alike(self._shape(), later._shape())
        both = copy.deepcopy(self)
        mine, its = self.memory_, later.memory_
        if isinstance(mine, RotatedMemory) and isinstance(its, RotatedMemory):
            both.memory_ = mine.and_rows_of(its)
        elif isinstance(mine, RowMemory) and isinstance(its, RowMemory):
            assert both._fit is not None and later._fit is not None
            both.memory_ = merged(mine, both._fit, its, later._fit)
        return both

    def __add__(self, later: Any) -> StreamingRegressor:
        return self.merge(later) if isinstance(later, StreamingRegressor) else NotImplemented

    def __radd__(self, start: Any) -> StreamingRegressor:
        """0 + a, with which `sum` begins: a copy."""
        return copy.deepcopy(self) if isinstance(start, int) and start == 0 else NotImplemented

    def unlearn(
        self, X: Any, y: Any, sample_weight: Any = None, *, latest: bool = False
    ) -> StreamingRegressor:
        """Takes rows back that were learned, with the weights that they had:

            A <- A - sum w x x^T,   B <- B - sum w x y^T

        and the residual sum of squares with them. O(n p^2 + p^3). What remains keeps the absolute
        rounding errors of all that was there, and A has half the digits of the rows: 7e-12 of the
        coefficients after 100 000 rows of one scale, hardly a digit where rows of 1000 times the scale
        left a nearly singular problem (docs/sklearn.md; windows subtract nothing). ``latest``: of a
        recipe that forgets, whose weights depend on a row's age, the last rows that were learned can be
        taken back, all in their order; that they are those is the caller's word.

        Warns (RuntimeWarning) where what remains is not positive definite to rounding, and goes on
        with the coefficients of least norm. ValueError, and nothing changed: more rows than were
        learned, or rows that leave what is no sum of rows; a recipe that forgets, without ``latest``;
        those that `merge` refuses, too. That a y was another cannot be seen.
        """
        check_is_fitted(self, "memory_", msg=_UNFITTED)
        check_sums("unlearn", self.memory_.recipe, "fit the rows that remain")
        memory, fit = self.memory_, self._residuals()
        if self.window is not None or self.time is not None:
            kind, given = ("window", self.window) if self.window is not None else ("time", self.time)
            raise ValueError(f"[unlearn] {kind} must be None but is {given}: rows leave by themselves")
        X, y, weights, times, _ = self._checked("unlearn", X, y, sample_weight, reset=False)
        X, values, weights, _ = self._taken(X, self._values("unlearn", y), weights, times)
        check_taken_back(memory, len(X), latest)
        weight = np.ones(len(X)) if weights is None else weights
        assert fit is not None
        self.memory_ = without(memory, fit, X, values, weight)
        if self._fit is not None:
            self._fit = fit
        return self

    def _shape(self) -> dict[str, Any]:
        """What regressors that are merged have in common."""
        axes = " in one axis" if self._flat else ""
        return {
            "recipe": str(self.memory_.recipe),
            "gates": self.memory_.constants,
            "window": self.window,
            "half_life": self.half_life,
            "time": self.time,
            "features": list(self._named),
            "outputs": f"{self.memory_.value_dim}{axes}",
        }

    # ---- Rows of names ---------------------------------------------------------------------------

    def _grow(self, some: list[Any]) -> None:
        names = [*self._named, *(name for name in some if name not in self._named)]
        self.memory_ = self.memory_.grown(len(names))
        if self._fit is not None:
            self._fit.parameters += len(names) - self.n_features_in_
        self.n_features_in_ = len(names)
        self._name(names)

    # ---- Reading ---------------------------------------------------------------------------------

    def predict(self, X: Any) -> Array:
        """m(x) of every row: [n], or [n, outputs] where y had two axes. Changes nothing."""
        return self._shaped(self._read(X)[1])

    def predict_one(self, x: Mapping[Any, float]) -> float:
        """m(x) of one row {feature: number}; a feature that is absent or unknown is 0. 0 before the
        first row was learned."""
        memory = getattr(self, "memory_", None)
        if isinstance(memory, RotatedMemory) and isinstance(x, dict):
            answer = memory.own.predict_row(x, self._places)
            if answer is not None:
                return answer
        check_row("predict_one", "x", x, "feature", numbers=False)
        plain = {name: x[name] for name in x if self.time is None or name != self.time}
        for name, number in plain.items():
            if number is not None or not self._may_be_missing:
                check_number("predict_one", f"x[{name!r}]", number)
        if memory is None:
            return 0.0
        return float(self._answered(self._row(plain)[None])[0, 0])


_UNFITTED = "[merge, unlearn] the %(name)s must have learned rows but has none: call fit first"
