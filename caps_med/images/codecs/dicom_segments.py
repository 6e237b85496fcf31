"""DICOM SEG as a label map: binary, fractional and label map segmentations (PS3.3, C.8.20).

Ids are segment numbers; names and codes are kept. Frames are decoded one at a time; slices without
a frame, between the first and the last, are background.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import numpy as np
import pydicom
from highdicom.color import CIELabColor
from pydicom.dataset import Dataset, FileDataset
from pydicom.pixels.utils import iter_pixels
from pydicom.sr.coding import Code

from caps_med.errors import CapsMedError, InputTooLarge, InvalidInput, UnsupportedFormat
from caps_med.images.codecs import dicom_kinds
from caps_med.images.codecs import dicom_layout as layouts
from caps_med.images.codecs.dicom_geometry import check_all_placed, read_planes
from caps_med.images.codecs.dicom_grid import Grid, grid_of
from caps_med.images.codecs.dicom_groups import (
    check_frames,
    described_frames,
    group_of,
    shared_groups,
)
from caps_med.images.codecs.dicom_headers import header_of_broken
from caps_med.images.codecs.dicom_kinds import MOST_SEGMENTS
from caps_med.images.codecs.dicom_parsing import parsing
from caps_med.images.codecs.dicom_seg import SIDES
from caps_med.images.codecs.dicom_sources import one_value
from caps_med.images.image import Array, MedicalImage
from caps_med.images.label_codes import STRUCTURE, Coding, LabelCode
from caps_med.images.labels import label_palette, smallest_unsigned
from caps_med.images.limits import Limits

#: Share of a fractional segment from which a voxel belongs to it.
THRESHOLD = 0.5
#: Of a voxel while labels are drawn: its label, and the share of a fractional segment.
_BYTES = 4

#: What files that cannot be read are called, and how they are converted.
_ADVICE = ("DICOM SEG", "convert it with dcmqi's segimage2itkimage")
Type = Literal["BINARY", "FRACTIONAL", "LABELMAP"]
_TAGS = [
    "SOPClassUID", "SamplesPerPixel", "PhotometricInterpretation", "NumberOfFrames", "Rows",
    "Columns", "BitsAllocated", "BitsStored", "HighBit", "PixelRepresentation",
    "PixelPaddingValue", "SegmentationType", "MaximumFractionalValue", "SegmentSequence",
    "SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence", "PixelData",
]  # fmt: skip


@dataclass(frozen=True)
class _Shape:
    """What the header says about the frames."""

    type: Type
    frames: int
    rows: int
    columns: int
    bits: int


def read_segments(data: bytes, limits: Limits) -> MedicalImage:
    """The label map of a DICOM SEG: a volume, or a picture if its frames have no position.

    Where segments overlap, the one with the highest number is kept, or among fractional ones that
    with the largest value; the warnings say at how many voxels.

    Raises:
        InvalidInput: the file is corrupt, or its frames do not lie on one grid.
        InputTooLarge: over `limits`, or too many segments.
        UnsupportedFormat: the transfer syntax or segmentation type is not supported.
    """
    layout = layouts.read_layout(data, limits)
    with parsing(*_ADVICE):
        header = pydicom.dcmread(io.BytesIO(data), force=True, specific_tags=_TAGS)
        shape = _checked_shape(header, layout, limits)
        return _label_map(header, shape, limits)


def holds_segments(data: bytes, limits: Limits) -> bool:
    """Whether a DICOM file is a SEG.

    Raises:
        CapsMedError: the file is broken, and may be one.
    """
    try:
        layouts.read_layout(data, limits)
    except CapsMedError:
        broken = str(header_of_broken(data).get("SOPClassUID") or "")
        if not broken or dicom_kinds.is_segmentation(broken):
            raise
        return False
    tags: list[Any] = ["SOPClassUID"]
    with parsing(*_ADVICE):
        header = pydicom.dcmread(io.BytesIO(data), force=True, specific_tags=tags)
        return dicom_kinds.is_segmentation(str(header.get("SOPClassUID") or ""))


def described_segments(data: bytes, limits: Limits) -> dict[int, tuple[str, LabelCode | None]]:
    """Number, name and code of the segments of a DICOM SEG; empty for other files.

    Raises:
        CapsMedError: the file is broken.
    """
    layouts.read_layout(data, limits)
    with parsing(*_ADVICE):
        tags: list[Any] = ["SOPClassUID", "SegmentSequence"]
        header = pydicom.dcmread(io.BytesIO(data), force=True, specific_tags=tags)
        segments = _segments(header).items()
        return {number: (_name(one, number), _code(one)) for number, one in segments}


def _checked_shape(header: FileDataset, layout: layouts.DicomLayout, limits: Limits) -> _Shape:
    """What the header says, after bounds and lengths are checked."""
    layouts.check_syntax(layout)
    kind = str(header.get("SegmentationType", ""))
    if kind not in get_args(Type):
        raise UnsupportedFormat(f"DICOM SEG: its type must be one of {', '.join(get_args(Type))}")
    values = [int(header.get(name) or 0) for name in ("Rows", "Columns", "BitsAllocated")]
    shape = _Shape(cast(Type, kind), int(header.get("NumberOfFrames") or 1), *values)
    check_frames(shape.frames)
    if min(shape.frames, shape.rows, shape.columns) < 1:
        raise InvalidInput("DICOM SEG: it holds no frame")
    if int(header.get("SamplesPerPixel") or 1) != 1 or shape.bits not in (1, 8, 16):
        raise UnsupportedFormat("DICOM SEG: one sample of 1, 8 or 16 bits is read")
    if (shape.bits == 1) != (kind == "BINARY") and kind != "BINARY":
        raise UnsupportedFormat(f"DICOM SEG: samples of 1 bit do not suit the type {kind}")
    limits.check_array((shape.rows, shape.columns))
    size = -(-shape.frames * shape.rows * shape.columns * shape.bits // 8)
    if layout.pixels is None:  # what one byte inflates to, nobody knows
        limits.check_array((shape.frames, shape.rows, shape.columns))
        if layout.fragments < shape.frames:
            raise InvalidInput(f"DICOM SEG: {layout.fragments} fragments, {shape.frames} frames")
    elif layout.pixels < size:
        raise InvalidInput(
            f"DICOM SEG: the header describes {size} bytes of pixels, there are {layout.pixels}"
        )
    return shape


def _label_map(header: FileDataset, shape: _Shape, limits: Limits) -> MedicalImage:
    segments = _segments(header)
    numbers = _numbers_of_frames(header, shape)
    grid = _grid(header, numbers, shape)
    count = 1 if grid is None else grid.count
    limits.check_array((count, shape.rows, shape.columns), _BYTES)
    places = (0,) * shape.frames if grid is None else grid.places
    drawn = _Drawing(header, shape, count)
    packed = shape.bits == 1 and not header.file_meta.TransferSyntaxUID.is_encapsulated
    frames = _bits(header.PixelData, shape) if packed else iter_pixels(header, raw=True)
    drawn.add(zip(frames, numbers, places, strict=True))
    ids = smallest_unsigned(drawn.labels)
    flat = grid is None
    return MedicalImage(
        ids if flat else np.ascontiguousarray(ids.transpose(2, 1, 0)[None]),
        np.eye(4) if grid is None else grid.affine,
        format="png" if flat else "nifti",
        kind="labels",
        palette=_palette(segments),
        warnings=drawn.notes,
        names={number: _name(one, number) for number, one in segments.items()},
        codes={n: code for n, one in segments.items() if (code := _code(one)) is not None},
    )


def _bits(content: bytes, shape: _Shape) -> Iterator[Array]:
    """Frames of single bits, which may begin inside a byte: pydicom reads whole bytes."""
    packed, size = np.frombuffer(content, np.uint8), shape.rows * shape.columns
    for first in range(0, shape.frames * size, size):
        part = packed[first // 8 : -(-(first + size) // 8)]
        bits = np.unpackbits(part, bitorder="little")[first % 8 :][:size]
        yield bits.reshape(shape.rows, shape.columns)


class _Drawing:
    """Labels `[slices, rows, columns]`, drawn frame by frame."""

    def __init__(self, header: FileDataset, shape: _Shape, slices: int) -> None:
        self._type = shape.type
        self._most = float(header.get("MaximumFractionalValue") or 255)
        self._padding = int(header.get("PixelPaddingValue") or 0)
        size = (slices, shape.rows, shape.columns)
        self.labels = np.zeros(size, np.uint16)
        self._shares = np.zeros(size if shape.type == "FRACTIONAL" else 0, np.uint16)
        self._overlapping = 0

    def add(self, frames: Iterator[tuple[Array, int, int]]) -> None:
        """Draw frames `[rows, columns]`, each with a segment number and a slice."""
        labelled: set[int] = set()
        for pixels, number, place in frames:
            target = self.labels[place]
            if self._type == "LABELMAP":
                if place in labelled:
                    raise InvalidInput("DICOM SEG: two frames of a label map lie on one slice")
                labelled.add(place)
                target[...] = np.where(pixels == self._padding, 0, pixels)
                continue
            inside = pixels > 0 if self._type == "BINARY" else pixels >= THRESHOLD * self._most
            self._overlapping += int(np.count_nonzero(inside & (target > 0)))
            if self._type == "FRACTIONAL":
                inside &= pixels > self._shares[place]
                self._shares[place][inside] = pixels[inside]
            else:
                inside &= target < number
            target[inside] = number

    @property
    def notes(self) -> tuple[str, ...]:
        """Assumptions that had to be made."""
        notes = []
        if self._type == "FRACTIONAL":
            notes.append(f"DICOM SEG: fractional; shares from {THRESHOLD:g} on are labelled")
        if self._overlapping:
            kept = "largest share" if self._type == "FRACTIONAL" else "highest number"
            notes.append(
                f"DICOM SEG: segments overlap at {self._overlapping} voxels; the one with the "
                f"{kept} is kept"
            )
        return tuple(notes)


def _segments(header: FileDataset) -> Mapping[int, Dataset]:
    """Segment number -> its description, except for the background."""
    found = header.get("SegmentSequence") or []
    if sum(one.get("SegmentNumber") != 0 for one in found) > MOST_SEGMENTS:
        raise InputTooLarge(f"DICOM SEG: more than {MOST_SEGMENTS} segments: split it")
    segments = {int(one.SegmentNumber): one for one in found}
    if len(segments) != len(found):
        raise InvalidInput("DICOM SEG: two segments have one number")
    if any(not 0 <= number <= np.iinfo(np.uint16).max for number in segments):
        raise InvalidInput("DICOM SEG: segment numbers must be 1 to 65535")
    return {number: one for number, one in sorted(segments.items()) if number}


def _numbers_of_frames(header: FileDataset, shape: _Shape) -> tuple[int, ...]:
    """The segment of each frame; 0 for the frames of a label map."""
    if shape.type == "LABELMAP":
        return (0,) * shape.frames
    shared = shared_groups(header)
    groups = described_frames(header, shape.frames) or [Dataset()] * shape.frames
    items = (group_of(group, shared, "SegmentIdentificationSequence") for group in groups)
    numbers = [int(item.get("ReferencedSegmentNumber") or 0) for item in items]
    known = _segments(header)
    if unknown := set(numbers) - set(known):
        raise InvalidInput(f"DICOM SEG: a frame is of segment {min(unknown)}, which is missing")
    return tuple(numbers)


def _grid(header: FileDataset, numbers: tuple[int, ...], shape: _Shape) -> Grid | None:
    """Where the frames lie; None for a picture, whose segments have one frame each."""
    planes = read_planes(header, shape.frames)
    check_all_placed(planes, shape.frames)
    if planes:
        return grid_of(planes, _spacing(header))
    if len(set(numbers)) != shape.frames:
        raise UnsupportedFormat(
            "DICOM SEG: its frames have no position in the patient: slides and films are not read"
        )
    return None


def _spacing(header: FileDataset) -> float | None:
    """Spacing Between Slices, if it is given for all frames."""
    measures = group_of(Dataset(), shared_groups(header), "PixelMeasuresSequence")
    value = measures.get("SpacingBetweenSlices")
    if value in (None, ""):
        return None
    spacing = abs(float(value))
    return spacing if 0 < spacing < np.inf else None


def _name(segment: Dataset, number: int) -> str:
    return one_value(str(segment.get("SegmentLabel") or "")) or f"label {number}"


def _code(segment: Dataset) -> LabelCode | None:
    """What a segment stands for; None if its codes are missing or too long."""
    kind = _coded(segment, "SegmentedPropertyTypeCodeSequence")
    if kind is None:
        return None
    (item,) = segment.SegmentedPropertyTypeCodeSequence
    modifier = _coded(item, "SegmentedPropertyTypeModifierCodeSequence")
    side = None
    if modifier is not None:
        given = Code(modifier.value, modifier.scheme, modifier.meaning)
        side = next((side for side, code in SIDES.items() if code == given), None)
    category = _coded(segment, "SegmentedPropertyCategoryCodeSequence")
    return LabelCode(kind, side, category or STRUCTURE)


def _coded(source: Dataset, name: str) -> Coding | None:
    items: Any = source.get(name) or [Dataset()]
    parts = [str(items[0].get(key) or "") for key in
             ("CodeValue", "CodingSchemeDesignator", "CodeMeaning")]  # fmt: skip
    try:
        return Coding(*(one_value(part) for part in parts))
    except CapsMedError:
        return None


def _palette(segments: Mapping[int, Dataset]) -> Array:
    """`[256, 3]`: the default colours, and those that segments recommend."""
    palette = label_palette()
    for number, segment in segments.items():
        value = segment.get("RecommendedDisplayCIELabValue")
        if number < len(palette) and value is not None and len(value) == 3:
            palette[number] = CIELabColor.from_dicom_value(list(value)).to_rgb(clip=True)
    return palette
