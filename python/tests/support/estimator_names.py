"""Names of scikit-learn's checks that are equal in every process."""

from __future__ import annotations

import re


def named(part: object) -> str:
    """An estimator or a check as text, without the address of a function."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(part))
