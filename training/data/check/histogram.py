"""Percentiles of any amount of data in one pass and 8 MiB, the same in whatever order it comes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# A float32's sign, exponent and the first 11 of 23 bits of its fraction: whole numbers up to 4096
# (any image of 8 or 12 bits) keep bins of their own, others share one with neighbours that differ
# by less than 0.05 %.
_DROPPED_BITS = 12
_BINS = 2 ** (32 - _DROPPED_BITS)
_SIGN = np.uint32(2**31)
_AT_ONCE = 2**22


class Histogram:
    """Counts of float32 values in bins that are finer the smaller the value."""

    def __init__(self) -> None:
        self._counts = np.zeros(_BINS, np.int64)
        self.minimum, self.maximum = np.inf, -np.inf

    @property
    def count(self) -> int:
        """How many values were added."""
        return int(self._counts.sum())

    def add(self, values: NDArray[np.generic]) -> None:
        """Count finite values of any shape."""
        flat = values.ravel()
        for start in range(0, flat.size, _AT_ONCE):
            self._add(flat[start : start + _AT_ONCE].astype(np.float32))

    def _add(self, values: NDArray[np.float32]) -> None:
        exact = values + np.float32(0)  # no negative zero
        self.minimum = min(self.minimum, float(exact.min()))
        self.maximum = max(self.maximum, float(exact.max()))
        bits = exact.view(np.uint32)
        rising = np.where(bits & _SIGN, ~bits, bits | _SIGN) >> np.uint32(_DROPPED_BITS)
        self._counts += np.bincount(rising, minlength=_BINS)

    def percentile(self, percent: float) -> float:
        """The smallest value with at least that share of all values at or below it.

        Exact for 0, 100 and whole numbers up to 4096 in size; else within 0.05 %.
        """
        if percent <= 0:
            return self.minimum
        if percent >= 100:
            return self.maximum
        at = int(np.searchsorted(np.cumsum(self._counts), percent / 100 * self.count))
        return float(np.clip(_values(np.array([at]))[0], self.minimum, self.maximum))

    def mean_and_std(self) -> tuple[float, float]:
        """Of the values as binned."""
        used = np.flatnonzero(self._counts)
        values, weights = _values(used), self._counts[used] / self.count
        mean = float((values * weights).sum())
        return mean, float(np.sqrt(((values - mean) ** 2 * weights).sum()))


def _values(bins: NDArray[np.int64]) -> NDArray[np.float64]:
    """The value of each bin that is nearest to zero."""
    rising = (bins.astype(np.uint32) << np.uint32(_DROPPED_BITS)).astype(np.uint32)
    positive = (rising & _SIGN) != 0
    last = np.uint32(2**_DROPPED_BITS - 1)
    bits = np.where(positive, rising ^ _SIGN, ~(rising | last))
    values: NDArray[np.float32] = bits.astype(np.uint32).view(np.float32)
    return values.astype(np.float64)
