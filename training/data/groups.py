"""Groups of cases that are not independent: slices of a volume, images of a patient."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def group_numbers(groups: Sequence[str]) -> NDArray[np.int64]:
    """The number of each case's group, ``[N]``, counted from 0.

    >>> group_numbers(["b", "a", "b", "", ""]).tolist()
    [3, 2, 3, 0, 1]

    Args:
        groups: names; "" for a case on its own.
    """
    names = [group or f"\0{number}" for number, group in enumerate(groups)]
    return np.unique(names, return_inverse=True)[1].astype(np.int64)
