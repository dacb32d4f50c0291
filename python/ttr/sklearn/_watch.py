"""Does a forecaster keep what it promised?"""

from __future__ import annotations

import warnings

import numpy as np

from ._constants import Array

#: Rows that a verdict rests on.
FEWEST = 50
#: Standard errors of a share of independent rows: what one row in 100 000 tables is off by.
_FAR = 4.5


def warn_of_coverage(
    op: str, rows: Array, lower: Array, upper: Array, level: float, horizon: int
) -> float:
    """The share of rows [n] inside of bounds that were made before each, NaN where there is none;
    RuntimeWarning where it is further from the level than chance explains."""
    known = np.isfinite(rows) & np.isfinite(lower) & np.isfinite(upper)
    count = int(known.sum())
    share = float(np.mean(((lower <= rows) & (rows <= upper))[known])) if count else float("nan")
    # Errors h rows ahead are alike for h rows.
    chance = np.sqrt(level * (1 - level) * horizon / max(count, 1))
    if count >= FEWEST and abs(share - level) > _FAR * chance:
        warnings.warn(
            f"[{op}] intervals of level {level:.10g} hold {share:.3f} of the last {count} rows: the errors are "
            "not what they were, or no Gaussian: intervals='conformal' follows the coverage, "
            "interval_decay forgets",
            RuntimeWarning,
            stacklevel=3,
        )
    return share
