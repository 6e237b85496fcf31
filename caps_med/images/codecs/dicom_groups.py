"""Functional groups: attributes of all frames of an enhanced DICOM object, and of each frame.

DICOM PS3.3, C.7.6.16.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydicom.dataset import Dataset

from caps_med.errors import InputTooLarge, InvalidInput

#: Frames of one file: 19,200 are 320 volumes of 60 slices.
_MOST_FRAMES = 100_000
#: To make one takes as long as to look into several.
_EMPTY = Dataset()


def check_frames(frames: int) -> None:
    """Raise `InputTooLarge` for more frames than can be looked at one by one."""
    if frames > _MOST_FRAMES:
        raise InputTooLarge(f"DICOM: more than {_MOST_FRAMES} frames in a file: split it")


def shared_groups(header: Dataset) -> Dataset:
    """The attributes shared by all frames; empty if there are none."""
    items = header.get("SharedFunctionalGroupsSequence") or [Dataset()]
    if len(items) != 1:
        raise InvalidInput("DICOM: the shared functional groups must be one item")
    found: Dataset = items[0]
    return found


def described_frames(header: Dataset, frames: int) -> Sequence[Dataset]:
    """The attributes of each frame; empty if there are none.

    Raises:
        InvalidInput: the number of described frames is wrong.
    """
    groups: Sequence[Dataset] = header.get("PerFrameFunctionalGroupsSequence") or ()
    if len(groups) not in (0, frames):
        raise InvalidInput(f"DICOM: {len(groups)} frames are described, there are {frames}")
    return groups


def group_of(frame: Dataset, shared: Dataset, name: str) -> Dataset:
    """The item of a functional group: the frame's own, otherwise the shared one, or empty."""
    for source in (frame, shared):
        if items := source.get(name):
            item: Dataset = items[0]
            return item
    return _EMPTY
