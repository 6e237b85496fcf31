"""Mean, spread and confidence of scores over cases, and of measures of many images.

Cases of one group (slices of a volume, images of a patient) are not independent: all that is here
resamples and counts groups.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from training.data.groups import group_numbers
from training.rounding import decimals_of, rounded

#: Confidence level of the intervals; bootstrap resamples of a mean, and of other measures.
CONFIDENCE, RESAMPLES, MEASURED_RESAMPLES = 0.95, 9999, 500
#: Decimals shown.
DECIMALS = 3
#: Means of groups that differ by less, as a share of the largest, are equal; to so many decimals of
#: it, means of resamples are.
_EQUAL, _EQUAL_DECIMALS = 1e-12, 12

#: With fewer independent cases all differences have one sign by chance in over 5 % of data sets:
#: an interval would claim too much.
ENOUGH = 6
#: The same for shares of right answers, which tell less of each case than a score does.
ENOUGH_ANSWERS = 20

Floats = NDArray[np.float64]
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

    @property
    def decimals(self) -> int:
        """Decimals that are shown: `DECIMALS`, more where these would leave one digit at most.

        Such are distances in mm between voxels of micrometres or nanometres.
        """
        largest = max(abs(value) for value in (self.mean, self.sd or 0, *(self.interval or ())))
        if not 0 < largest < 10 ** (1 - DECIMALS):
            return DECIMALS
        return decimals_of(largest, DECIMALS)

    def text(self, digits: int | None = None, *, sd: bool = False, interval: bool = False) -> str:
        """Such as ``0.912 ± 0.031 [0.898, 0.925]``, without what is None or not wanted.

        Args:
            digits: after the point; by default `decimals`.
        """
        digits = self.decimals if digits is None else digits
        shown = f"{self.mean:.{digits}f}"
        if sd and self.sd is not None:
            shown += f" ± {self.sd:.{digits}f}"
        return shown + _interval_text(self.interval if interval else None, digits)


class Estimate(BaseModel):
    """A measure and its 95 % confidence interval; None where it is not defined."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    value: float | None
    interval: tuple[float, float] | None = None

    def text(self, digits: int = DECIMALS) -> str:
        """``0.912 [0.898, 0.925]``."""
        if self.value is None:
            return "–"
        return f"{self.value:.{digits}f}{_interval_text(self.interval, digits)}"


def _interval_text(interval: tuple[float, float] | None, digits: int) -> str:
    return "" if interval is None else f" [{interval[0]:.{digits}f}, {interval[1]:.{digits}f}]"


def spread_of(values: Sequence[float], groups: Sequence[str], seed: int = 0) -> Spread | None:
    """Summarize `values`; None if there are none.

    The interval is a seeded bootstrap of the mean, bias-corrected and accelerated (BCa; Efron
    1987). Whole groups are resampled: slices of one volume are not independent.

    Args:
        values: one per case.
        groups: the group of each case; "" for a case on its own.
        seed: same seed, same interval, whatever the order of the cases.
    """
    if not values:
        return None
    array = np.asarray(values, dtype=np.float64)
    low_high = _interval(array, groups, seed)
    return Spread(
        cases=len(array),
        groups=independent(groups),
        mean=rounded(array.mean()),
        median=rounded(np.median(array)),
        sd=rounded(array.std(ddof=1)) if len(array) > 1 else None,
        interval=None if low_high is None else (rounded(low_high[0]), rounded(low_high[1])),
    )


def verdict(difference: Spread, more_is_better: bool) -> Verdict:
    """What the interval of paired differences (ours minus theirs) shows of ours."""
    return verdict_of(difference.interval, difference.groups, more_is_better)


def verdict_of(
    interval: tuple[float, float] | None, groups: int, more_is_better: bool, enough: int = ENOUGH
) -> Verdict:
    """What the interval of a difference (ours minus theirs) shows of ours.

    Args:
        groups: how many there are, of which a verdict needs `enough`.
    """
    if interval is None or groups < enough:
        return "too few cases"
    if not excludes_zero(interval):
        return "no difference shown"
    return "better" if (interval[0] > 0) == more_is_better else "worse"


def excludes_zero(interval: tuple[float, float]) -> bool:
    """Whether the whole interval lies on one side of zero."""
    return interval[0] > 0 or interval[1] < 0


def independent(groups: Sequence[str]) -> int:
    """How many groups there are; "" is a case on its own."""
    return int(group_numbers(groups).max(initial=-1)) + 1


def resamples(groups: Sequence[str], seed: int, count: int | None = None) -> Floats:
    """``[1 + count, N]``: all cases once, then how often each is drawn; whole groups are drawn.

    Of a single group there is nothing to draw: ``[1, N]``, from which no interval follows.

    Args:
        groups: of the cases; "" for a case on its own.
        count: `MEASURED_RESAMPLES` if it is None.
    """
    count = MEASURED_RESAMPLES if count is None else count
    member = group_numbers(groups)
    total = int(member.max()) + 1
    if total < 2:
        count = 0
    generator = np.random.default_rng(seed)
    drawn = generator.multinomial(total, np.full(total, 1 / total), count)
    return np.concatenate([np.ones((1, len(member))), drawn[:, member]]).astype(float)


def estimate(values: Floats, bounds: tuple[float, float] = (0, 1)) -> Estimate:
    """The first value, and the interval of the others without their bias (Efron and Tibshirani
    1993, chapters 10 and 13).

    Measures such as average precision and calibration error are larger in resamples, in which cases
    occur several times, than over all cases: percentiles (Efron 1979) can lie above the value, as
    can those of BCa, which `spread_of` takes for means. So percentiles are moved by the difference
    between the value and the mean of the resamples.

    Args:
        values: of a measure for each row of `resamples`.
        bounds: the least and the largest value that the measure can have.
    """
    if not np.isfinite(values[0]):
        return Estimate(value=None)
    others = values[1:][np.isfinite(values[1:])]
    value = rounded(float(values[0]))
    if len(others) < 2:
        return Estimate(value=value)
    tail = (1 - CONFIDENCE) / 2
    ends = np.quantile(others, [tail, 1 - tail]) + (values[0] - others.mean())
    low, high = np.clip(ends, *bounds)
    return Estimate(value=value, interval=(rounded(float(low)), rounded(float(high))))


def _interval(values: Floats, groups: Sequence[str], seed: int) -> tuple[float, float] | None:
    member = group_numbers(groups)
    sums, counts = np.bincount(member, values), np.bincount(member).astype(np.float64)
    if len(sums) < 2:
        return None
    means = sums / counts
    if np.ptp(means) <= _EQUAL * np.abs(means).max():  # so are all resamples: BCa is undefined
        return float(means[0]), float(means[0])
    from scipy import stats  # takes a second to import, and a service needs it late if at all

    scale = 2.0 ** np.frexp(np.abs(means).max())[1]
    order = np.lexsort((counts, np.round(means / scale, _EQUAL_DECIMALS)))  # not that of the cases
    # BCa counts the resamples on either side of the mean: equal ones, of which scores with few
    # values have many, must not fall on one side for the sake of a rounding error
    sums, counts = sums[order] / scale, counts[order]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)
        found = stats.bootstrap(
            (sums, counts),
            lambda s, n, axis: np.round(s.sum(axis) / n.sum(axis), _EQUAL_DECIMALS),
            paired=True,
            vectorized=True,
            confidence_level=CONFIDENCE,
            n_resamples=RESAMPLES,
            batch=1000,
            rng=np.random.default_rng(seed),
        ).confidence_interval
    ends = float(found.low * scale), float(found.high * scale)
    return ends if np.isfinite(ends).all() else None
