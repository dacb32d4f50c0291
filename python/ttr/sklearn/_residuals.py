"""How far off predictions have been, and how far off the next one may be.

Rows fade as associations do, by a factor g a row. S = sum g^age and S2 = sum g^(2 age) over the
rows that had a weight; n_eff = S^2 / S2 is their number for g = 1, and tends to (1 + g) / (1 - g).
"""

from __future__ import annotations

import numpy as np
from scipy.special import stdtrit

from ._constants import Array


class FadingSum:
    """sum_i g^(t - i) x_i, carried from batch to batch."""

    def __init__(self, decay: float, shape: tuple[int, ...] = ()) -> None:
        self._decay = decay
        self.value = np.zeros(shape)

    def add(self, rows: Array) -> None:
        """x_i, one a row."""
        if len(rows) == 1:
            self.value = self.value * self._decay + rows[0]
            return
        self.value = self.value * self._decay ** len(rows) + self._of(rows)

    def take(self, rows: Array) -> None:
        """x_i of the latest rows, as if they had not come; not below 0."""
        left = np.maximum(self.value - self._of(rows), 0)
        self.value = left / self._decay ** len(rows)

    def join(self, later: FadingSum, rows: int) -> None:
        """The sum of so many rows that came behind these."""
        self.value = self.value * self._decay**rows + later.value

    def _of(self, rows: Array) -> Array:
        ages = np.arange(len(rows) - 1, -1, -1.0)
        return np.asarray(np.tensordot(self._decay**ages, rows, axes=1))


class Samples:
    """S, S2 and what follows from them."""

    def __init__(self, decay: float, weight: float = 0.0, squares: float = 0.0) -> None:
        self._weights = FadingSum(decay)
        self._squares = FadingSum(decay * decay)
        self._weights.value, self._squares.value = np.asarray(weight), np.asarray(squares)

    def add(self, counts: Array) -> None:
        """1 for every row that counts, else 0."""
        self._weights.add(counts)
        self._squares.add(counts)

    def take(self, counts: Array) -> None:
        """Those of the latest rows, as if they had not come."""
        self._weights.take(counts)
        self._squares.take(counts)

    def join(self, later: Samples, rows: int) -> None:
        """Those of so many rows that came behind these."""
        self._weights.join(later._weights, rows)
        self._squares.join(later._squares, rows)

    @property
    def weight(self) -> float:
        return float(self._weights.value)

    @property
    def squares(self) -> float:
        return float(self._squares.value)

    @property
    def spread(self) -> float:
        """S2 / S, 1 for g = 1: the mean square of a weight over its mean."""
        return float(self._squares.value / self._weights.value) if self.weight else 1.0

    @property
    def effective(self) -> float:
        return self.weight / self.spread if self.weight else 0.0


class FitResiduals:
    """The residual variance of a least-squares fit of p parameters.

        rss_t = g rss_{t-1} + w_t e_t f_t         e_t = v_t - m_{t-1}(k_t),  f_t = v_t - m_t(k_t)
        s^2   = rss / (S (1 - p / n_eff))

    rss is the least weighted sum of squares itself, ridge included (the recursion of that sum in
    Haykin, Adaptive Filter Theory, chapter on recursive least squares): no term is negative, nothing
    is subtracted. Under a constant ridge with forgetting it is so but for what of the ridge fades.
    Without forgetting s^2 = rss / (n - p).
    """

    def __init__(self, decay: float, outputs: int, parameters: int) -> None:
        self.parameters = parameters
        self._sum = FadingSum(decay, (outputs,))
        self.samples = Samples(decay)

    def add(self, before: Array, after: Array, weights: Array) -> None:
        """e_t and f_t of every row, [n, outputs]."""
        terms = np.maximum(before * after, 0)
        self._sum.add(weights[:, None] * terms)
        self.samples.add((weights > 0).astype(np.float64))

    @property
    def squares(self) -> Array:
        """rss, [outputs]."""
        return self._sum.value

    @classmethod
    def of(
        cls, decay: float, parameters: int, rss: Array, weight: float, squares: float
    ) -> FitResiduals:
        """Residuals of a fit whose rss is at hand, and the sums of g and of g^2."""
        residuals = cls(decay, len(rss), parameters)
        residuals._sum.value = rss
        residuals.samples = Samples(decay, weight, squares)
        return residuals

    def take(self, before: Array, after: Array, weights: Array) -> None:
        """Takes the latest rows back. e_t and f_t are residuals of the fits without any of them, and
        with all: the sum over several rows of w e f is that of row after row."""
        self._sum.take(weights[:, None] * before * after)
        self.samples.take((weights > 0).astype(np.float64))

    def join(self, later: FitResiduals, rows: int, disagreement: Array) -> None:
        """Those of so many rows that came behind these, fitted alone. rss is what the fits of both
        sum up to, and their ``disagreement``: by how much the sums are more at the fit of all."""
        self._sum.join(later._sum, rows)
        self._sum.value = np.maximum(self._sum.value + disagreement, 0)
        self.samples.join(later.samples, rows)

    @property
    def degrees(self) -> float:
        return self.samples.effective - self.parameters

    @property
    def variance(self) -> Array:
        """s^2, [outputs]; NaN where there are no degrees of freedom."""
        if self.degrees <= 0:
            return np.full_like(self._sum.value, np.nan)
        left = self.samples.weight * self.degrees / self.samples.effective
        return np.asarray(self._sum.value / left)


