"""Least squares with an intercept over a whole table at once, by LAPACK: what streams are held against."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclasses.dataclass
class Fit:
    coefficients: Array  # [outputs, p]
    intercept: Array  # [outputs]
    errors: Array  # of the coefficients, [outputs, p]
    variance: Array  # s^2, [outputs]
    centre: Array
    at_centre: Array

    def predict(self, x: Array) -> Array:
        """[n, outputs]"""
        return np.asarray((x - self.centre) @ self.coefficients.T + self.at_centre)


def fitted(x: Array, y: Array, weights: Array, ridge: float = 0, decay: float = 1) -> Fit:
    """numpy.linalg.lstsq on centred columns, the ridge as p rows more. Weights fade with age."""
    y, p = y.reshape(len(x), -1), x.shape[1]
    ages = np.arange(len(x) - 1, -1, -1.0)
    w = weights * decay**ages
    centre, middle = w @ x / w.sum(), w @ y / w.sum()
    root = np.sqrt(w)[:, None]
    rows = np.concatenate([root * (x - centre), np.sqrt(ridge) * np.eye(p)])
    values = np.concatenate([root * (y - middle), np.zeros((p, y.shape[1]))])
    beta = np.linalg.lstsq(rows, values, rcond=None)[0]
    counted = decay ** ages[weights > 0]
    spread = np.sum(counted**2) / np.sum(counted)
    effective = np.sum(counted) / spread
    left = values - rows @ beta
    degrees = effective - p - 1
    variance = np.sum(left**2, axis=0) / (
        np.sum(counted) * degrees / effective if degrees > 0 else np.nan
    )
    inverse = np.linalg.pinv(rows)
    errors = np.sqrt(np.outer(variance * spread, np.sum(inverse**2, axis=1)))
    return Fit(beta.T, middle - beta.T @ centre, errors, variance, centre, middle)
