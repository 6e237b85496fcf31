"""Open a data set of either kind, recognized by its files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

from training.data.classified.dataset import ClassifiedDataset, find_classified, nothing_found
from training.data.classified.layouts import CERTAIN, SUPPORTED
from training.data.dataset import Dataset, open_dataset
from training.data.interpretation import Interpretation
from training.data.layouts import SUPPORTED as SUPPORTED_WITH_LABELS
from training.data.layouts.folders import no_label_maps
from training.data.unsupported import UNSUPPORTED

Track: TypeAlias = Callable[[Iterable[Any]], Iterable[Any]]


def open_any(
    path: Path, track: Track = iter, interpretation: Interpretation | None = None
) -> Dataset | ClassifiedDataset:
    """Open images with label maps, or images with classes.

    A folder of folders of images, or one that holds a list of classes, is taken for classes only
    where no label maps are found.

    Args:
        track: wraps the iteration over cases while they are checked.
        interpretation: of label maps.

    Raises:
        InvalidInput: the path does not exist.
    """
    if path.exists() and (found := find_classified(path, CERTAIN, track)) is not None:
        return found
    if interpretation is None:
        dataset = open_dataset(path, track=track)
    else:
        dataset = open_dataset(path, track=track, interpretation=interpretation)
    if not dataset.cases and (classes := find_classified(path, track=track)) is not None:
        return classes
    if dataset.layout == UNSUPPORTED:  # of neither kind
        return nothing_found(path, SUPPORTED_WITH_LABELS, SUPPORTED, hinted=no_label_maps(path))
    return dataset
