from __future__ import annotations

import pytest

from training.evaluation.metrics.overlap import METRICS, ClassScores
from training.evaluation.summary import SegmentationRow, class_comparisons

LABELS = {1: "liver", 2: "tumour"}


def row(model: str, case: str, label: int, hd95: float | None) -> SegmentationRow:
    """A class that is found at a distance, or missed."""
    found = ClassScores(label, "missed", dice=0.0, jaccard=0.0)
    if hd95 is not None:
        found = ClassScores(label, "both", 0.8, 0.7, hd95, hd95 / 2)
    return SegmentationRow(model, case, case, LABELS[label], "mm", found)


def test_a_missed_class_makes_no_model_better_at_distances() -> None:
    """A finds the livers alone; B finds the tumours, too, which are harder."""
    rows = [
        row(model, f"case {case}", label, hd95)
        for case in range(8)
        for model, tumour in (("A", None), ("B", 9.0))
        for label, hd95 in ((1, 1.0), (2, tumour))
    ]
    found = {
        (one.class_name, one.metric): one for one in class_comparisons(rows, "AB", LABELS, seed=0)
    }
    over = found["mean over classes", "hd95"]
    assert (over.difference.mean, over.difference.cases) == (0.0, 8)
    assert over.verdict == "no difference shown"
    assert ("tumour", "hd95") not in found
    lost = found["mean over classes", "dice"]
    assert lost.difference.mean == pytest.approx(-0.4)
    assert lost.verdict == "worse"


def test_a_model_that_invents_a_class_is_worse() -> None:
    """Half of the cases have no tumour: A, a little better on the others, finds some there, too."""
    nothing = ClassScores(2, "absent")
    invented = ClassScores(2, "invented", 0.0, 0.0, None, None, 0.0, 0.0, 0.0, 0, 1, 0)
    found = {
        "A": (ClassScores(2, "both", 0.82, 0.72, 1.0, 0.5, 0.92, 1.0, 0.82, 1, 1, 1), invented),
        "B": (ClassScores(2, "both", 0.8, 0.7, 1.0, 0.5, 0.9, 1.0, 0.8, 1, 1, 1), nothing),
    }
    rows = [
        SegmentationRow(model, f"case {case}", f"case {case}", "tumour", "mm", scores[case % 2])
        for case in range(16)
        for model, scores in found.items()
    ]
    rows += [
        SegmentationRow(model, "neither", "neither", "tumour", "mm", nothing) for model in found
    ]
    for first, expected in (("AB", "worse"), ("BA", "better")):
        comparisons = {
            one.metric: one for one in class_comparisons(rows, first, {2: "tumour"}, seed=0)
        }
        overlaps = [metric for metric, more_is_better in METRICS.items() if more_is_better]
        assert {comparisons[metric].verdict for metric in overlaps} == {expected}
        assert abs(comparisons["dice"].difference.mean) == pytest.approx((1 - 0.02) / 2)
        assert [comparisons[metric].difference.cases for metric in ("dice", "hd95")] == [16, 8]


def test_a_class_that_is_invented_costs_the_same_beside_other_classes() -> None:
    """In the mean over classes, too: B, which rightly finds no tumour, has 1 there."""
    rows = [
        SegmentationRow(model, f"case {case}", f"case {case}", LABELS[scores.label], "mm", scores)
        for case in range(8)
        for model, tumour in (
            ("A", ClassScores(2, "invented", 0.0, 0.0)),
            ("B", ClassScores(2, "absent")),
        )
        for scores in (ClassScores(1, "both", 0.8, 0.7, 1.0, 0.5), tumour)
    ]
    found = {
        (one.class_name, one.metric): one for one in class_comparisons(rows, "AB", LABELS, seed=0)
    }
    assert found["tumour", "dice"].difference.mean == -1
    assert found["mean over classes", "dice"].difference.mean == pytest.approx(-0.5)
