"""Read and write `MedicalImage` in any of the formats."""

from __future__ import annotations

import gzip
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import TypeAlias, get_args

import numpy as np

from caps_med.arguments import whole_number
from caps_med.drafts import check_place, write_whole
from caps_med.errors import InvalidInput, InvalidParameter, NotFinite, UnsupportedFormat
from caps_med.images.channels import chosen_volume, stack_channels
from caps_med.images.codecs import dicom_layout, zipped
from caps_med.images.codecs.codec import Codec
from caps_med.images.codecs.registry import (
    CODECS,
    codec_of_content,
    codec_of_name,
    codec_of_path,
    headers_beside,
    names_beside,
    voxels_named,
)
from caps_med.images.image import Kind, MedicalImage, save_with
from caps_med.images.labels import as_labels, smallest_unsigned
from caps_med.images.limits import DEFAULT_LIMITS, Limits
from caps_med.images.normalization import to_uint8
from caps_med.images.objects import from_object, is_dataset, is_pair
from caps_med.images.reading import file_content, readable

_LARGEST = float(np.finfo(np.float32).max)
_GZIP_LEVEL = 6
#: Every format shows within so many bytes what it is.
_MAGIC_BYTES = 2**10
# Formats of pictures that everyone can look at.
_EIGHT_BITS = ("png", "jpeg", "tiff", "bmp")


#: A path, the content of a file, an image in memory (see `from_object`), or a list of those: its
#: channels, or the files of a DICOM series.
ImageSource: TypeAlias = object


def read_image(
    source: ImageSource,
    *,
    kind: Kind = "image",
    limits: Limits = DEFAULT_LIMITS,
    index: int | None = None,
    series: str | None = None,
) -> MedicalImage:
    """An image or a label map from a file, from bytes or from another library's image.

    Args:
        source: a path, an open file, or the content itself, from which its format is detected; for
            a DICOM series its folder, or a list of its files, their contents or pydicom data sets;
            an image in memory, see `from_object`; or a list or tuple of
            such images, which are the channels of one, see `read_channels`.
        kind: "labels" keeps palette indices and checks that all values are ids.
        limits: bounds that are checked against the headers, before anything is decoded.
        index: the picture to read from a stack (multi-page TIFF, npy `[N, H, W]`, DICOM frames
            without a position), or the volume to read from a DICOM series that holds several
            (echoes, time points, diffusion weightings), a 4-D NIfTI or such an image in memory;
            None for the whole as one image.
        series: the Series Instance UID to read from a folder, zip or list of DICOM files.

    Returns:
        A picture `[C, H, W]` (C = 3: colours) or a volume `[C, X, Y, Z]` in the file's voxel
        order. Labels have one channel and the smallest unsigned dtype.

    Raises:
        UnsupportedFormat: an unknown format, or an unsupported feature of a known one.
        InputTooLarge: over `limits`.
        InvalidInput: truncated, corrupt, or not finite in float32; no such picture in a stack; or
            the images of a list lie on different grids.
        SeveralSeries, SeveralVolumes: there are several, and none was chosen; the message lists
            them.
        InvalidParameter: `kind` is neither "image" nor "labels", or `index` is not whole.
    """
    if kind not in get_args(Kind):
        raise InvalidParameter(f"kind={kind!r}: must be {' or '.join(map(repr, get_args(Kind)))}")
    number = None if index is None else whole_number("index", index)
    image = _read(source, kind, limits, number, series)
    _check_numbers(image)
    return as_labels(image) if kind == "labels" else image


@readable()
def _read(
    source: ImageSource, kind: Kind, limits: Limits, index: int | None, series: str | None
) -> MedicalImage:
    """See `read_image`; intensities are not checked."""
    if isinstance(source, str) and not source:  # which Path takes for the current folder
        raise InvalidInput("the path of the image is empty: give a file, or the folder of a series")
    if isinstance(source, (str, PathLike, bytes)):
        return _decoded(source, kind, limits, index, series)
    if is_dataset(source):
        from caps_med.images.codecs.dicom_series import dicom_content

        return _decoded(dicom_content(source), kind, limits, index, series)
    if callable(read := getattr(source, "read", None)):
        return _decoded(_read_all(read, limits), kind, limits, index, series)
    if isinstance(source, list | tuple) and not is_pair(source):
        return _listed(source, kind, limits, index, series)
    if series is not None:
        raise InvalidInput("series: an image in memory contains no DICOM series; leave series out")
    image = source if isinstance(source, MedicalImage) else from_object(source, kind)
    return image if index is None else chosen_volume(image, index)


