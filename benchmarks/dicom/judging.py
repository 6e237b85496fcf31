"""One file or series: right, refused, without a picture or wrong."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.dicom.references import Frame, Read, read_with_pydicom, read_with_simpleitk
from caps_med.errors import CapsMedError, SeveralVolumes
from caps_med.images import MedicalImage, read_image
from caps_med.images.image import Array

#: Millimetres that a frame may lie away from where its header puts it.
PLACE_TOLERANCE = 0.05
#: Lossy frames are decoded to integers that may differ by rounding, of them so many; and what is
#: rescaled is rounded to float32.
VALUE_TOLERANCE, ROUNDING = 1.0, 1e-6
#: Of several volumes in one file or series so many are read.
MOST_VOLUMES = 3


@dataclass(frozen=True)
class Verdict:
    """What became of one file or series.

    Attributes:
        result: "right", "refused", "no picture", "wrong" or "alone": neither reference reads it.
        reason: of a refusal, or what is wrong.
        references: which of the two read it.
        volumes: how many were chosen one by one; 0 where nothing had to be chosen.
    """

    result: str
    reason: str = ""
    references: str = ""
    volumes: int = 0


def judge_file(path: Path) -> Verdict | None:
    """The verdict on a file; None if nobody takes it for DICOM."""
    expected = read_with_pydicom(path)
    if expected is None:
        return None
    if not expected.holds_picture:
        return Verdict("no picture")
    voxels = read_with_simpleitk(path)
    known = [n for n, ok in (("pydicom", expected.frames), ("SimpleITK", voxels is not None)) if ok]
    return _judged(path, expected, voxels, " and ".join(known))


def judge_series(paths: Sequence[Path]) -> Verdict | None:
    """The verdict on the files of a series; None where pydicom cannot read all of them."""
    read = [read_with_pydicom(path) for path in paths]
    if any(one is None or not one.frames for one in read):
        return None
    try:
        found = _read(list(paths))
    except CapsMedError as error:
        return Verdict("refused", str(error), "pydicom")
    if other := next((one.other for one in read if one and one.other), ""):
        return Verdict("wrong", f"a {other} is read as an image", "pydicom")
    wrong = _difference(found, [frame for one in read if one for frame in one.frames])
    return Verdict("wrong" if wrong else "right", wrong, "pydicom", found.volumes)


@dataclass(frozen=True)
class _Found:
    """Images by their numbers, and of how many volumes they were chosen; 0 if of none."""

    images: Mapping[int, MedicalImage]
    volumes: int = 0


def _judged(path: Path, expected: Read, voxels: Array | None, known: str) -> Verdict:
    try:
        found = _read(path)
    except CapsMedError as error:
        return Verdict("refused", str(error), known)
    if expected.other:
        return Verdict("wrong", f"a {expected.other} is read as an image", known)
    if not known:
        return Verdict("alone", volumes=found.volumes)
    frames = expected.frames or [Frame(one) for one in _as_frames(voxels, found.images[0])]
    wrong = _difference(found, frames)
    return Verdict("wrong" if wrong else "right", wrong, known, found.volumes)


def _read(source: Path | list[Path]) -> _Found:
    """The image, or volumes where one has to be chosen: the first, the last and some between."""
    try:
        return _Found({0: read_image(source)})
    except SeveralVolumes as several:
        count = several.count
    numbers = sorted({round(n) for n in np.linspace(0, count - 1, MOST_VOLUMES)})
    return _Found({number: read_image(source, index=number) for number in numbers}, count)


def _difference(found: _Found, frames: Sequence[Frame]) -> str:
    """What differs between the images and the frames that they must hold; empty if nothing."""
    for number, image in found.images.items():
        slices = list(_slices(image))
        if not found.volumes and len(slices) != len(frames):
            return f"{len(slices)} frames are read, there are {len(frames)}"
        for k, (array, place) in enumerate(slices):
            if place is None:
                candidates = [frames[number + k]]
            else:
                candidates = [frame for frame in frames if _lies_at(frame, place)]
            if not candidates:
                return "a frame lies elsewhere"
            if not any(_same(array, frame) for frame in candidates):
                return "values differ"
    return ""


def _lies_at(frame: Frame, place: tuple[float, ...]) -> bool:
    return frame.position is None or math.dist(place, frame.position) < PLACE_TOLERANCE


def _slices(image: MedicalImage) -> Iterator[tuple[Array, tuple[float, ...] | None]]:
    """The frames of an image as DICOM has them, and where their first pixels lie (LPS)."""
    array = image.array
    if array.ndim == 3:
        yield (array[0] if len(array) == 1 else np.moveaxis(array, 0, -1)), None
        return
    places = "no positions" not in " ".join(image.warnings)
    for k in range(array.shape[-1]):
        x, y, z = (image.affine @ [0, 0, k, 1])[:3]
        yield array[0, :, :, k].T, (-x, -y, z) if places else None


def _same(array: Array, wanted: Frame) -> bool:
    """Whether a frame has the reference's values; padding may be darker than all else instead.

    The greys of a palette of greys are three channels of a reference.
    """
    if wanted.array.ndim > array.ndim:
        array = array[..., None].repeat(3, axis=-1)
    if array.shape != wanted.array.shape:
        return False
    apart = np.abs(array.astype(np.float64) - wanted.array)
    allowed = max(VALUE_TOLERANCE * wanted.step, ROUNDING * np.abs(wanted.array).max())
    if wanted.padding is not None and not wanted.padding.all():
        background = array <= array[~wanted.padding].min()
        apart = np.where(wanted.padding & background, 0, apart)
    return bool(apart.max() <= allowed)


def _as_frames(voxels: Array | None, image: MedicalImage) -> Array:
    """SimpleITK's voxels as frames."""
    assert voxels is not None  # noqa: S101 - one of the two has read it
    colour = image.array.ndim == 3 and len(image.array) == 3
    frames: Array = voxels.reshape(-1, *voxels.shape[-3 if colour else -2 :])
    return frames
