"""The frames of one DICOM file.

Supported are grey, RGB and palette pictures with 8 to 32 bits: uncompressed, deflated, RLE, JPEG,
JPEG-LS and JPEG 2000. Stored values are rescaled (`caps_med.images.codecs.dicom_rescale`), and
MONOCHROME1 is inverted so that higher is brighter. Only the elements needed for this are read, and
those of patient and study that a DICOM SEG must repeat (`caps_med.images.dicom_origin`).
"""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pydicom
from pydicom.dataset import FileDataset
from pydicom.pixels.utils import pixel_array
from pydicom.uid import UID

from caps_med.errors import CapsMedError, InvalidInput, UnsupportedFormat
from caps_med.images import dicom_origin
from caps_med.images.codecs import dicom_codestreams as codestreams
from caps_med.images.codecs import dicom_kinds, dicom_padding, dicom_palette, dicom_stacks
from caps_med.images.codecs import dicom_layout as layouts
from caps_med.images.codecs.dicom_geometry import SlicePlane, read_planes
from caps_med.images.codecs.dicom_groups import check_frames
from caps_med.images.codecs.dicom_headers import Header, header_of_broken
from caps_med.images.codecs.dicom_parsing import parsing
from caps_med.images.codecs.dicom_rescale import linear, rescaled
from caps_med.images.codecs.dicom_stacks import FrameLabels, frame_labels
from caps_med.images.image import Array
from caps_med.images.limits import Limits

_TAGS: list[Any] = [
    *dicom_origin.TAGS, *dicom_kinds.TAGS, *dicom_stacks.TAGS, *dicom_padding.TAGS,
    *dicom_palette.TAGS,
    "SamplesPerPixel", "PhotometricInterpretation",
    "PlanarConfiguration", "BitsAllocated", "BitsStored", "HighBit", "PixelRepresentation",
    "RescaleSlope", "RescaleIntercept", "ModalityLUTSequence", "ImagePositionPatient",
    "ImageOrientationPatient", "PixelSpacing", "SliceThickness", "SpacingBetweenSlices",
    "SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence", "Modality",
    "SeriesDescription", "SpecificCharacterSet", "FrameTime", "FrameTimeVector",
    "DetectorInformationSequence", "SliceVector",
]  # fmt: skip
#: Modalities whose frames without a place follow each other in time.
_CINE = ("US", "IVUS", "XA", "RF", "ES", "XC")
#: Characters of a description (VR LO).
_LONGEST = 64
#: What files that cannot be read are called, and how they are converted.
_ADVICE = ("DICOM", "store it uncompressed")
#: Told of slices whose patient a DICOM SEG cannot name.
NO_PATIENT_ID = (
    "DICOM: the Patient ID breaks the standard (more than 64 characters, a backslash or a control "
    "character), so that a DICOM SEG has none: an archive may file it under another patient"
)
_GREY = ("MONOCHROME1", "MONOCHROME2", dicom_palette.PHOTOMETRIC)
_COLOURS = ("RGB", "YBR_FULL", "YBR_FULL_422", "YBR_ICT", "YBR_RCT")


@dataclass(frozen=True)
class SeriesLabel:
    """The information by which a series is chosen.

    Attributes:
        uid: its identifier.
        modality, description: as in the file, on one line; empty if it has none.
    """

    uid: str
    modality: str = ""
    description: str = ""


@dataclass(frozen=True)
class Decoded:
    """The values of one file.

    Attributes:
        array: `[F, H, W]`, or `[F, H, W, 3]` for colours.
        padding: mask of padding, `[F, H, W]`; None if there is none.
        notes: assumptions that had to be made.
    """

    array: Array
    padding: Array | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Frames:
    """The contents of one file; nothing is decoded before `decode`.

    Attributes:
        content: of the file.
        layout: the result of the walk over it.
        shape: (frames, rows, columns, channels).
        planes: positions of the frames that have one; empty if none has.
        labels: other attributes of each frame.
        series: the series to which it belongs.
        timed: whether its frames form a time series.
        origin: the objects to which a DICOM SEG has to refer; None if the file lacks information.
        patient: identifies the patient among the files of a series; never shown.
        patient_id: as in the file; empty if it is missing, breaks the standard, or stands for no
            one.
        coloured: whether its stored values are palette indices, which `decode` looks up.
        sample_bytes: bytes of a stored value.
        name: of the file, in messages; empty if it is the only one.
        notes: assumptions made before decoding.
    """

    content: bytes = field(repr=False)
    layout: layouts.DicomLayout
    shape: tuple[int, int, int, int]
    planes: tuple[SlicePlane, ...]
    labels: tuple[FrameLabels, ...]
    series: SeriesLabel
    timed: bool
    origin: dicom_origin.DicomOrigin | None
    patient: str = field(repr=False)
    patient_id: str = field(repr=False)
    coloured: bool = False
    sample_bytes: int = 2
    name: str = ""
    notes: tuple[str, ...] = ()

    @property
    def instance(self) -> str:
        """The identifier of the file (SOP Instance UID); empty if it has none."""
        return self.labels[0].instance[0]

    def as_labels(self) -> Frames:
        """The same with palette indices as stored, which may be ids."""
        return replace(self, coloured=False, shape=(*self.shape[:3], 1)) if self.coloured else self

    def decode(self) -> Decoded:
        """The values of all frames."""
        with parsing(*_ADVICE):
            header = pydicom.dcmread(
                io.BytesIO(self.content), force=True, specific_tags=[*_TAGS, "PixelData"]
            )
            header.file_meta.TransferSyntaxUID = UID(self.layout.syntax)  # where there is none
            stored = _stored(header, self.layout, self.shape[:3])
            palette = _palette(header, self.layout) if self.coloured else None
            if palette is not None:
                return Decoded(palette.applied(stored), None, self.notes)
            padding = dicom_padding.padding_of(header, stored)
            array, notes = _brighter_is_higher(header, stored)
            return Decoded(rescaled(header, array), padding, (*self.notes, *notes))


