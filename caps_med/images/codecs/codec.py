"""The definition of a format: how its content is recognised, read and written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from caps_med.errors import UnsupportedFormat
from caps_med.images.image import Array, Kind, MedicalImage
from caps_med.images.limits import Limits


@dataclass(frozen=True)
class Codec:
    """One format. Its file defines `CODEC`; the registry lists it.

    Attributes:
        name: the value of `MedicalImage.format`.
        suffixes: of file names, lower case, the usual one first.
        only_read: suffixes of file names that are read, but not written.
        media_type: of the encoded bytes, as `encode_image` returns them.
        recognises: whether bytes begin like this format.
        decode: bytes to an image of kind "image"; the requested kind only says whether palette
            indices and ids are wanted, or colours. Checks every bound first.
        encode: an image, or a label map of the smallest unsigned dtype, to bytes.
        gzipped: whether the encoded bytes are gzipped unless the file name says otherwise.
        count: the number of pictures in a stack; None if a file is always one image.
        decode_one: one picture of such a stack.
        decode_series: for a format whose files may hold several series, the one with an identifier;
            one of its volumes if there are several.
        detached: for a format whose header may be in a separate file, from its content: the name
            of the file that holds the voxels, empty if it is named like that of the header; None if
            the voxels follow the header.
        attached: for such a format, from header and voxels: the content of a single file of both.
        beside: for such a format, by the suffix of a header: the suffixes of files beside it that
            may hold the voxels.
        most_labels: how many labels a label map of it may have beside the background; None for any.
    """

    name: str
    suffixes: tuple[str, ...]
    media_type: str
    recognises: Callable[[bytes], bool]
    decode: Callable[[bytes, Kind, Limits], MedicalImage]
    encode: Callable[[MedicalImage], bytes]
    only_read: tuple[str, ...] = ()
    gzipped: bool = False
    count: Callable[[bytes, Limits], int] | None = None
    decode_one: Callable[[bytes, Kind, Limits, int], MedicalImage] | None = None
    decode_series: Callable[[bytes, Kind, Limits, str, int | None], MedicalImage] | None = None
    detached: Callable[[bytes], str | None] | None = None
    attached: Callable[[bytes, bytes], bytes] | None = None
    beside: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    most_labels: int | None = None

    @property
    def read_suffixes(self) -> tuple[str, ...]:
        """The suffixes of file names that are read."""
        return self.suffixes + self.only_read

    def check_labels(self, count: int) -> None:
        """Raise `UnsupportedFormat` if a label map has too many labels beside the background."""
        if self.most_labels is not None:
            check_labels(self.name, count, self.most_labels)


def check_labels(format: str, count: int, most: int) -> None:
    """Raise `UnsupportedFormat` for more labels than `most` beside the background."""
    if count > most:
        raise UnsupportedFormat(
            f"{format}: a label map of {count} labels is not written, {most} are the most: write "
            "nifti or nrrd instead"
        )


def with_common_dtype(array: Array) -> Array:
    """`array` in a dtype that formats support: booleans as uint8, floats with 32 or 64 bits."""
    known = {
        np.dtype(np.bool_): np.uint8,
        np.dtype(np.float16): np.float32,
        np.dtype(np.longdouble): np.float64,
    }
    return array.astype(known.get(array.dtype, array.dtype), copy=False)
