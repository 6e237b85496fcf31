"""Open a data set of either kind, recognized by its files."""

from __future__ import annotations

from pathlib import Path

from training.data.classified.dataset import ClassifiedDataset, find_classified, nothing_found
from training.data.classified.layouts import CERTAIN, SUPPORTED
from training.data.dataset import Dataset, open_dataset
from training.data.interpretation import Interpretation
from training.data.layouts import SUPPORTED as SUPPORTED_WITH_LABELS
from training.data.layouts.folders import no_label_maps
from training.data.unsupported import UNSUPPORTED


def open_any(
    path: Path, interpretation: Interpretation | None = None
) -> Dataset | ClassifiedDataset:
    """Open images with label maps, or images with classes.

    A folder of folders of images, or one that holds a list of classes, is taken for classes only
    where no label maps are found.

    Args:
        interpretation: of label maps.

    Raises:
        InvalidInput: the path does not exist.
    """
    if path.exists() and (found := find_classified(path, CERTAIN)) is not None:
        return found
    if interpretation is None:
        dataset = open_dataset(path)
    else:
        dataset = open_dataset(path, interpretation=interpretation)
    if not dataset.cases and (classes := find_classified(path)) is not None:
        return classes
    if dataset.layout == UNSUPPORTED:  # of neither kind
        return nothing_found(path, SUPPORTED_WITH_LABELS, SUPPORTED, hinted=no_label_maps(path))
    return dataset
