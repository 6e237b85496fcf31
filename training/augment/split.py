"""What of the data is learned from, and what is set aside for the last comparison."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from caps_med.errors import InvalidParameter
from training.augment.config import AugmentOrder
from training.data import Dataset, open_dataset
from training.data.samples import HELD_OUT
from training.labelmaps.originals import Originals, read_originals

#: A comparison on fewer groups says nothing at all, and so many must be left to learn from.
_LEAST_APART, _LEAST_LEFT = 2, 3


@dataclass(frozen=True)
class Parts:
    """The data of a run.

    Attributes:
        dataset: the labelled images that everything is learned from.
        originals: their label maps.
        test: the labelled images of the comparison; None without one.
    """

    dataset: Dataset
    originals: Originals
    test: Dataset | None


def set_aside(dataset: Dataset) -> frozenset[str]:
    """Every fifth group, and at least two, evenly spread."""
    groups = dataset.groups
    count = max(_LEAST_APART, len(groups) // HELD_OUT)
    return frozenset(groups[(2 * k + 1) * len(groups) // (2 * count)] for k in range(count))


def split(order: AugmentOrder, whole: Dataset, learned: Dataset) -> Parts:
    """The data to learn from and those to test on.

    Args:
        order: whether and on what segmenters are compared.
        whole: all of the data.
        learned: without what is set aside.

    Raises:
        InvalidParameter: too few groups to set some aside.
        InvalidInput: the data cannot be read.
    """
    if not order.test_apart:
        test = open_dataset(Path(order.test)) if order.train_segmenter and order.test else None
        return Parts(learned, read_originals(learned), test and test.require_complete())
    if len(learned.groups) < _LEAST_LEFT:
        apart = len(whole.groups) - len(learned.groups)
        raise InvalidParameter(
            f"--train-segmenter: {len(whole.groups)} independent cases are too few to set "
            f"{apart} aside; give labelled images of their own for the comparison: --test DIR"
        )
    test = whole.subset(set(whole.groups) - set(learned.groups))
    return Parts(learned, read_originals(learned), test)
