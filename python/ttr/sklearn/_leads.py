"""How far off forecasts are that go on beyond the horizon, where forecasts stand in for rows.

While rows are read, a path begins at every m-th row: the forecasts of the rows from the
(horizon + 1)-th to the `ahead`-th after it. Each is held against its row when that has come, and the
errors so many rows ahead make the intervals there. m = ceil((ahead - horizon) / 64) keeps the cost below
64 answers a row; weights are then those of g^m, and errors at a lead k share what those of a horizon
ceil(k / m) do. The command `ttr forecast --ahead` has the same.
"""

from __future__ import annotations

import collections
import dataclasses

import numpy as np

from ._constants import Array
from ._residuals import PredictiveResiduals

#: Answers a row.
_MOST = 64


@dataclasses.dataclass
class _Path:
    forecasts: Array  # [ahead - horizon, columns]
    age: int = 0  # rows read since it began


class LeadErrors:
    def __init__(self, columns: int, horizon: int, ahead: int, decay: float, skip: int) -> None:
        self._horizon, self.ahead = horizon, ahead
        self._stride = -(-(ahead - horizon) // _MOST)
        skip = -(-skip // self._stride)
        self._residuals = [
            PredictiveResiduals(decay**self._stride, columns, skip) for _ in range(ahead - horizon)
        ]
        self._paths: collections.deque[_Path] = collections.deque()  # the oldest first
        self._rows = 0

    def add(self, row: Array) -> None:
        """A row was read, NaN where missing."""
        self._rows += 1
        for path in self._paths:
            path.age += 1
            beyond = path.age - self._horizon - 1
            if beyond >= 0:
                self._residuals[beyond].add((row - path.forecasts[beyond])[None])
        if self._paths and self._paths[0].age == self.ahead:
            self._paths.popleft()

    @property
    def begins(self) -> bool:
        """Does a path begin at the row that was read last?"""
        return self._rows % self._stride == 0

    def begin(self, forecasts: Array) -> None:
        """Takes forecasts of the rows from the (horizon + 1)-th to the `ahead`-th to come."""
        self._paths.append(_Path(forecasts))

    def margins(self, level: float) -> Array:
        """Half the widths of the intervals, [ahead - horizon, columns]; NaN where there is none."""
        leads = range(self._horizon + 1, self.ahead + 1)
        return np.array(
            [r.margin(level, -(-k // self._stride)) for k, r in zip(leads, self._residuals)]
        )