def _check_numbers(image: MedicalImage) -> None:
    low, high = float(image.array.min()), float(image.array.max())
    if not (math.isfinite(low) and math.isfinite(high)):
        raise NotFinite(
            "the image holds NaN or infinity: replace them, as with "
            "numpy.nan_to_num(array, posinf=0, neginf=0), and save it again"
        )
    if max(-low, high) > _LARGEST:
        raise NotFinite(
            f"the image holds numbers beyond float32, {low:g} to {high:g}: divide all by one "
            "number and save it again"
        )


def read_channels(
    sources: Sequence[ImageSource], *, limits: Limits = DEFAULT_LIMITS
) -> MedicalImage:
    """Read one image whose channels lie in several files or images, in that order.

    >>> import numpy as np
    >>> flair, t1 = ((np.full((4, 5, 6), value), np.eye(4)) for value in (1, 2))
    >>> read_channels([flair, t1]).array.shape
    (2, 4, 5, 6)

    Args:
        sources: each anything that `read_image` accepts; a DICOM series as its folder.
        limits: for each image, and for all together.

    Returns:
        `[C, *S]` with the geometry of the first; its dtype holds the values of all.

    Raises:
        The same as `read_image`. InvalidInput: one differs from the first in size or affine; the
            message names it.
    """
    images: list[MedicalImage] = []
    for source in sources:
        images.append(image := read_image(source, limits=limits))
        held = sum(one.array.nbytes for one in images)
        limits.check_array(image.spatial_shape, held // math.prod(image.spatial_shape))
    return stack_channels(images, [_called(*each) for each in enumerate(sources, start=1)])


@readable()
def channels_listed(source: ImageSource) -> int:
    """How many images a list gives as channels of one; 1 for anything else, such as a series.

    Raises:
        InvalidInput: DICOM files among images of other formats.
    """
    if not isinstance(source, list | tuple) or is_pair(source):
        return 1
    contents = (isinstance(one, bytes) and dicom_layout.recognises(one) for one in source)
    series = all(map(is_dataset, source)) or any(contents) or _dicom_files(source)
    return 1 if series else len(source)


def _listed(
    sources: Sequence[ImageSource],
    kind: Kind,
    limits: Limits,
    index: int | None,
    series: str | None,
) -> MedicalImage:
    """The image given by a list: a DICOM series from its files, or channels."""
    if contents := _dicom_contents(sources):
        from caps_med.images.codecs.dicom_series import read_contents

        return read_contents(contents, limits, kind=kind, series=series, index=index)
    if files := _dicom_files(sources):
        from caps_med.images.codecs.dicom_series import read_files

        return read_files(files, limits, kind=kind, series=series, index=index)
    if len(sources) == 1:
        return read_image(sources[0], kind=kind, limits=limits, index=index, series=series)
    if series is not None or index is not None:
        raise InvalidInput(
            f"a series or volume cannot be chosen for {len(sources)} channels at once: read each "
            "channel with its own choice, and give the images"
        )
    if kind == "image":
        return read_channels(sources, limits=limits)
    raise InvalidInput(
        f"a label map is a single image, got a list of {len(sources)}: give one of them"
    )


def _dicom_contents(sources: Sequence[ImageSource]) -> list[bytes]:
    """The file contents of a DICOM series, if all are pydicom data sets or contents."""
    found = []
    for source in sources:
        if is_dataset(source):
            from caps_med.images.codecs.dicom_series import dicom_content

            found.append(dicom_content(source))
        elif isinstance(source, bytes) and dicom_layout.recognises(source):
            found.append(source)
        else:
            return []
    return found


def _read_all(read: Callable[[int], object], limits: Limits) -> bytes:
    """The content of an open file."""
    content = read(limits.max_bytes + 1)
    if not isinstance(content, bytes):
        raise InvalidInput("the file is open as text: open it with mode 'rb'")
    return content


def _called(number: int, source: ImageSource) -> str:
    """A source in messages: its file name, or its number."""
    return Path(source).name if isinstance(source, str | PathLike) else f"image {number}"


def _dicom_files(sources: Sequence[ImageSource]) -> list[Path]:
    """The files, if they are those of a DICOM series; empty if they are channels.

    Raises:
        InvalidInput: DICOM files among images of other formats, or among other objects.
    """
    files = [Path(s) for s in sources if isinstance(s, str | PathLike) and Path(s).is_file()]
    starts = {path: _file_start(path) for path in files}
    dicom = [path for path in files if dicom_layout.recognises(starts[path])]
    if not dicom:
        return []
    for number, source in enumerate(sources, start=1):
        path = Path(source) if isinstance(source, str | PathLike) else Path()
        if not path.exists():
            raise InvalidInput(f"cannot read {path}: there is no such file")
        if path in dicom:
            continue
        if path not in starts or any(one.recognises(starts[path]) for one in CODECS.values()):
            raise InvalidInput(
                f"the list holds DICOM files ({dicom[0].name}) and others "
                f"({_called(number, source)}): give the slices of one series, or for channels the "
                "folder of each series"
            )
    return files


@readable()
def count_pictures(source: str | PathLike[str] | bytes, *, limits: Limits = DEFAULT_LIMITS) -> int:
    """The number of pictures that `read_image` can select by `index`: 1 unless it is a stack.

    Raises:
        UnsupportedFormat, InputTooLarge, InvalidInput: as for `read_image`.
    """
    if not isinstance(source, bytes) and Path(source).is_dir():
        return 1
    data, codec = _content(source, limits)
    return 1 if codec.count is None else codec.count(data, limits)


def _decoded(
    source: str | PathLike[str] | bytes,
    kind: Kind,
    limits: Limits,
    index: int | None,
    series: str | None,
) -> MedicalImage:
    if not isinstance(source, bytes) and Path(source).is_dir():
        from caps_med.images.codecs.dicom_series import read_series

        return read_series(Path(source), limits, kind=kind, series=series, index=index)
    data, codec = _content(source, limits)
    if series is not None:
        if codec.decode_series is None:
            raise InvalidInput(f"{codec.name}: the file contains no DICOM series; leave series out")
        return codec.decode_series(data, kind, limits, series, index)
    if index is None:
        return codec.decode(data, kind, limits)
    if codec.decode_one is not None:
        return codec.decode_one(data, kind, limits, index)
    return chosen_volume(codec.decode(data, kind, limits), index)


def _content(source: str | PathLike[str] | bytes, limits: Limits) -> tuple[bytes, Codec]:
    """The content of one file, and its format; for a zip with one image, those of the image."""
    data = source if isinstance(source, bytes) else file_content(Path(source), limits)
    limits.check_file(len(data))
    content = zipped.unpacked(data, limits)
    try:
        codec = codec_of_content(content)
    except UnsupportedFormat as error:
        if alone := _without_header(source):
            raise alone from error
        raise
    if content is not data or isinstance(source, bytes):  # there is nothing beside it
        return content, codec
    named = codec.detached(content) if codec.detached else None
    if named is not None and codec.attached:
        content = codec.attached(content, _voxels_beside(Path(source), named, codec, limits))
        limits.check_file(len(content))
    return content, codec


def _without_header(source: str | PathLike[str] | bytes) -> UnsupportedFormat | None:
    """The error for a file that holds only the voxels of a header beside it."""
    path = Path() if isinstance(source, bytes) else Path(source)
    headers = (path.with_name(name) for name in headers_beside(path.name))
    header = next((one for one in headers if one.exists()), None)
    if header is None:
        return None
    return UnsupportedFormat(f"{path.name} holds the voxels of {header.name} alone: give {header}")


def _voxels_beside(path: Path, named: str, codec: Codec, limits: Limits) -> bytes:
    """The voxels of a detached header: those of `x.mhd` are in `x.raw` or `x.zraw` in the same
    folder, as ITK writes them.

    Args:
        named: the file that the header names, in capitals or lower case; empty for the first of
            these that exists.

    Raises:
        InvalidInput: the header names any other file, or that file cannot be read or is a link out
            of the folder.
    """
    read = names_beside(path.name) or [path.stem + end for end in chain(*codec.beside.values())]
    if not (allowed := voxels_named(named, read)):
        raise InvalidInput(
            f"{path.name}: its voxels lie in another file than {' or '.join(read)} beside it, "
            "which is not opened: use this name in the header, too, or save both as one "
            f"{codec.suffixes[0]} file"
        )
    paths = [path.with_name(name) for name in allowed]
    beside = next((one for one in paths if one.exists()), paths[0])
    inside = beside.resolve().is_relative_to(path.parent.resolve())
    if not inside and not path.is_symlink():  # of a folder of links both are some
        raise InvalidInput(
            f"{beside}, the voxels of {path.name}, is a link to another folder, which is "
            "not followed: copy the file itself"
        )
    return file_content(beside, limits, f"{beside}, the voxels of {path.name}")


def encode_image(image: MedicalImage, format: str, *, compress: bool | None = None) -> bytes:
    """The content of a file of `format`: "nifti", "nrrd", "metaimage", "png", "jpeg", "tiff",
    "bmp", "npy", "npz", or "dicom" (DICOM SEG, only for label maps of DICOM slices).

    Args:
        image: an image or a label map, written as converted by `as_written`.
        format: a name in `FORMATS`; `image.format` keeps the format that was read.
        compress: whether to compress it with gzip; by default only NIfTI is (.nii.gz).

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
    """Convert an image to the values that are written to its file.

    The ids of a label map get the smallest unsigned dtype that holds them. Floats that lie in
    [0, 1] by definition become 0 to 255 in an image whose source is a PNG, JPEG, TIFF or BMP.

    Raises:
        InvalidInput: ids are negative or too large.
    """
    if image.kind == "labels":
        return image.with_array(smallest_unsigned(image.array))
    picture = image.spatial_dims == 2 and image.format in _EIGHT_BITS
    if picture and image.unit_range and image.array.dtype.kind == "f":
        return image.with_array(to_uint8(image.array))
    return image


def check_writable(
    source: MedicalImage,
    kind: Kind,
    channels: int,
    format: str,
    *,
    colours: bool = True,
    labels: int = 0,
) -> None:
    """Check that `format` can hold an answer to `source` by encoding one voxel.

    Args:
        source: the image to which the answer will belong.
        kind, channels: of the answer.
        colours: whether three channels of a picture are colours; False for probabilities.
        labels: how many labels it may have beside the background, if that is known.

    Raises:
        UnsupportedFormat, InvalidInput: it cannot, see `encode_image`.
    """
    codec_of_name(format).check_labels(labels)
    dtype = np.uint8 if colours else np.float32
    voxel = np.zeros((channels, *(1,) * source.spatial_dims), dtype)
    origin = source.origin and source.origin.first_slice()
    encode_image(MedicalImage(voxel, source.affine, kind=kind, origin=origin), format)


def writable_format(source: MedicalImage, kind: Kind, channels: int) -> str:
    """The first format offered for an answer to `source` that can hold it.

    TIFF, for example, cannot hold one slice of a volume, because its position would be lost.

    Args:
        source, kind, channels: as for `check_writable`.
    """
    formats = source.formats_of(kind)
    for format in formats:
        with suppress(UnsupportedFormat):
            check_writable(source, kind, channels, format)
            return format
    return formats[-1]


def write_image(image: MedicalImage, path: str | PathLike[str]) -> None:
    """Write `image` to `path` in the format of its suffix.

    The file appears whole or not at all: it is written under another name, then renamed.

    Raises:
        UnsupportedFormat: the suffix is unknown, or its format cannot hold this image.
        InvalidInput: the format cannot hold these values.
        InvalidParameter: its folder does not exist, it is a folder, or no file can have this name.
    """
    path = Path(path)
    codec = codec_of_path(path)
    check_place(path)
    data = encode_image(image, codec.name, compress=path.name.lower().endswith(".gz"))
    write_whole(path, data)


def _file_start(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_MAGIC_BYTES)


save_with(write_image)
