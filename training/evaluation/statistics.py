"""Scores of many cases in a few numbers, with how sure one can be of them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict
from scipy import stats

#: Of the intervals, and how often the cases are drawn anew for them.
CONFIDENCE, RESAMPLES = 0.95, 9999
#: Digits kept: more than any score is worth, fewer than machines differ in.
_DIGITS = 6

#: Below so many independent cases all differences have one sign by chance in over 5 % of data sets,
#: and an interval from them claims too much.
ENOUGH = 6

Verdict = Literal["better", "worse", "no difference shown", "too few cases"]


class Spread(BaseModel):
    """Of one number over cases.

    Attributes:
        cases: that have it; `groups` of them are independent.
        mean, median: of them.
        sd: standard deviation (n - 1); None for one case.
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


def spread_of(values: Sequence[float], groups: Sequence[str], seed: int = 0) -> Spread | None:
    """Mean, spread and confidence of `values`; None of none.

    The interval is a seeded bootstrap of the mean, bias-corrected and accelerated (BCa). What is
    drawn are whole groups: slices of one volume are no independent cases.

    Args:
        values: one a case.
        groups: of each case.
        seed: same seed, same interval.
    """
    if not values:
        return None
    array = np.asarray(values, dtype=np.float64)
    low_high = _interval(array, groups, seed)
    return Spread(
        cases=len(array),
        groups=len(set(groups)),
        mean=_short(array.mean()),
        median=_short(np.median(array)),
        sd=_short(array.std(ddof=1)) if len(array) > 1 else None,
        interval=None if low_high is None else (_short(low_high[0]), _short(low_high[1])),
    )


def verdict(difference: Spread, more_is_better: bool) -> Verdict:
    """What paired differences (ours minus theirs) say of ours: only what the interval shows."""
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
    if np.ptp(values) == 0:  # every draw is the same, for which BCa has no answer
        return float(values[0]), float(values[0])
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


def _short(value: float | np.floating) -> float:
    return round(float(value), _DIGITS)
