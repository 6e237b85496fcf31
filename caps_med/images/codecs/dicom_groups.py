"""Functional groups: what an enhanced DICOM object says of all frames, and of each.

DICOM PS3.3, C.7.6.16.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydicom.dataset import Dataset

from caps_med.errors import InvalidInput


def shared_groups(header: Dataset) -> Dataset:
    """What is said of all frames; empty where nothing is."""
    items = header.get("SharedFunctionalGroupsSequence") or [Dataset()]
    if len(items) != 1:
        raise InvalidInput("DICOM: the shared functional groups must be one item")
    found: Dataset = items[0]
    return found


def described_frames(header: Dataset, frames: int) -> Sequence[Dataset]:
    """What is said of each frame; empty where nothing is.

    Raises:
        InvalidInput: another number of frames is described.
    """
    groups: Sequence[Dataset] = header.get("PerFrameFunctionalGroupsSequence") or ()
    if len(groups) not in (0, frames):
        raise InvalidInput(f"DICOM: {len(groups)} frames are described, there are {frames}")
    return groups


def group_of(frame: Dataset, shared: Dataset, name: str) -> Dataset:
    """The one item of a functional group, the frame's own before the shared one; else empty."""
    for source in (frame, shared):
        if items := source.get(name):
            item: Dataset = items[0]
            return item
    return Dataset()
