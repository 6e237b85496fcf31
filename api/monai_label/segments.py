"""From the ids that Slicer gives its segments to those of a project."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from caps_med.errors import UnknownLabel
from caps_med.images import MedicalImage

#: Largest number of a segment.
LARGEST = 2**16 - 1


def renumbered(
    labels: MedicalImage, segments: Mapping[int, str], names: Mapping[int, str]
) -> MedicalImage:
    """A label map with the ids of a project, and with its names of those that occur.

    Args:
        labels: a label map with other ids.
        segments: the names of these ids.
        names: label id -> name in the project, the background first.

    Raises:
        UnknownLabel: an id that occurs has no name, or none that the project knows.
    """
    ids = {name: label for label, name in names.items()}
    occurring = [int(number) for number in np.unique(labels.array) if number > 0]
    found = {number: _id_of(number, segments, ids) for number in occurring}
    table = np.full(max(found, default=0) + 1, next(iter(names)), np.uint32)
    table[list(found)] = list(found.values())
    narrow = table.astype(np.min_scalar_type(int(table.max())))
    own = {label: names[label] for label in found.values()}
    return replace(labels, array=narrow[labels.array], names=own, codes={}, palette=None)


def _id_of(number: int, segments: Mapping[int, str], ids: Mapping[str, int]) -> int:
    name = segments.get(number) if number <= LARGEST else None
    if name is None:
        raise UnknownLabel(f"no segment {number} is named: there are {len(segments)} names")
    if name not in ids:
        known = ", ".join(list(ids)[1:])
        raise UnknownLabel(
            f"segment {number} has a name that the project does not know; it knows {known}: rename "
            "the segment"
        )
    return ids[name]
