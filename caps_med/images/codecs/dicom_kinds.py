"""Which DICOM objects are images: decided by SOP Class and Image Type, before any pixel is decoded.

Objects of other kinds hold Pixel Data too, whose values or positions mean something else: labels,
a dose, tiles of one large picture. Read as an image, they would be silently wrong.
SOP classes: DICOM PS3.4, table B.5-1 and PS3.6, table A-1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from caps_med.errors import CapsMedError, InvalidInput, UnsupportedFormat

if TYPE_CHECKING:
    from pydicom.dataset import Dataset

_STORAGE = "1.2.840.10008.5.1.4.1.1."
#: The SOP classes whose frames are label maps: Segmentation, Label Map Segmentation.
SEGMENTATIONS = frozenset({f"{_STORAGE}66.4", f"{_STORAGE}66.7"})
#: The SOP classes that are images, behind `_STORAGE`.
_IMAGES = frozenset((
    "1", "1.1", "1.1.1", "1.2", "1.2.1", "1.3", "1.3.1",  # radiography
    "2", "2.1", "2.2",  # CT
    "3", "3.1", "6", "6.1", "6.2", "6.3",  # ultrasound
    "4", "4.1", "4.3", "4.4",  # MR
    "5", "20", "128", "128.1", "130",  # nuclear medicine and PET
    "7", "7.1", "7.2", "7.3", "7.4",  # secondary capture
    "12.1", "12.1.1", "12.2", "12.2.1", "12.3", "13.1.1", "13.1.2", "13.1.3", "13.1.4", "13.1.5",
    "14.1", "14.2", "77.1.5.4", "77.1.5.7",  # optical coherence tomography
    "77.1", "77.2", "77.1.1", "77.1.1.1", "77.1.2", "77.1.2.1", "77.1.3", "77.1.4", "77.1.4.1",
    "77.1.5.1", "77.1.5.2", "77.1.5.5", "77.1.5.6", "77.1.6", "77.1.7", "77.1.8", "77.1.9",
    "481.1", "481.23", "481.24",  # of radiotherapy
    "501.1", "501.2.1", "501.2.2", "601.1", "601.2",  # of luggage and materials
))  # fmt: skip
_SEGMENTATION = 'a segmentation is no image: read it as labels (kind="labels")'
#: What is no image, and the way out.
_OTHERS: Mapping[str, str] = {
    "481.2": "a dose (RT Dose) is no image: convert it to NIfTI with plastimatch or 3D Slicer, "
    "which apply its unit and the offsets of its frames",
    "481.3": "contours (RT Structure Set) are no image: draw them into a label map with "
    "plastimatch, dcmrtstruct2nii or 3D Slicer",
    "30": "a parametric map is no image: its values need a Real World Value Mapping; convert it to "
    "NIfTI with dcmqi's paramap2itkimage",
    "66.5": "a surface is no image: make a label map of it in 3D Slicer",
}
_MOSAIC = (
    "a mosaic (the slices of a volume side by side) is not read: convert the series to NIfTI with "
    "dcm2niix"
)
_TILED = (
    "tiles of a whole slide are not read: export a region or a level of it as TIFF, as with "
    "OpenSlide or wsidicom"
)
#: NumberOfImagesInMosaic, and the creator of its block.
_MOSAIC_COUNT, _MOSAIC_BLOCK, _MOSAIC_CREATOR = 0x0019100A, 0x00190010, "SIEMENS MR HEADER"
#: Elements that `check_image` reads.
TAGS = (
    "SOPClassUID", "ImageType", "DimensionOrganizationType", "NumberOfFrames", "Rows", "Columns",
    "TotalPixelMatrixRows", "TotalPixelMatrixColumns", _MOSAIC_BLOCK, _MOSAIC_COUNT,
)  # fmt: skip

#: Segments of one file, beside the background.
MOST_SEGMENTS = 500


class NoPicture(CapsMedError):
    """A DICOM object of another kind, which may lie beside a series."""


class NoPixels(NoPicture, InvalidInput):
    """A directory, a report, a presentation state."""


class NoImage(NoPicture, UnsupportedFormat):
    """An object whose Pixel Data, or contours, are not an image."""


class IsSegmentation(NoImage):
    """A DICOM SEG, which is read as labels."""


def is_segmentation(sop_class: str) -> bool:
    """Whether objects of this SOP class are label maps."""
    return sop_class in SEGMENTATIONS


def other_kind(sop_class: str) -> str:
    """What objects of this SOP class are, and what reads them; empty if they are images.

    A missing or private SOP class counts as an image: old files name none.
    """
    if is_segmentation(sop_class):
        return _SEGMENTATION
    if not sop_class.startswith(_STORAGE):
        return ""
    number = sop_class.removeprefix(_STORAGE)
    if number in _IMAGES:
        return ""
    from pydicom.uid import UID  # not for a service that starts, which sorts no files yet

    name = UID(sop_class).name
    return _OTHERS.get(number, f"{name if name != sop_class else 'this object'} is no image")


def check_image(header: Dataset) -> None:
    """Reject all objects that are not images, and images that hold several in one frame.

    Raises:
        IsSegmentation, NoImage: it is another kind of object; the message says what reads it.
        UnsupportedFormat: it is a mosaic, or tiles of a larger picture.
    """
    sop_class = str(header.get("SOPClassUID") or "")
    if other := other_kind(sop_class):
        raise (IsSegmentation if is_segmentation(sop_class) else NoImage)(f"DICOM: {other}")
    if _is_mosaic(header):
        raise UnsupportedFormat(f"DICOM: {_MOSAIC}")
    if _is_tiled(header, sop_class):
        raise UnsupportedFormat(f"DICOM: {_TILED}")


def _is_mosaic(header: Dataset) -> bool:
    """Siemens says so in the Image Type, and in a private element that may remain without it."""
    if "MOSAIC" in _values(header.get("ImageType")):
        return True
    creator = str(header[_MOSAIC_BLOCK].value).strip() if _MOSAIC_BLOCK in header else ""
    if creator != _MOSAIC_CREATOR or _MOSAIC_COUNT not in header:
        return False
    count = header[_MOSAIC_COUNT].value
    number = int.from_bytes(count, "little") if isinstance(count, bytes) else int(count or 0)
    return number > 1


def _is_tiled(header: Dataset, sop_class: str) -> bool:
    """Whether a frame is only a part of the whole; a slide's label or overview is one frame."""
    whole, part = (
        tuple(header.get(f"{prefix}{name}") for name in ("Rows", "Columns"))
        for prefix in ("TotalPixelMatrix", "")
    )
    if str(header.get("DimensionOrganizationType", "")).startswith("TILED") and whole != part:
        return True
    if sop_class not in (f"{_STORAGE}77.1.6", f"{_STORAGE}77.1.9"):
        return False
    return str(header.get("NumberOfFrames") or 1) != "1" or whole not in (part, (None, None))


def _values(found: Any) -> tuple[str, ...]:  # noqa: ANN401 - one value, several or none
    several = not isinstance(found, str) and hasattr(found, "__iter__")
    return tuple(str(one) for one in found) if several else (str(found or ""),)
