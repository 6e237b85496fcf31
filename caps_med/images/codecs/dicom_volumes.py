"""The frames of DICOM files as one image: a volume, a stack or a picture.

One of several volumes (echoes, time points, orientations), or of a cine's pictures, is chosen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from caps_med.errors import InputTooLarge, InvalidInput, SeveralVolumes, UnsupportedFormat
from caps_med.images.codecs.dicom_frames import Frames
from caps_med.images.codecs.dicom_geometry import (
    ASSUMED_THICKNESS,
    SlicePlane,
    affine_of,
    check_all_placed,
    shift_of,
)
from caps_med.images.codecs.dicom_padding import BECAME_BACKGROUND, without_padding
from caps_med.images.codecs.dicom_rescale import smallest_integers
from caps_med.images.codecs.dicom_stacks import stacks_of, volumes_of
from caps_med.images.dicom_origin import DicomOrigin, joined
from caps_med.images.image import STACK_AFFINE, Array, MedicalImage
from caps_med.images.limits import Limits
from caps_med.wording import choose_one

NO_COMMON_ORIGIN = (
    "DICOM: no SEG can refer to these files together: they differ in the patient's name, study or "
    "frame of reference, or one is duplicated"
)
NO_ORIGIN = (
    "DICOM: no SEG can refer to these files: a UID of study, series, instance or frame of "
    "reference is missing, or they are not CT, MR, PET or NM; label maps of them become NIfTI"
)
#: Told of a series whose slices are shifted by more than `_MOST_SHIFTED` of a pixel in all.
SHIFTED = (
    "DICOM: the slices are shifted against each other by up to {:.3g} mm, as under a tilted "
    "gantry: a DICOM SEG of them has each in its place, but programs that take it for a box of "
    "voxels (dcmqi, and so 3D Slicer; highdicom's get_volume) move or refuse it: write nifti for "
    "them"
)
_MOST_SHIFTED = 0.5
NO_THICKNESS = (
    f"DICOM: no thickness of the single slice; it is taken for {ASSUMED_THICKNESS:g} mm, and "
    "volumes are those of such a slice"
)
#: Series, and sizes of volumes, that an error lists.
MOST_LISTED = 20


def assemble(files: list[Frames], limits: Limits, index: int | None = None) -> MedicalImage:
    """One image of the frames of all files, sorted by their positions.

    Args:
        files: emptied, so that no content is kept once it is decoded.
        limits: for the decoded frames.
        index: which volume, or which picture of a cine; None if there is only one.

    Raises:
        SeveralVolumes: there are several, and none was chosen.
        InvalidInput: there is no such volume, slices are missing or duplicated, or only some frames
            of a file have a position.
    """
    if planes := _planes(files):
        return _volume(files, planes, limits, index)
    return _pictures(files, limits, index)


def count_images(files: Sequence[Frames]) -> int:
    """How many volumes or pictures `assemble` can select by index.

    Raises:
        InvalidInput: only some frames of a file have a position.
    """
    if planes := _planes(files):
        return len(volumes_of(planes, [label for file in files for label in file.labels]))
    return sum(file.shape[0] for file in files)


def _planes(files: Sequence[Frames]) -> list[SlicePlane]:
    """The planes of all frames; empty if one has no position, or is in colour: not a volume.

    Raises:
        InvalidInput: only some frames of a file have a position; they would be taken for slices of
            1 mm. This does not apply to the pictures of a cine, which are chosen one by one.
    """
    for file in files:
        if file.shape[3] == 1 and not file.timed:
            with named(file.name):
                check_all_placed(file.planes, file.shape[0])
    planes = [plane for file in files for plane in file.planes]
    grey = all(file.shape[3] == 1 for file in files)
    return planes if grey and len(planes) == sum(file.shape[0] for file in files) else []


def _volume(
    files: list[Frames], planes: Sequence[SlicePlane], limits: Limits, index: int | None
) -> MedicalImage:
    volumes = volumes_of(planes, [label for file in files for label in file.labels])
    if index is None and len(volumes) > 1:
        raise SeveralVolumes(_several_volumes(volumes, planes), len(volumes))
    chosen = volumes[_checked(index, len(volumes), "volume")]
    order, affine = affine_of([planes[i] for i in chosen])
    wanted = [chosen[i] for i in order]
    frames, notes = _decoded(files, wanted, limits)
    if len(volumes) > 1:
        notes += (f"DICOM: volume {index} of 0 to {len(volumes) - 1}",)
    if len(wanted) == 1 and planes[wanted[0]].assumed:
        notes += (NO_THICKNESS,)
    volume = np.stack([frame.T for frame in frames], axis=-1)
    origin, identified = _origin(files, wanted)
    if origin is None:
        notes += (NO_COMMON_ORIGIN if identified else NO_ORIGIN,)
    elif (shift := shift_of(affine, len(wanted))) > _MOST_SHIFTED * min(planes[wanted[0]].spacing):
        notes += (SHIFTED.format(shift),)
    return MedicalImage(
        smallest_integers(volume)[None], affine, "nifti", warnings=notes, origin=origin,
        patient=files[0].patient_id, series=files[0].series.uid,
    )  # fmt: skip


def _pictures(files: list[Frames], limits: Limits, index: int | None) -> MedicalImage:
    """Frames without a position: one picture, or a stack of pictures if not a time series."""
    count = sum(file.shape[0] for file in files)
    single = count == 1 or index is not None
    stacked = len(files) == 1 and files[0].shape[3] == 1 and not files[0].timed
    if not single and not stacked:
        raise SeveralVolumes(
            f"DICOM: {_no_volume(files, count)}{choose_one(count, 'picture')}", count
        )
    wanted = [_checked(index, count, "picture")] if single else list(range(count))
    frames, notes = _decoded(files, wanted, limits)
    patient, series = files[0].patient_id, files[0].series.uid
    if single:
        flat = frames[0][None] if frames[0].ndim == 2 else np.moveaxis(frames[0], -1, 0)
        array = np.ascontiguousarray(flat)
        return MedicalImage(array, format="png", warnings=notes, patient=patient, series=series)
    notes += ("DICOM: no positions; frames are taken for axial slices of 1 mm",)
    volume = np.stack([frame.T for frame in frames], axis=-1)
    return MedicalImage(
        smallest_integers(volume)[None], STACK_AFFINE, "nifti", warnings=notes, patient=patient,
        series=series,
    )  # fmt: skip


def _no_volume(files: Sequence[Frames], count: int) -> str:
    """Why several pictures are not a volume, as the beginning of what can be done."""
    if any(file.timed for file in files):
        return "several pictures that follow each other in time, not a volume: "
    if any(file.shape[3] > 1 for file in files):
        return "several pictures, of which some are in colour, not a volume: "
    bare = [file for file in files if not file.planes]
    if len(bare) == len(files):
        return "several pictures without a position, not a volume: "
    name = f" ({bare[0].name})" if len(bare) == 1 and bare[0].name else ""
    missing = sum(file.shape[0] for file in bare)
    return (
        f"{missing} of {count} slices{name} without position, orientation or pixel spacing, so "
        "that they are no volume: add what is missing, leave such slices out, or "
    )


def _decoded(
    files: list[Frames], wanted: Sequence[int], limits: Limits
) -> tuple[list[Array], tuple[str, ...]]:
    """The frames with these numbers in that order, and notes about them.

    Raises:
        InvalidInput: they differ in size.
        InputTooLarge: together they are over `limits`.
    """
    frames: dict[int, Array] = {}
    padding: dict[int, Array] = {}
    notes: dict[str, None] = {}
    owners = _owners(files, wanted)
    if len({files[owner].shape[1:] for owner in owners}) > 1:
        raise InvalidInput("DICOM: all slices of a series must have the same size")
    first = files[min(owners)]
    widest = max(files[owner].sample_bytes for owner in owners)
    limits.check_array((len(wanted), *first.shape[1:3]), first.shape[3] * widest)
    for owner, numbers in owners.items():
        with named(files[owner].name):
            decoded = files[owner].decode()
        files[owner] = replace(files[owner], content=b"")
        notes |= dict.fromkeys(decoded.notes)
        frames |= {frame: decoded.array[number] for frame, number in numbers.items()}
        if decoded.padding is not None:
            padding |= {frame: decoded.padding[number] for frame, number in numbers.items()}
    found = [frames[frame] for frame in wanted]
    if padding:
        found, changed = without_padding(found, [padding.get(frame) for frame in wanted])
        notes |= dict.fromkeys([BECAME_BACKGROUND] if changed else [])
    return found, tuple(notes)


def _owners(files: Sequence[Frames], wanted: Sequence[int]) -> dict[int, dict[int, int]]:
    """File -> frame of the series -> frame of that file, for the wanted frames."""
    starts = np.cumsum([0, *(file.shape[0] for file in files)])
    owners: dict[int, dict[int, int]] = {}
    for frame in wanted:
        owner = int(np.searchsorted(starts, frame, side="right")) - 1
        owners.setdefault(owner, {})[frame] = frame - int(starts[owner])
    return owners


def _origin(files: Sequence[Frames], wanted: Sequence[int]) -> tuple[DicomOrigin | None, bool]:
    """The origin of slices in that order, and whether each file has one."""
    owners = _owners(files, wanted)
    origins = [files[owner].origin for owner in owners]
    starts = np.cumsum([0, *(files[owner].shape[0] for owner in owners)])
    places = {
        frame: int(start) + number
        for start, numbers in zip(starts, owners.values(), strict=False)
        for frame, number in numbers.items()
    }
    known = all(origin is not None for origin in origins)
    return joined(origins, [places[frame] for frame in wanted]), known


def _several_volumes(volumes: Sequence[Sequence[int]], planes: Sequence[SlicePlane]) -> str:
    """How many volumes there are, with how many slices, and how to choose one."""
    sizes = [len(volume) for volume in volumes]
    slices = f"of {sizes[0]} slices each"
    if len(set(sizes)) > 1:
        slices = f"of {', '.join(map(str, sizes[:MOST_LISTED]))} slices"
    if len(stacks_of([planes[volume[0]] for volume in volumes])) > 1:
        slices += ", which differ in orientation or pixel spacing"
    return f"DICOM: {len(sizes)} volumes {slices}: {choose_one(len(sizes), 'volume')}"


def _checked(index: int | None, count: int, what: str) -> int:
    """The chosen number, which is 0 by default."""
    if index is None or 0 <= index < count:
        return index or 0
    raise InvalidInput(f"DICOM: no {what} {index}, there are {count}: 0 to {count - 1}")


@contextmanager
def named(name: str) -> Iterator[None]:
    """Prefix errors about a file with its name, if it has one."""
    try:
        yield
    except (InvalidInput, InputTooLarge, UnsupportedFormat) as error:
        if not name:
            raise
        raise type(error)(f"{name}: {error}") from error
