"""Numbers in files, rounded so that they do not differ between machines."""

from __future__ import annotations

import math
from typing import overload

import numpy as np

#: Decimals kept: more than any score deserves. Of a small number, such as a distance in mm between
#: voxels of nanometres, so many digits are kept, down to the last decimal, which rounding errors of
#: larger numbers do not reach.
_DECIMALS, _DIGITS, _LAST_DECIMAL = 6, 4, 12


@overload
def rounded(value: float | np.floating) -> float: ...
@overload
def rounded(value: float | None) -> float | None: ...
def rounded(value: float | np.floating | None) -> float | None:
    """A number to the digits that are kept.

    >>> rounded(0.91234567), rounded(0.00000123456), rounded(1e-16)
    (0.912346, 1.235e-06, 0.0)
    """
    if value is None:
        return None
    number, decimals = float(value), _DECIMALS
    if 0 < abs(number) < 10 ** (_DIGITS - 1 - _DECIMALS):
        decimals = decimals_of(number, _DIGITS)
    return round(number, decimals) + 0.0  # no negative zero


def decimals_of(number: float, digits: int) -> int:
    """Decimals that hold so many digits of a number other than 0, down to the last that is kept.

    >>> decimals_of(0.00123456, 3), decimals_of(1e-15, 3)
    (5, 12)
    """
    return min(digits - 1 - math.floor(math.log10(abs(number))), _LAST_DECIMAL)
