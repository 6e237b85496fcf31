"""Mean, spread and confidence of scores over cases."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Literal, overload

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

#: Confidence level of the intervals, and number of bootstrap resamples.
CONFIDENCE, RESAMPLES = 0.95, 9999
#: Decimals kept: more than any score deserves, fewer than machines differ in.
_DIGITS = 6

#: With fewer independent cases all differences have one sign by chance in over 5 % of data sets:
#: an interval would claim too much.
ENOUGH = 6

Verdict = Literal["better", "worse", "no difference shown", "too few cases"]


class Spread(BaseModel):
    """The distribution of one score over cases.

    Attributes:
        cases: number of cases that have the score.
        groups: number of independent groups that they come from.
        mean, median: of the scores.
        sd: sample standard deviation (n - 1); None for one case.
        interval: 95 % confidence interval of the mean, see `spread_of`; None without two
            independent cases.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    cases: int
    groups: int
    mean: float
    median: float
    sd: float | None
    interval: tuple[float, float] | None

    def text(self, digits: int = 3, *, sd: bool = False, interval: bool = False) -> str:
        """Such as ``0.912 ± 0.031 [0.898, 0.925]``, without what is None or not wanted."""
        shown = f"{self.mean:.{digits}f}"
        if sd and self.sd is not None:
            shown += f" ± {self.sd:.{digits}f}"
        if interval and self.interval is not None:
            shown += f" [{self.interval[0]:.{digits}f}, {self.interval[1]:.{digits}f}]"
        return shown


def spread_of(values: Sequence[float], groups: Sequence[str], seed: int = 0) -> Spread | None:
    """Summarize `values`; None if there are none.

    The interval is a seeded bootstrap of the mean, bias-corrected and accelerated (BCa; Efron
    1987). Whole groups are resampled: slices of one volume are not independent.

    Args:
        values: one per case.
        groups: the group of each case.
        seed: same seed, same interval.
    """
    if not values:
        return None
    array = np.asarray(values, dtype=np.float64)
    low_high = _interval(array, groups, seed)
    return Spread(
        cases=len(array),
        groups=len(set(groups)),
        mean=rounded(array.mean()),
        median=rounded(np.median(array)),
        sd=rounded(array.std(ddof=1)) if len(array) > 1 else None,
        interval=None if low_high is None else (rounded(low_high[0]), rounded(low_high[1])),
    )


@overload
def rounded(value: float | np.floating) -> float: ...
@overload
def rounded(value: float | None) -> float | None: ...
def rounded(value: float | np.floating | None) -> float | None:
    """A score to the digits that are kept."""
    return None if value is None else round(float(value), _DIGITS)


def verdict(difference: Spread, more_is_better: bool) -> Verdict:
    """What the interval of paired differences (ours minus theirs) shows of ours."""
    if difference.interval is None or difference.groups < ENOUGH:
        return "too few cases"
    if not excludes_zero(difference.interval):
        return "no difference shown"
    return "better" if (difference.interval[0] > 0) == more_is_better else "worse"


def excludes_zero(interval: tuple[float, float]) -> bool:
    """Whether the whole interval lies on one side of zero."""
    return interval[0] > 0 or interval[1] < 0


def _interval(
    values: NDArray[np.float64], groups: Sequence[str], seed: int
) -> tuple[float, float] | None:
    _, member = np.unique(np.asarray(groups), return_inverse=True)
    sums, counts = np.bincount(member, values), np.bincount(member).astype(np.float64)
    if len(sums) < 2:
        return None
    if np.ptp(values) == 0:  # all resamples are equal, for which BCa is undefined
        return float(values[0]), float(values[0])
    from scipy import stats  # takes a second to import, and a service needs it late if at all

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)
        found = stats.bootstrap(
            (sums, counts),
            lambda s, n, axis: s.sum(axis) / n.sum(axis),
            paired=True,
            vectorized=True,
            confidence_level=CONFIDENCE,
            n_resamples=RESAMPLES,
            batch=1000,
            rng=np.random.default_rng(seed),
        ).confidence_interval
    ends = float(found.low), float(found.high)
    return ends if np.isfinite(ends).all() else None
