"""Whether the ids in label maps are those of objects."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from caps_med.images import MedicalImage
from training.data.cases import Case
from training.data.check.instances import InstanceSurvey
from training.data.reading import read_label_ids


def ids_are_objects(cases: Iterable[Case]) -> bool:
    """Whether each id in the label maps of cases is one object, as far as they tell; reads all.

    Raises:
        BrokenCase: a label map cannot be read.
    """
    survey = InstanceSurvey()
    for case in cases:
        label = read_label_ids(case)
        survey.add(str(case.label), label, voxels_of(label))
    return survey.all_separate()


def voxels_of(label: MedicalImage) -> dict[int, int]:
    """Id -> number of voxels."""
    ids, counts = np.unique(label.array, return_counts=True)
    return dict(zip(ids.tolist(), counts.tolist(), strict=True))