def describe_frames(data: bytes, limits: Limits) -> Frames:
    """The contents of one file, within `limits`.

    Raises:
        NoPixels, NoImage: it is another kind of object.
        InvalidInput, InputTooLarge, UnsupportedFormat: its header shows that it cannot be read.
    """
    layout = layouts.read_layout(data, limits)
    data = layouts.with_lengths(data, layout)
    with parsing(*_ADVICE):
        header = pydicom.dcmread(io.BytesIO(data), force=True, specific_tags=_TAGS)
        dicom_kinds.check_image(header)
        shape = _checked_shape(header, layout, limits)
        planes = read_planes(header, shape[0])
        origin = dicom_origin.origin_of(header, shape[0])
        patient_id = dicom_origin.text_of(header, "PatientID")
        left_out = planes and origin is not None and not patient_id and header.get("PatientID")
        return Frames(
            data,
            layout,
            shape,
            planes,
            frame_labels(header, shape[0]),
            _series(header),
            _is_timed(header, shape[0]),
            origin,
            _patient(header),
            dicom_origin.known_patient(patient_id),
            _palette(header, layout) is not None,
            _whole(header, "BitsAllocated") // 8,
            notes=(NO_PATIENT_ID,) if left_out else (),
        )


def series_of(data: bytes, limits: Limits) -> SeriesLabel | None:
    """The series of a file whose picture cannot be read; None if the file does not name it."""
    try:
        layouts.read_layout(data, limits)
        with parsing(*_ADVICE):
            label = _series(pydicom.dcmread(io.BytesIO(data), force=True, specific_tags=_TAGS))
    except CapsMedError:
        label = _series(header_of_broken(data))
    return label if label.uid else None


def _series(header: FileDataset | Header) -> SeriesLabel:
    uid, modality, description = (
        _one_line(header.get(name))
        for name in ("SeriesInstanceUID", "Modality", "SeriesDescription")
    )
    return SeriesLabel(uid, modality, description)


def _one_line(value: Any) -> str:  # noqa: ANN401 - whatever the file holds
    return "".join(one if one.isprintable() else " " for one in str(value or ""))[:_LONGEST].strip()


def _is_timed(header: FileDataset, frames: int) -> bool:
    """Whether several frames are a cine: X-ray, ultrasound, or frames with a time step."""
    if frames == 1:
        return False
    times = any(header.get(name) not in (None, "") for name in ("FrameTime", "FrameTimeVector"))
    return times or str(header.get("Modality", "")) in _CINE


def _patient(header: FileDataset) -> str:
    """The patient's identifier, or the name if there is none."""
    identifier = str(header.get("PatientID", "")).strip()
    return identifier or str(header.get("PatientName", "")).strip()


