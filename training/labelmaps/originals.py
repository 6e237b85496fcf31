"""The label maps of a data set, with or without images."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from caps_med.errors import InvalidInput
from caps_med.images import MedicalImage
from caps_med.images.labels import like_a_picture, smallest_unsigned
from training.data.cases import Case
from training.data.check.check import SAVE_IDS
from training.data.dataset import Dataset
from training.progress import tracked


class Original(NamedTuple):
    """A case and its label map ``[1, *S]`` of label ids."""

    case: Case
    label: MedicalImage


class Originals(NamedTuple):
    """The label maps of a data set, sorted by name.

    Attributes:
        dataset: the data set that they belong to.
        maps: the label maps that are not empty.
    """

    dataset: Dataset
    maps: tuple[Original, ...]

    def in_file_values(self, label: MedicalImage) -> MedicalImage:
        """Convert label ids to the values used in the files of the data set (such as 0 and 255)."""
        back: dict[int, int] = {}
        for value, one in sorted(self.dataset.label_values.items()):
            back.setdefault(one, value)
        if not back:
            return label
        values = np.zeros(max(back) + 1, np.uint16)
        values[list(back)] = list(back.values())
        return label.with_array(smallest_unsigned(values[label.array]))


def read_originals(dataset: Dataset) -> Originals:
    """Read all label maps of a data set, with or without images.

    Raises:
        InvalidInput: there are no label maps, all are empty, one is a photograph, or pictures and
            volumes are mixed.
        BrokenCase: a label map cannot be read.
    """
    root = dataset.root
    if dataset.error:
        raise InvalidInput(f"{root}: holds no label maps in a supported layout. {dataset.error}")
    dataset.require_complete()
    maps = [
        Original(case, dataset.read_label(case))
        for case in tracked(dataset.cases, "reading the label maps")
    ]
    labelled = tuple(one for one in maps if one.label.array.any())
    if not labelled:
        raise InvalidInput(
            f"{root}: every label map is empty (all 0): there are no shapes to resemble"
        )
    for one in labelled:
        if what := like_a_picture(one.label, len(np.unique(one.label.array))):
            raise InvalidInput(f"{root}: {one.case.label} {what}: {SAVE_IDS}")
    if len({one.label.spatial_dims for one in labelled}) > 1:
        raise InvalidInput(f"{root}: contains pictures and volumes: keep one kind")
    return Originals(dataset, labelled)
