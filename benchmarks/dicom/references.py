"""What pydicom and SimpleITK make of a file: its frames, each with its place."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import SimpleITK
from pydicom.dataset import Dataset
from pydicom.pixels.processing import apply_color_lut
from pydicom.pixels.utils import pixel_array

from caps_med.images.image import Array

_SERIES = ["SeriesInstanceUID", "ImagePositionPatient", "Rows", "NumberOfFrames"]


@dataclass(frozen=True)
class Frame:
    """One picture `[H, W]` or `[H, W, 3]`.

    Attributes:
        position: the centre of its first pixel (LPS, mm).
        step: what neighbouring stored numbers differ by, where they are rescaled.
        padding: `[H, W]`, where the header calls the stored value padding.
    """

    array: Array
    position: tuple[float, ...] | None = None
    step: float = 1.0
    padding: Array | None = None


@dataclass(frozen=True)
class Read:
    """What pydicom finds in a file.

    Attributes:
        holds_picture: whether there is Pixel Data.
        other: why its frames are no images, if they are not.
        frames: rescaled; empty where pydicom cannot decode them.
    """

    holds_picture: bool
    other: str = ""
    frames: tuple[Frame, ...] = ()


def read_with_pydicom(path: Path) -> Read | None:
    """The frames as pydicom decodes them, rescaled by the frame's own group, the shared group or
    the top level; None if pydicom cannot parse the file, or it holds no element.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            header = pydicom.dcmread(path, force=True)
            if not len(header) or ("SOPClassUID" not in header and "Rows" not in header):
                return None
        except Exception:  # pydicom raises nearly every type
            return None
        if "PixelData" not in header:
            return Read(False)
        try:
            frames = tuple(_frames(header))
        except Exception:  # and so do its decoders
            frames = ()
    return Read(True, _other(header), frames)


def series_of(path: Path) -> tuple[str, str] | None:
    """Folder and identifier of the series, of a slice that has a place."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            header = pydicom.dcmread(
                path, force=True, stop_before_pixels=True, specific_tags=_SERIES
            )
            if "Rows" not in header or "ImagePositionPatient" not in header:
                return None
            return str(path.parent), str(header.get("SeriesInstanceUID", ""))
        except Exception:  # pydicom raises nearly every type
            return None


def read_with_simpleitk(path: Path) -> Array | None:
    """The voxels `[F, H, W(, 3)]` as SimpleITK reads them; None if it cannot."""
    try:
        return np.asarray(SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(str(path))))
    except RuntimeError:
        return None


def _name(header: Dataset) -> str:
    uid = header.get("SOPClassUID")
    return str(uid.name) if uid else "no SOP class"


def _other(header: Dataset) -> str:
    """Objects of which a frame is no image by itself, told by other elements than the reader's."""
    if "SegmentSequence" in header:
        return "segmentation"
    if "DoseGridScaling" in header:
        return "dose"
    if "MOSAIC" in str(header.get("ImageType", "")):
        return "mosaic"
    tiles = int(header.get("NumberOfFrames") or 1) > 1 and "TotalPixelMatrixColumns" in header
    if tiles:
        return "tiles"
    return "parametric map" if "Parametric" in _name(header) else ""


def _frames(header: Dataset) -> list[Frame]:
    stored = np.asarray(pixel_array(header))
    count = int(header.get("NumberOfFrames") or 1)
    palette = header.get("PhotometricInterpretation") == "PALETTE COLOR"
    colour = header.get("SamplesPerPixel", 1) == 3 or palette
    if palette:
        stored = apply_color_lut(stored, header)
        stored = stored >> 8 if stored.max() > 255 else stored
    stored = stored.reshape(count, *stored.shape[-3 if colour else -2 :])
    shared = _first(header.get("SharedFunctionalGroupsSequence"))
    own: Sequence[Dataset] = header.get("PerFrameFunctionalGroupsSequence") or [Dataset()] * count
    grouped = bool(shared) or bool(header.get("PerFrameFunctionalGroupsSequence"))
    frames = []
    for array, groups in zip(stored, own, strict=True):

        def group(name: str, groups: Dataset = groups) -> Dataset:
            if grouped:
                return _first(groups.get(name)) or _first(shared.get(name))
            return header

        values, step = (array, 1.0) if colour else _rescaled(header, array, group)
        position = group("PlanePositionSequence").get("ImagePositionPatient")
        place = (
            None if position in (None, "") or len(position) != 3 else tuple(map(float, position))
        )
        there = place if grouped or count == 1 else None
        frames.append(Frame(values, there, step, None if colour else _padding(header, array)))
    return frames


def _padding(header: Dataset, stored: Array) -> Array | None:
    """Where stored values are those of Pixel Padding Value, up to Pixel Padding Range Limit."""
    value = header.get("PixelPaddingValue")
    if not isinstance(value, int):
        return None
    limit = header.get("PixelPaddingRangeLimit", value)
    ends = np.array([value, limit], np.int64).astype(stored.dtype)
    found: Array = (stored >= ends.min()) & (stored <= ends.max())
    return found


def _rescaled(
    header: Dataset,
    array: Array,
    group: Callable[[str], Dataset],
) -> tuple[Array, float]:
    """The values, and the `Frame.step` between them."""
    values = array.astype(np.float64)
    if header.PhotometricInterpretation == "MONOCHROME1":
        signed = header.PixelRepresentation == 1
        values = (-1 if signed else 2 ** int(header.BitsStored) - 1) - values
    source = group("PixelValueTransformationSequence")
    slope, intercept = (
        default if source.get(name) in (None, "") else float(source.get(name))
        for name, default in (("RescaleSlope", 1.0), ("RescaleIntercept", 0.0))
    )
    return values * slope + intercept, abs(slope)


def _first(items: Any) -> Dataset:  # noqa: ANN401 - a sequence or None
    return items[0] if items else Dataset()
