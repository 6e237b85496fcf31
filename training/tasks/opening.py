"""How the data of each task are opened.

Apart from `training.tasks.registry`, which uses it: a check of data needs no training engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from caps_med.registries import Registry
from training.data import REGISTERED, open_classified, open_dataset
from training.data.interface import CheckedData, TrainingData
from training.data.interpretation import Interpretation
from training.data.opening import open_any


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
        find: of an added task, its data at a path, or None where there are other data; the built-in
            tasks' data are told apart by `training.data.opening.open_any`.
    """

    open: Callable[[str | Path, Understanding], TrainingData]
    registered: bool = False
    find: Callable[[Path], CheckedData | None] | None = None


def _labelled_images(data: str | Path, understood: Understanding) -> TrainingData:
    return open_dataset(data, interpretation=understood.interpretation)


def _to_segment(data: str | Path, understood: Understanding) -> TrainingData:
    """Labelled images without what their label maps call *ignore*, or label maps alone."""
    if understood.label_maps is not None:
        from training.randomization.data import open_label_maps  # imports torch

        return open_label_maps(data, understood.label_maps)
    if data in REGISTERED:
        return _labelled_images(data, understood)
    interpretation = understood.interpretation or Interpretation()
    return open_dataset(data, interpretation=interpretation.with_ignored())


def _classified_images(data: str | Path, _: Understanding) -> TrainingData:
    return open_classified(data)


#: Other packages add theirs through the entry-point group ``caps_med.task_data``.
OPENINGS: Registry[Opening] = Registry("caps_med.task_data", {
    "segmentation": Opening(_to_segment, registered=True),
    "synthesis": Opening(_labelled_images, registered=True),
    "classification": Opening(_classified_images),
})  # fmt: skip


def open_data(task: str, data: str | Path, understood: Understanding) -> TrainingData:
    """The data of a task, by path or by the name of a registered data set.

    Raises:
        InvalidInput: there are none.
    """
    return OPENINGS[task].open(data, understood)


def open_to_check(path: Path, interpretation: Interpretation | None = None) -> CheckedData:
    """The data at a path, of whatever task they are.

    Args:
        interpretation: see `open_any`.

    Raises:
        InvalidInput: the path does not exist.
    """
    for opening in OPENINGS.values():
        if opening.find is not None and (found := opening.find(path)) is not None:
            return found
    return open_any(path, interpretation)
