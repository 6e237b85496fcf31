"""Whether the ids in label maps are those of objects."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from caps_med.images import MedicalImage
from training.data.cases import Case
from training.data.check.instances import InstanceSurvey
from training.data.reading import read_label_ids


def ids_are_objects(cases: Iterable[Case], ignored: int | None = None) -> bool:
    """Whether each id in the label maps of cases is one object, as far as they tell; reads all.

    Args:
        cases: of a data set.
        ignored: an id that is none, see `Cases.ignored`.

    Raises:
        BrokenCase: a label map cannot be read.
    """
    survey = InstanceSurvey()
    unknown = [case for case in cases if not case.label.objects]
    for case in unknown:
        label = read_label_ids(case, ignored)
        survey.add(str(case.label), label, voxels_of(label))
    return not unknown or survey.all_separate()


def voxels_of(label: MedicalImage) -> dict[int, int]:
    """Id -> number of voxels."""
    ids, counts = np.unique(label.array, return_counts=True)
    return dict(zip(ids.tolist(), counts.tolist(), strict=True))
