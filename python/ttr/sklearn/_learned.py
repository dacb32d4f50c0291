"""What a regressor has learned: coefficients, their errors, intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ._constants import Array
from ._linear import LinearFit, is_linear
from ._residuals import FitResiduals, PredictiveResiduals, check_level, quantile
from ._rotated import RotatedMemory
from ._tables import Tables


class Learned(Tables):
    """The part of a regressor that tells."""

    _fit: FitResiduals | None  # of least squares whose memory has none
    _errors: PredictiveResiduals | None  # of all others

    def predict_interval(self, X: Any, level: float = 0.95) -> tuple[Array, Array]:
        """Bounds between which the y of each row is expected with probability `level`, each in the
        shape of `predict`.

        Least squares: m(x) +- q s sqrt(1 + (S2 / S) x^T A^-1 x), q of Student's t with n_eff - p
        degrees of freedom. Others: m(x) +- q s, with n_eff. Errors are taken to be Gaussian, of one
        variance. NaN while there are too few rows.
        """
        check_level(level)
        X, y = self._read(X)
        residuals = self._residuals()
        if residuals is not None:
            leverage = self._linear().leverage(np.nan_to_num(X, nan=0.0))
            spread = 1 + residuals.samples.spread * leverage
            q = quantile(level, residuals.degrees)
            margin = q * np.sqrt(residuals.variance * spread[:, None])
        else:
            assert self._errors is not None
            margin = np.broadcast_to(self._errors.margin(level), y.shape)
        return self._shaped(y - margin), self._shaped(y + margin)

    @property
    def n_seen_(self) -> int:
        """Rows learned so far."""
        check_is_fitted(self, "memory_")
        return self.memory_.count

    @property
    def coef_(self) -> Any:
        return self._of_outputs(self._linear().coefficients.T)

    @property
    def intercept_(self) -> Any:
        return self._of_outputs(self._linear().intercept)

    @property
    def coef_stderr_(self) -> Any:
        return self._of_outputs(self._standard_errors()[:, : self.n_features_in_])

    @property
    def intercept_stderr_(self) -> Any:
        errors = self._standard_errors()
        affine = errors.shape[1] > self.n_features_in_
        return self._of_outputs(errors[:, -1] if affine else np.zeros(len(errors)))

    @property
    def residual_variance_(self) -> Any:
        check_is_fitted(self, "memory_")
        residuals = self._residuals()
        if residuals is not None:
            return self._of_outputs(residuals.variance)
        assert self._errors is not None
        return self._of_outputs(self._errors.scale**2)

    def _of_outputs(self, numbers: Array) -> Any:
        return numbers[0] if self._flat else numbers

    def _residuals(self) -> FitResiduals | None:
        """Those of least squares."""
        memory = self.memory_
        return memory.residuals() if isinstance(memory, RotatedMemory) else self._fit

    def _linear(self) -> LinearFit:
        check_is_fitted(self, "memory_")
        if not is_linear(self.memory_.recipe):
            raise AttributeError(
                f"a memory has coefficients where it is linear in x, and {self.memory_.recipe} is "
                f"not"
            )
        return LinearFit(self.memory_)

    def _standard_errors(self) -> Array:
        """[outputs, p], the intercept's last."""
        fit = self._linear()
        residuals = self._residuals()
        if residuals is None:
            raise AttributeError(
                f"coefficients have standard errors where least squares are solved, which "
                f"{self.memory_.recipe} does not"
            )
        variance = residuals.variance * residuals.samples.spread
        return np.asarray(np.sqrt(np.outer(variance, fit.inverse_diagonal)))
