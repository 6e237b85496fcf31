"""How the data of each task are opened.

Apart from `training.tasks.registry`, which uses it: a check of data needs no training engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from training.data import open_classified, open_dataset
from training.data.interface import TrainingData
from training.data.interpretation import Interpretation


@dataclass(frozen=True)
class Understanding:
    """What the user says of the data.

    Attributes:
        interpretation: of label maps and channels.
        label_maps: how label maps alone are to be understood, see `open_label_maps`; None if the
            data are labelled images.
    """

    interpretation: Interpretation | None = None
    label_maps: Sequence[str] | None = None


@dataclass(frozen=True)
class Opening:
    """How the data of one task are opened.

    Attributes:
        open: by path, or by the name of a registered data set.
        registered: whether it takes the registered data sets, which have label maps.
    """

    open: Callable[[str | Path, Understanding], TrainingData]
    registered: bool


def _labelled_images(data: str | Path, understood: Understanding) -> TrainingData:
    return open_dataset(data, interpretation=understood.interpretation)


def _images_or_label_maps(data: str | Path, understood: Understanding) -> TrainingData:
    if understood.label_maps is not None:
        from training.randomization.data import open_label_maps  # imports torch

        return open_label_maps(data, understood.label_maps)
    return _labelled_images(data, understood)


def _classified_images(data: str | Path, _: Understanding) -> TrainingData:
    return open_classified(data)


OPENINGS: Mapping[str, Opening] = {
    "segmentation": Opening(_images_or_label_maps, registered=True),
    "synthesis": Opening(_labelled_images, registered=True),
    "classification": Opening(_classified_images, registered=False),
}


def open_data(task: str, data: str | Path, understood: Understanding) -> TrainingData:
    """The data of a task, by path or by the name of a registered data set.

    Raises:
        InvalidInput: there are none.
    """
    return OPENINGS[task].open(data, understood)
