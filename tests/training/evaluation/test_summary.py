from __future__ import annotations

import pytest

from training.evaluation.metrics.overlap import ClassScores
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
