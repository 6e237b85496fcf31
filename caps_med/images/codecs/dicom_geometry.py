"""The positions of DICOM frames, and the affine of those that form a volume.

Patient coordinates run to Left, Posterior and Superior in mm: DICOM PS3.3, C.7.6.2.1.1.

highdicom's `get_volume_positions` is not used: it refuses stacks under a tilted gantry or, with
that check off, accepts slices that are shifted within their plane.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pydicom.dataset import Dataset

from caps_med.errors import InvalidInput
from caps_med.images.codecs.dicom_groups import described_frames, group_of, shared_groups
from caps_med.images.image import LPS_TO_RAS, Array

#: Slices may lie this share of their distance away from where even spacing puts them.
SPACING_TOLERANCE = 0.05
#: Orientations of slices of one volume may differ by this much per entry.
ORIENTATION_TOLERANCE = 1e-3
#: Nuclear medicine whose frames are slices, not projections.
_RECONSTRUCTED = ("RECON TOMO", "RECON GATED TOMO")
#: Of a slice of which neither its thickness nor the distance to another is known, in mm.
ASSUMED_THICKNESS = 1.0


@dataclass(frozen=True)
class SlicePlane:
    """One frame in patient coordinates (LPS, mm).

    Attributes:
        position: `[3]`, the centre of the first pixel.
        across: `[3]`, the unit vector along a row, from one column to the next.
        down: `[3]`, the unit vector along a column, from one row to the next.
        spacing: millimetres between rows, and between columns.
        thickness: millimetres to the next slice if there is only one.
        assumed: whether the plane is assumed because the file does not give it.
    """

    position: Array
    across: Array
    down: Array
    spacing: tuple[float, float]
    thickness: float
    assumed: bool = False


def planes_of(affine: Array, count: int) -> tuple[SlicePlane, ...]:
    """The inverse of `affine_of`: the planes of `count` slices.

    Their thickness is the distance between neighbouring planes.
    """
    across, down, step, corner = (LPS_TO_RAS @ affine)[:3].T
    spacing = float(np.linalg.norm(down)), float(np.linalg.norm(across))
    across, down = across / spacing[1], down / spacing[0]
    thickness = abs(float(step @ np.cross(across, down)))
    return tuple(
        SlicePlane(corner + k * step, across, down, spacing, thickness) for k in range(count)
    )


def read_planes(header: Dataset, frames: int) -> tuple[SlicePlane, ...]:
    """The planes of the frames that have a position; empty if none has."""
    groups, shared = described_frames(header, frames), shared_groups(header)
    if not groups and frames == 1 and shared:  # its one frame may be described there alone
        groups = (Dataset(),)
    if not groups:
        one = _plane(header, header, header)
        return (one,) if one is not None and frames == 1 else _tomography(header, frames)
    found = [
        _plane(
            group_of(frame, shared, "PlanePositionSequence"),
            group_of(frame, shared, "PlaneOrientationSequence"),
            group_of(frame, shared, "PixelMeasuresSequence"),
        )
        for frame in groups
    ]
    return tuple(plane for plane in found if plane is not None)


def check_all_placed(planes: Sequence[SlicePlane], frames: int) -> None:
    """Reject a file that gives positions for only some of its frames.

    Raises:
        InvalidInput: some frames have a position, and some have none.
    """
    if 0 < len(planes) < frames:
        raise InvalidInput(
            f"DICOM: {frames - len(planes)} of {frames} frames without position, orientation or "
            "pixel spacing: add what is missing, or leave such frames out"
        )


def affine_of(planes: Sequence[SlicePlane]) -> tuple[list[int], Array]:
    """Sort the slices: their order, and the affine `[4, 4]` (RAS+) of (column, row, slice).

    A tilted gantry shears the affine just as it sheared the stack.

    Raises:
        InvalidInput: slices are missing or duplicated, or differ in orientation or spacing.
    """
    first = planes[0]
    normal = common_normal(planes)
    order = sorted(range(len(planes)), key=lambda i: float(planes[i].position @ normal))
    corners = np.stack([planes[i].position for i in order])
    step = normal * first.thickness
    if len(planes) > 1:
        step = (corners[-1] - corners[0]) / (len(planes) - 1)
        even = corners[0] + np.arange(len(planes))[:, None] * step
        apart = np.linalg.norm(corners - even, axis=1).max()
        if float(step @ normal) <= 0 or apart > SPACING_TOLERANCE * np.linalg.norm(step):
            raise InvalidInput(
                f"DICOM: the slices are not evenly spaced: {_uneven(corners @ normal)}"
            )
    return order, volume_affine(first, step, corners[0])


def shift_of(affine: Array, count: int) -> float:
    """Lateral offset in mm of the last of `count` slices from the normal through the first."""
    across, down, step = affine[:3, :3].T
    normal = np.cross(across, down)
    normal /= np.linalg.norm(normal)
    return float(np.linalg.norm(step - (step @ normal) * normal)) * (count - 1)


def _uneven(heights: Array) -> str:
    """Where slices are missing, duplicated or unevenly spaced, and how to fix it.

    Args:
        heights: `[slices]` in mm, in order; their differences are not all the same.
    """
    gaps = np.diff(heights)
    wider = np.sort(gaps[gaps > 0])
    usual = float(wider[(len(wider) - 1) // 2]) if len(wider) else 0.0
    narrow = int(gaps.argmin())
    if gaps[narrow] <= SPACING_TOLERANCE * usual:
        return f"{_pair(narrow, heights)} lie in one place: leave one of them out"
    steps = gaps / usual
    odd = int(np.abs(steps - 1).argmax())
    if np.ptp(steps) <= SPACING_TOLERANCE:
        return "their corners are not on one line: leave out those of another stack"
    apart = f"{_pair(odd, heights)} are {gaps[odd]:.3g} mm apart, most {usual:.3g} mm"
    if np.abs(steps - np.rint(steps)).max() <= SPACING_TOLERANCE:
        return f"{apart}: add those that are missing"
    return f"{apart}: convert the series to NIfTI with dcm2niix, which spaces slices evenly"


def _pair(first: int, heights: Array) -> str:
    return f"in their order, slices {first + 1} and {first + 2} of {len(heights)}"


def orientations_of(planes: Sequence[SlicePlane]) -> Array:
    """`[planes, 8]`: both axes of each plane, and its spacing."""
    return np.array([(*plane.across, *plane.down, *plane.spacing) for plane in planes])


def oriented_alike(planes: Array, first: Array) -> Array:
    """Which of the planes agree with one in orientation and pixel spacing.

    Args:
        planes: `[planes, 8]`, of `orientations_of`.
        first: `[8]`, one of them.
    """
    turned = np.abs(planes[:, :6] - first[:6]).max(axis=1)
    same: Array = turned <= ORIENTATION_TOLERANCE
    return same & np.isclose(planes[:, 6:], first[6:]).all(axis=1)


def common_normal(planes: Sequence[SlicePlane]) -> Array:
    """The unit vector `[3]` across slices of one orientation and pixel spacing.

    Raises:
        InvalidInput: they differ.
    """
    first, oriented = planes[0], orientations_of(planes)
    if not oriented_alike(oriented, oriented[0]).all():
        raise InvalidInput("DICOM: the slices differ in orientation or pixel spacing")
    return np.cross(first.across, first.down)


def volume_affine(plane: SlicePlane, step: Array, corner: Array) -> Array:
    """The affine `[4, 4]` (RAS+) of (column, row, slice).

    Args:
        plane: one of the slices.
        step: `[3]`, from one slice to the next.
        corner: `[3]`, the position of the first.
    """
    affine = np.eye(4)
    affine[:3, 0] = plane.across * plane.spacing[1]
    affine[:3, 1] = plane.down * plane.spacing[0]
    affine[:3, 2] = step
    affine[:3, 3] = corner
    return LPS_TO_RAS @ affine


def _tomography(header: Dataset, frames: int) -> tuple[SlicePlane, ...]:
    """Slices of nuclear medicine (PS3.3, C.8.4.11 and C.8.4.15); empty for other files.

    They follow the position of the first along its normal, or against it if their distance is
    negative.
    """
    detectors, kind = header.get("DetectorInformationSequence"), header.get("ImageType") or ()
    if not detectors or not set(_RECONSTRUCTED) & {*kind}:
        return ()
    first = _plane(detectors[0], detectors[0], header)
    numbers = np.atleast_1d(header.get("SliceVector") or np.arange(1, frames + 1))
    stated = _numbers([header.get("SpacingBetweenSlices") or 0], 1)
    if first is None or stated is None or len(numbers) != frames:
        return ()
    distance = float(stated[0]) or (0.0 if first.assumed else first.thickness)
    if not distance:
        return ()
    step = np.cross(first.across, first.down) * distance
    known = replace(first, thickness=abs(distance), assumed=False)
    return tuple(
        replace(known, position=first.position + (int(number) - 1) * step) for number in numbers
    )


def _plane(position: Dataset, orientation: Dataset, measures: Dataset) -> SlicePlane | None:
    corner, axes = (
        _numbers(source.get(name), number)
        for source, name, number in (
            (position, "ImagePositionPatient", 3),
            (orientation, "ImageOrientationPatient", 6),
        )
    )
    spacing = _numbers(measures.get("PixelSpacing"), 2)
    if corner is None or axes is None or spacing is None:
        return None
    across, down = axes[:3], axes[3:]
    lengths = [across @ across, down @ down, 1 + across @ down]
    if np.abs(np.array(lengths) - 1).max() > ORIENTATION_TOLERANCE:
        raise InvalidInput("DICOM: Image Orientation must be two unit vectors at right angles")
    if spacing.min() <= 0:
        raise InvalidInput("DICOM: Pixel Spacing must be positive")
    thickness = next(
        (
            float(value)
            for name in ("SpacingBetweenSlices", "SliceThickness")
            if (value := measures.get(name)) not in (None, "") and float(value) > 0
        ),
        None,
    )
    return SlicePlane(
        corner,
        across,
        down,
        (float(spacing[0]), float(spacing[1])),
        thickness or ASSUMED_THICKNESS,
        thickness is None,
    )


def _numbers(value: Any, number: int) -> Array | None:  # noqa: ANN401 - whatever the file holds
    if value in (None, "") or len(value) != number:
        return None
    found = np.array([float(part) for part in value])
    if not np.isfinite(found).all():
        raise InvalidInput("DICOM: the geometry holds NaN or infinity: repair the header")
    return found