def _checked_shape(
    header: FileDataset, layout: layouts.DicomLayout, limits: Limits
) -> tuple[int, int, int, int]:
    """(frames, rows, columns, channels), after bounds and lengths are checked."""
    if layout.floats:
        raise UnsupportedFormat(
            "DICOM: pixels that are floating-point numbers (Float Pixel Data) are not read: store "
            "them as integers with Rescale Slope and Intercept, or as NIfTI"
        )
    if layout.pixels is None and layout.fragments == 0:
        raise dicom_kinds.NoPixels("DICOM: the file contains no picture (no Pixel Data)")
    layouts.check_syntax(layout)
    frames = _whole(header, "NumberOfFrames", 1)
    rows, columns = _whole(header, "Rows"), _whole(header, "Columns")
    channels, bits = _whole(header, "SamplesPerPixel", 1), _whole(header, "BitsAllocated")
    colours = str(header.get("PhotometricInterpretation", ""))
    if min(frames, rows, columns) < 1:
        raise InvalidInput(f"DICOM: invalid picture: {rows} x {columns} pixels, {frames} frames")
    if colours not in {1: _GREY, 3: _COLOURS}.get(channels, ()):
        raise UnsupportedFormat(
            "DICOM: only grey, RGB and palette pictures can be read: convert the file to one of "
            "them"
        )
    if bits not in (8, 16, 32) or (channels == 3 and bits != 8):
        raise UnsupportedFormat(
            "DICOM: only samples of 8, 16 or 32 bits can be read, in colour of 8 bits: convert "
            "the file"
        )
    if "ModalityLUTSequence" in header:
        raise UnsupportedFormat(
            "DICOM: a table of values (Modality LUT) cannot be read: convert it to Rescale Slope "
            "and Intercept"
        )
    size = channels * bits // 8
    expected = frames * rows * columns * size
    if colours == "YBR_FULL_422" and layout.pixels is not None:
        raise UnsupportedFormat(
            "DICOM: subsampled colours can only be read from JPEG: save the picture as RGB"
        )
    padding = 0 if layout.pixels is None else layout.pixels - expected
    if padding < 0 or padding > max(1, expected // frames - 1):
        raise InvalidInput(
            f"DICOM: the header describes {expected} bytes of pixels, there are {layout.pixels}"
        )
    if layout.pixels is None and layout.fragments < frames:
        raise InvalidInput(f"DICOM: {layout.fragments} fragments are too few for {frames} frames")
    if (palette := _palette(header, layout)) is not None:
        channels = palette.channels
    limits.check_array((frames, rows, columns), max(size, channels))
    check_frames(frames)
    return frames, rows, columns, channels


def _palette(header: FileDataset, layout: layouts.DicomLayout) -> dicom_palette.Palette | None:
    """The palette whose indices are stored; None if there is no palette."""
    if header.get("PhotometricInterpretation") != dicom_palette.PHOTOMETRIC:
        return None
    return dicom_palette.Palette(header, big_endian=layout.syntax == layouts.BIG_ENDIAN)


def _stored(header: FileDataset, layout: layouts.DicomLayout, size: tuple[int, int, int]) -> Array:
    """The stored values `[F, H, W]` or `[F, H, W, 3]`, without any bits above the top one."""
    channels = _whole(header, "SamplesPerPixel", 1)
    shape = (*size, channels)
    if layout.syntax in layouts.NATIVE:
        described = int(np.prod(shape)) * _whole(header, "BitsAllocated") // 8
        if any(header.PixelData[described + described % 2 :]):
            raise InvalidInput("DICOM: there are more pixels than the header describes")
        array = np.asarray(pixel_array(header))
    elif layout.syntax == layouts.RLE:
        warnings.simplefilter("error")  # it would go on with pixels in the wrong places
        array = np.asarray(pixel_array(header, decoding_plugin="pydicom"))
    else:
        array = codestreams.decode(header, layout.syntax, shape)
    wanted = size if channels == 1 else shape
    if array.size != np.prod(wanted):
        raise InvalidInput("DICOM: the decoded picture has another size than its header says")
    array = array.reshape(wanted)
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    bits = _whole(header, "BitsStored", array.itemsize * 8)
    if not 1 <= bits <= array.itemsize * 8 or _whole(header, "HighBit", bits - 1) != bits - 1:
        raise UnsupportedFormat("DICOM: values must fill the lowest bits of a sample")
    unused = array.itemsize * 8 - bits
    return (array << unused) >> unused if unused and array.dtype.kind in "iu" else array


def _brighter_is_higher(header: FileDataset, array: Array) -> tuple[Array, tuple[str, ...]]:
    """MONOCHROME1 inverted within its stored bits, and notes about this for the user."""
    if header.PhotometricInterpretation != "MONOCHROME1":
        return array, ()
    bits = _whole(header, "BitsStored")
    highest = -1 if array.dtype.kind == "i" else 2**bits - 1
    return (
        linear(array, np.array([(-1, highest)] * len(array), np.int64)),
        ("DICOM: MONOCHROME1 was inverted, so that higher is brighter",),
    )


def _whole(header: FileDataset, name: str, default: int | None = None) -> int:
    value: Any = header.get(name, default)
    if value is None or value == "":
        if default is not None:
            return default
        raise InvalidInput(f"DICOM: {name} is missing")
    return int(value)
