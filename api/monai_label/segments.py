"""From the ids that Slicer gives its segments to those of a project."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from caps_med.errors import UnknownLabel
from caps_med.images import MedicalImage


def renumbered(
    labels: MedicalImage, segments: Sequence[str], names: Mapping[int, str]
) -> MedicalImage:
    """A label map with the ids of a project.

    Slicer numbers the segments that it exports from 1 on, whatever their ids were before, and says
    their names in that order.

    Args:
        labels: a label map with the numbers of segments.
        segments: their names.
        names: label id -> name in the project, the background first.

    Raises:
        UnknownLabel: a segment with voxels has no name, or none that the project knows.
    """
    ids = {name: label for label, name in names.items()}
    occurring = [int(number) for number in np.unique(labels.array) if number > 0]
    table = np.full(max(occurring, default=0) + 1, next(iter(names)), np.uint32)
    for number in occurring:
        name = segments[number - 1] if number <= len(segments) else None
        if name is None:
            raise UnknownLabel(f"label_info names no segment {number}: it names {len(segments)}")
        if name not in ids:
            known = ", ".join(list(names.values())[1:])
            raise UnknownLabel(
                f"segment {number} has a name that the project does not know; it knows {known}: "
                "rename the segment"
            )
        table[number] = ids[name]
    narrow = table.astype(np.min_scalar_type(int(table.max())))
    return labels.with_array(narrow[labels.array])
