from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from training.evaluation.statistics import spread_of, verdict


def names(count: int) -> list[str]:
    return [f"case{i}" for i in range(count)]


def test_many_cases_agree_with_student() -> None:
    """For a normal sample of 200 both intervals are nearly the same."""
    values = np.random.default_rng(0).normal(0.8, 0.1, 200)
    found = spread_of(values.tolist(), names(200))
    assert found is not None
    assert found.interval is not None
    student = stats.t.interval(0.95, 199, values.mean(), stats.sem(values))
    assert found.interval == pytest.approx(student, abs=0.002)
    assert (found.mean, found.median) == pytest.approx((values.mean(), np.median(values)), abs=1e-6)
    assert found.sd == pytest.approx(values.std(ddof=1), abs=1e-6)


def test_the_same_seed_gives_the_same_interval() -> None:
    values = np.random.default_rng(0).uniform(size=9).tolist()
    first, again, other = (spread_of(values, names(9), seed) for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize(
    "values",
    [[0.1, 0.2, 0.1, 0.2, 0.1, 0.2, 0.3, 0.3], [0.7, 0.7, 0.7, 0.8, 0.8, 0.9], [0.0, 0.1] * 5],
)
def test_an_interval_depends_neither_on_rounding_errors_nor_on_the_order(
    values: list[float],
) -> None:
    """Many resamples have the very mean of the cases, and count half on either side of it."""
    rng = np.random.default_rng(0)
    array, groups = np.array(values), names(len(values))
    near = [array + rng.integers(-1, 2, len(array)) * np.spacing(array) for _ in range(10)]
    mixed = [rng.permutation(array) for _ in range(5)]
    found = [spread_of(each.tolist(), groups) for each in (array, *near, *mixed)]
    assert len({spread.interval for spread in found if spread is not None}) == 1


def test_slices_of_one_volume_are_not_independent() -> None:
    """Ten times the same three values say no more than the three."""
    values, groups = [0.2, 0.5, 0.9], ["a", "b", "c"]
    once, tenfold = spread_of(values, groups), spread_of(values * 10, groups * 10)
    assert once is not None
    assert tenfold is not None
    assert once.interval == tenfold.interval
    assert tenfold.groups == 3
    assert tenfold.cases == 30


def test_one_case_has_no_interval_and_none_has_nothing() -> None:
    one = spread_of([0.4], ["a"])
    assert one is not None
    assert one.interval is None
    assert one.sd is None
    assert spread_of([], []) is None


def test_equal_cases() -> None:
    found = spread_of([0.4] * 8, names(8))
    assert found is not None
    assert found.interval == (0.4, 0.4)


def test_equal_groups_of_different_cases() -> None:
    """Every resample has the same mean, as numpy finds; there are no fewer groups for that."""
    values, groups = [0.8, 0.9, 0.7] * 6, [f"p{i // 3}" for i in range(18)]
    found = spread_of(values, groups)
    assert found is not None
    drawn = np.random.default_rng(0).integers(0, 6, (500, 6))
    means = np.reshape(values, (6, 3))[drawn].mean((1, 2))
    assert found.interval == pytest.approx(np.quantile(means, [0.025, 0.975]))
    assert verdict(found, more_is_better=True) == "better"


def test_distances_of_nanometres_are_not_rounded_away() -> None:
    """In mm, between voxels of 5 nm; MONAI's distances of them are of this size."""
    values = np.random.default_rng(0).uniform(2e-7, 9e-7, 12)
    found = spread_of(values.tolist(), names(12))
    assert found is not None and found.interval is not None
    assert (found.mean, found.median, found.sd) == pytest.approx(
        (values.mean(), np.median(values), values.std(ddof=1)), rel=1e-3
    )
    reference = stats.bootstrap((values,), np.mean, rng=np.random.default_rng(1))
    ends = reference.confidence_interval
    assert found.interval == pytest.approx((ends.low, ends.high), rel=0.02)
    assert verdict(found, more_is_better=False) == "worse"


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([0.81, 0.83], "0.820 ± 0.014 [0.810, 0.830]"),
        ([0.0004, 0.0006], "0.000500 ± 0.000141 [0.000400, 0.000600]"),  # mm of micrometres
        ([0.0051, 0.0049], "0.00500 ± 0.00014 [0.00490, 0.00510]"),
        ([-0.0004, -0.0006], "-0.000500 ± 0.000141 [-0.000600, -0.000400]"),
        ([-0.04, 0.0401], "0.000 ± 0.057 [-0.040, 0.040]"),
        ([0.0, 0.0], "0.000 ± 0.000 [0.000, 0.000]"),
        ([0.000002], "0.00000200"),  # of nanometres
        ([1e-17, -1e-17], "0.000 ± 0.000 [0.000, 0.000]"),  # rounding errors
    ],
)
def test_small_distances_keep_their_digits(values: list[float], shown: str) -> None:
    found = spread_of(values, names(len(values)))
    assert found is not None
    assert found.text(sd=True, interval=True) == shown


@pytest.mark.parametrize(
    ("differences", "more_is_better", "said"),
    [
        ([0.1, 0.2, 0.1, 0.2, 0.1, 0.2], True, "better"),
        ([0.1, 0.2, 0.1, 0.2, 0.1, 0.2], False, "worse"),
        ([-0.1, -0.2, -0.1, -0.2, -0.1, -0.2], True, "worse"),
        ([-0.1, 0.2, -0.1, 0.1, -0.2, 0.1], True, "no difference shown"),
        ([0.0] * 6, True, "no difference shown"),
        ([0.1, 0.2, 0.1, 0.2, 0.1], True, "too few cases"),
    ],
)
def test_verdicts(differences: list[float], more_is_better: bool, said: str) -> None:
    found = spread_of(differences, names(len(differences)))
    assert found is not None
    assert verdict(found, more_is_better) == said
