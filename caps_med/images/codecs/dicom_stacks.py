"""Frames that occur several times at the same positions: which of them form one volume.

Echoes, time points, diffusion weightings, phase beside magnitude: the volumes are distinguished by
an element that is the same in all slices of each. A series with several orientations, such as a
localizer, holds one volume for each.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pydicom.dataset import Dataset

from caps_med.errors import InputTooLarge
from caps_med.images.codecs.dicom_geometry import SlicePlane, orientations_of, oriented_alike
from caps_med.images.codecs.dicom_groups import described_frames, group_of, shared_groups

#: Frames whose places differ by less, in mm and as a share of a pixel, are at one place.
SAME_PLACE, SHARE_OF_PIXEL = 1e-2, 0.05
#: To compare all frames with one of each takes half a minute for as many frames as are read.
_MOST_STACKS = 2000
#: What may tell volumes apart, in this order: the keyword, and its functional group.
_KEYS = (
    ("StackID", "FrameContentSequence"),
    ("FrameType", "MRImageFrameTypeSequence"),
    ("FrameType", "CTImageFrameTypeSequence"),
    ("ImageType", ""),
    ("ComplexImageComponent", "MRImageFrameTypeSequence"),
    ("EchoTime", ""),
    ("EffectiveEchoTime", "MREchoSequence"),
    ("EchoNumbers", ""),
    ("TemporalPositionIdentifier", ""),
    ("TemporalPositionIndex", "FrameContentSequence"),
    ("NominalPercentageOfCardiacPhase", "CardiacSynchronizationSequence"),
    ("TriggerTime", ""),
    ("DiffusionBValue", ""),
    ("DiffusionBValue", "MRDiffusionSequence"),
    ("DiffusionGradientOrientation", ""),
    ("InversionTime", ""),
    ("FlipAngle", ""),
    ("AcquisitionNumber", ""),
    ("FrameAcquisitionNumber", "FrameContentSequence"),
    ("AcquisitionTime", ""),
)
_GROUPS = tuple(dict.fromkeys(group for _, group in _KEYS if group))
#: Elements that `frame_labels` reads.
TAGS = (*dict.fromkeys(name for name, group in _KEYS if not group), "InstanceNumber")


@dataclass(frozen=True)
class FrameLabels:
    """Attributes of a frame other than its position.

    Attributes:
        values: by the entries of `_KEYS`, as they are written.
        number: sorts frames at the same position: Instance Number, the file if it has several
            frames, and the index within it.
        instance: identifies the frame; it is the same for two copies.
    """

    values: Mapping[int, tuple[str, ...]] = field(default_factory=dict, repr=False)
    number: tuple[int, str, int] = (0, "", 0)
    instance: tuple[str, int] = ("", 0)


def frame_labels(header: Dataset, frames: int) -> tuple[FrameLabels, ...]:
    """The labels of each frame of a file."""
    own, shared = described_frames(header, frames), shared_groups(header)
    instance = str(header.get("SOPInstanceUID", ""))
    number = _whole(_value(header, "InstanceNumber"))
    common = _values({"": header})
    alike = {} if own else common | _of_groups(Dataset(), shared)
    found = []
    for position in range(frames):
        values = common | _of_groups(own[position], shared) if own else alike
        order = number, instance if frames > 1 else "", position
        found.append(FrameLabels(values, order, (instance, position)))
    return tuple(found)


def _of_groups(frame: Dataset, shared: Dataset) -> dict[int, tuple[str, ...]]:
    """The values in the functional groups of a frame."""
    sources = {name: group_of(frame, shared, name) for name in _GROUPS}
    return _values(sources) | _dimensions(sources["FrameContentSequence"])


def _values(sources: Mapping[str, Dataset]) -> dict[int, tuple[str, ...]]:
    """The values in functional groups, given by name, by the entries of `_KEYS`."""
    return {
        key: texts
        for key, (name, group) in enumerate(_KEYS)
        if group in sources and (texts := _texts(_value(sources[group], name)))
    }


def _value(source: Dataset, name: str) -> Any:  # noqa: ANN401 - whatever the file holds
    """An element's value; None if it breaks the standard: a label does not affect any pixel."""
    try:
        return source.get(name)
    except (ValueError, TypeError, ArithmeticError):
        return None


def volumes_of(planes: Sequence[SlicePlane], labels: Sequence[FrameLabels]) -> list[list[int]]:
    """The frames of each volume, as indices; one volume if they cannot be distinguished."""
    found: list[list[int]] = []
    for stack in stacks_of(planes):
        places = _places(planes, stack)
        found += _split(stack, places, labels, range(len(_KEYS) + _MOST_DIMENSIONS))
    return found


_MOST_DIMENSIONS = 16


