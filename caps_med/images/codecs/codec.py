"""What a format is: how its content looks, how it is read, how it is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from caps_med.images.image import Kind, MedicalImage
from caps_med.images.limits import Limits


@dataclass(frozen=True)
class Codec:
    """One format. Its file defines `CODEC`; the registry lists it.

    Attributes:
        name: the value of `MedicalImage.format`.
        suffixes: of file names, lower case, the usual one first.
        media_type: of the encoded bytes, as `encode_image` gives them.
        recognises: whether bytes begin like this format.
        decode: bytes to an image of kind "image", whatever the kind asked for: that only says
            whether palette indices and ids are wanted or colours. Checks every bound first.
        encode: an image, or a label map of the smallest unsigned dtype, to bytes.
        gzipped: whether the encoded bytes are put into gzip unless the file name says otherwise.
        count: how many pictures of one size lie behind each other in a stack; None where a file
            is always one image.
        decode_one: one picture of such a stack.
    """

    name: str
    suffixes: tuple[str, ...]
    media_type: str
    recognises: Callable[[bytes], bool]
    decode: Callable[[bytes, Kind, Limits], MedicalImage]
    encode: Callable[[MedicalImage], bytes]
    gzipped: bool = False
    count: Callable[[bytes, Limits], int] | None = None
    decode_one: Callable[[bytes, Kind, Limits, int], MedicalImage] | None = None
