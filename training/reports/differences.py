"""Rows on how the first model differs from the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from training.evaluation.classification.evaluate import Difference
from training.evaluation.summary import metric_title
from training.reports.page import Measure


def difference_measures(
    models: Sequence[str], comparisons: Sequence[Difference]
) -> Iterator[Measure]:
    """One row for each comparison, in the column of the model compared with."""
    for one in comparisons:
        text = f"{one.difference.text()}: {one.verdict}"
        cells = [text if model == one.against else "" for model in models]
        name = f"{metric_title(one.metric)}: {models[0]} minus the other"
        yield Measure(name, cells, "paired; better or worse refers to the first model")
