"""Bytes to `MedicalImage` and back, whatever the format."""

from __future__ import annotations

import gzip
import secrets
from os import PathLike
from pathlib import Path
from typing import TypeAlias

import numpy as np

from caps_med.errors import InvalidInput, NotFinite
from caps_med.images.codecs.dicom_series import read_files, read_series
from caps_med.images.codecs.registry import codec_of_content, codec_of_name, codec_of_path
from caps_med.images.image import Kind, MedicalImage, save_with
from caps_med.images.labels import as_labels, smallest_unsigned
from caps_med.images.limits import DEFAULT_LIMITS, Limits
from caps_med.images.normalization import to_uint8
from caps_med.images.objects import from_object

_LARGEST = float(np.finfo(np.float32).max)
_GZIP_LEVEL = 6
# Formats of pictures that everyone can look at.
_EIGHT_BITS = ("png", "jpeg", "tiff")


#: A path, the content of a file, or an image in memory; see `from_object`.
ImageSource: TypeAlias = object


def read_image(
    source: ImageSource,
    *,
    kind: Kind = "image",
    limits: Limits = DEFAULT_LIMITS,
    index: int | None = None,
) -> MedicalImage:
    """An image or a label map from a file, from bytes or from another library's image.

    Args:
        source: a path, or the content itself, which tells its format; of a DICOM series its folder
            or a list of its files; or an image in memory, see `from_object`.
        kind: "labels" keeps palette indices and checks that all values are ids.
        limits: checked from the headers, before anything is decoded.
        index: which picture of a stack (TIFF of many pages, npy `[N, H, W]`); None for the whole
            as one image.

    Returns:
        A picture `[1 or 3, H, W]` or a volume `[1, X, Y, Z]` in the file's voxel order. Labels
        have one channel and the smallest unsigned dtype.

    Raises:
        UnsupportedFormat: no known format, or a part of one that is not read.
        InputTooLarge: over `limits`.
        InvalidInput: cut, broken, or not finite in float32; or no such picture in a stack.
    """
    if isinstance(source, MedicalImage):
        image = source
    elif isinstance(source, (str, PathLike, bytes)):
        image = _decoded(source, kind, limits, index)
    elif isinstance(source, list):
        image = read_files([Path(file) for file in source], limits)
    else:
        image = from_object(source)
    low, high = float(image.array.min()), float(image.array.max())
    if not (low >= -_LARGEST and high <= _LARGEST):
        raise NotFinite("the image holds NaN, infinity or numbers beyond float32: repair it")
    return as_labels(image) if kind == "labels" else image


def count_pictures(source: str | PathLike[str] | bytes, *, limits: Limits = DEFAULT_LIMITS) -> int:
    """How many pictures `read_image` can give by `index`: 1 but for a stack.

    Raises:
        UnsupportedFormat, InputTooLarge, InvalidInput: as `read_image`.
    """
    if not isinstance(source, bytes) and Path(source).is_dir():
        return 1
    data = _content(source, limits)
    codec = codec_of_content(data)
    return 1 if codec.count is None else codec.count(data, limits)


def _decoded(
    source: str | PathLike[str] | bytes, kind: Kind, limits: Limits, index: int | None
) -> MedicalImage:
    if not isinstance(source, bytes) and Path(source).is_dir():
        return read_series(Path(source), limits)
    data = _content(source, limits)
    codec = codec_of_content(data)
    if index is None:
        return codec.decode(data, kind, limits)
    if codec.decode_one is not None:
        return codec.decode_one(data, kind, limits, index)
    if index == 0:
        return codec.decode(data, kind, limits)
    raise InvalidInput(f"{codec.name}: no picture {index}, the file is one image")


def _content(source: str | PathLike[str] | bytes, limits: Limits) -> bytes:
    data = source if isinstance(source, bytes) else _file_content(Path(source), limits)
    limits.check_file(len(data))
    return data


def encode_image(image: MedicalImage, format: str, *, compress: bool | None = None) -> bytes:
    """The content of a file of `format`: "nifti", "nrrd", "png", "jpeg", "tiff", "npy", "npz", or
    "dicom" (DICOM SEG, only for label maps of DICOM slices).

    Args:
        image: an image or a label map, written as `as_written` has it.
        format: a name of `FORMATS`; `image.format` gives back what was read.
        compress: put it into gzip; by default NIfTI alone (.nii.gz).

    Raises:
        UnsupportedFormat: the format is unknown, or cannot hold this image.
        InvalidInput: the format cannot hold these values.
    """
    codec = codec_of_name(format)
    data = codec.encode(as_written(image))
    if codec.gzipped if compress is None else compress:
        return gzip.compress(data, _GZIP_LEVEL, mtime=0)
    return data


def as_written(image: MedicalImage) -> MedicalImage:
    """The image with the values that its files hold.

    The ids of a label map get the smallest unsigned dtype that holds them. Floats that lie in
    [0, 1] by definition become 0 to 255 in an image that belongs to a PNG, JPEG or TIFF.

    Raises:
        InvalidInput: ids are negative or too large.
    """
    if image.kind == "labels":
        return image.with_array(smallest_unsigned(image.array))
    picture = image.spatial_dims == 2 and image.format in _EIGHT_BITS
    if picture and image.unit_range and image.array.dtype.kind == "f":
        return image.with_array(to_uint8(image.array))
    return image


def check_writable(source: MedicalImage, kind: Kind, channels: int, format: str) -> None:
    """Check, before any work, that `format` can hold an answer to `source`: one voxel is tried.

    Args:
        source: the image that the answer will belong to.
        kind, channels: of the answer.

    Raises:
        UnsupportedFormat, InvalidInput: it cannot, as `encode_image` says.
    """
    voxel = np.zeros((channels, *(1,) * source.spatial_dims), np.uint8)
    origin = source.origin and source.origin.first_slice()
    encode_image(MedicalImage(voxel, source.affine, kind=kind, origin=origin), format)


def write_image(image: MedicalImage, path: str | PathLike[str]) -> None:
    """Write `image` to `path` in the format of its suffix.

    The file appears whole or not at all: it is written under another name, then renamed.

    Raises:
        UnsupportedFormat: the suffix is unknown, or its format cannot hold this image.
        InvalidInput: the format cannot hold these values.
    """
    path = Path(path)
    codec = codec_of_path(path)
    data = encode_image(image, codec.name, compress=path.name.lower().endswith(".gz"))
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        draft.write_bytes(data)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _file_content(path: Path, limits: Limits) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(limits.max_bytes + 1)
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}") from error


save_with(write_image)