class PredictiveResiduals:
    """The mean square of errors of predictions, each made before its row was known.

        s^2 = sum_i g^(t - i) e_i^2 / S

    They contain what the parameters' uncertainty costs, as it was on average; so none is added. The
    first `skip` rows, of a memory that knows little, do not count. Nor does an error that is not
    finite.
    """

    def __init__(self, decay: float, outputs: int, skip: int) -> None:
        self._decay = decay
        self._left = np.full(outputs, skip)
        self._scale = np.zeros(outputs)  # s
        self._count = np.zeros(outputs, np.int64)

    def add(self, errors: Array) -> None:
        """[n, outputs]."""
        for c, column in enumerate(errors.T):
            known = column[np.isfinite(column)]
            skipped = min(int(self._left[c]), len(known))
            self._left[c] -= skipped
            if skipped < len(known):
                self._take(c, known[skipped:])

    def _take(self, c: int, errors: Array) -> None:
        """s is a length: nothing is subtracted, and no square overflows."""
        before = self._weight(int(self._count[c]))
        self._count[c] += len(errors)
        whole = self._weight(int(self._count[c]))
        fade = self._decay ** (np.arange(len(errors) - 1, -1, -1.0) / 2)
        old = np.sqrt(self._decay ** len(errors) * before / whole) * self._scale[c]
        self._scale[c] = np.hypot(old, length(fade * errors) / np.sqrt(whole))

    def _weight(self, count: int) -> float:
        """S of so many rows."""
        if self._decay == 1:
            return float(count)
        return float(np.expm1(count * np.log(self._decay)) / (self._decay - 1))

    @property
    def scale(self) -> Array:
        """s, [outputs]; NaN where no row has counted."""
        return np.where(self._count > 0, self._scale, np.nan)

    @property
    def effective(self) -> Array:
        """n_eff, [outputs]."""
        if self._decay == 1:
            return self._count.astype(np.float64)
        rate = -np.log(self._decay) / 2
        return np.asarray(np.tanh(self._count * rate) / np.tanh(rate))

    def margin(self, level: float) -> Array:
        """Half the width of the interval at a level, q s, with q of Student's t with n_eff degrees of
        freedom. NaN below one."""
        degrees = self.effective
        return np.where(degrees >= 1, quantile(level, np.maximum(degrees, 1)) * self.scale, np.nan)


def length(x: Array) -> float:
    """|x| without overflow or underflow on the way."""
    greatest = float(np.abs(x).max(initial=0))
    if greatest == 0 or not np.isfinite(greatest):
        return greatest
    scaled = x.ravel() / greatest
    return greatest * float(np.sqrt(scaled @ scaled))


def quantile(level: float, degrees: Array | float) -> Array:
    """The q with P(|T| <= q) = level, T of Student's t with so many degrees of freedom. NaN for
    none."""
    degrees = np.asarray(degrees, np.float64)
    return np.where(degrees > 0, stdtrit(np.maximum(degrees, 1e-300), (1 + level) / 2), np.nan)


def check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"[sklearn] level must be above 0 and below 1 but is {level}")