def _dimensions(content: Dataset) -> dict[int, tuple[str, ...]]:
    """The frame's indices along the dimensions that its file declares (PS3.3, C.7.6.17)."""
    indices = _texts(_value(content, "DimensionIndexValues"))[:_MOST_DIMENSIONS]
    return {len(_KEYS) + axis: (index,) for axis, index in enumerate(indices)}


def stacks_of(planes: Sequence[SlicePlane]) -> list[list[int]]:
    """Frames grouped by orientation and pixel spacing.

    Raises:
        InputTooLarge: there are more than `_MOST_STACKS` groups.
    """
    oriented, left = orientations_of(planes), np.arange(len(planes))
    stacks: list[list[int]] = []
    while left.size:
        if len(stacks) == _MOST_STACKS:
            raise InputTooLarge(
                f"DICOM: more than {_MOST_STACKS} orientations or pixel spacings in a series: "
                "split it"
            )
        alike = oriented_alike(oriented[left], oriented[left[0]])
        stacks.append(left[alike].tolist())
        left = left[~alike]
    return stacks


def _places(planes: Sequence[SlicePlane], stack: Sequence[int]) -> dict[int, int]:
    """Number of each frame's position along the normal; equal positions share a number."""
    first = planes[stack[0]]
    normal = np.cross(first.across, first.down)
    heights = {index: float(planes[index].position @ normal) for index in stack}
    close = min(SAME_PLACE, SHARE_OF_PIXEL * min(first.spacing))
    places, number, last = {}, -1, -np.inf
    for index in sorted(stack, key=heights.__getitem__):
        if heights[index] - last > close:
            number += 1
        last = heights[index]
        places[index] = number
    return places


def _split(
    frames: list[int], places: Mapping[int, int], labels: Sequence[FrameLabels], keys: Sequence[int]
) -> list[list[int]]:
    """Frames grouped by the first key that distinguishes volumes, or else by their numbers."""
    often = _times(frames, places)
    if often == 1:
        return [frames]
    for at, key in enumerate(keys):
        groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for index in frames:
            groups[labels[index].values.get(key, ())].append(index)
        if _are_volumes(list(groups.values()), places):
            return [
                volume
                for value in sorted(groups, key=_in_order)
                for volume in _split(groups[value], places, labels, keys[at + 1 :])
            ]
    return _by_number(frames, places, labels) if often else [frames]


def _are_volumes(groups: Sequence[Sequence[int]], places: Mapping[int, int]) -> bool:
    """Whether each of several groups has each of its positions equally often.

    A group that lacks a position between its first and its last would have slices too far apart. If
    each group has only one of several positions, its common value is a slice number or slice time.
    """
    found = [{places[index] for index in group} for group in groups]
    slices = len(set().union(*found)) > 1 and all(len(group) == 1 for group in found)
    return len(groups) > 1 and not slices and all(_times(group, places) for group in groups)


def _by_number(
    frames: list[int], places: Mapping[int, int], labels: Sequence[FrameLabels]
) -> list[list[int]]:
    """The first frame at each position, the second, ... by number; copies stay together.

    Multi-frame files with the same Instance Number are sorted by their identifiers, so that the
    volumes have the same numbers wherever the files are.
    """
    if len({labels[index].instance for index in frames}) < len(frames):
        return [frames]
    by_place: dict[int, list[int]] = defaultdict(list)
    for index in sorted(frames, key=lambda index: labels[index].number):
        by_place[places[index]].append(index)
    if any(len({labels[i].number for i in group}) < len(group) for group in by_place.values()):
        return [frames]
    return [list(volume) for volume in zip(*by_place.values(), strict=True)]


def _times(frames: Sequence[int], places: Mapping[int, int]) -> int:
    """How often each position from the first to the last occurs; 0 if not equally often."""
    counts = Counter(places[index] for index in frames)
    gaps = max(counts) - min(counts) + 1 > len(counts)
    often = set(counts.values())
    return 0 if gaps or len(often) > 1 else often.pop()


def _in_order(value: tuple[str, ...]) -> tuple[tuple[float, str], ...]:
    """A sort key: numbers by size, other texts alphabetically."""
    return tuple((_number(text), text) for text in value)


def _number(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        return np.inf
    return found if np.isfinite(found) else np.inf


def _texts(value: Any) -> tuple[str, ...]:  # noqa: ANN401 - one value, several or none
    if value in (None, ""):
        return ()
    several = not isinstance(value, str) and hasattr(value, "__iter__")
    return tuple(str(one) for one in value) if several else (str(value),)


def _whole(value: Any) -> int:  # noqa: ANN401 - whatever the file holds
    found = _number(str(value))
    return int(found) if np.isfinite(found) else 0
