"""JPEG: grey or RGB with 8 bits. Segments: ITU-T T.81, annex B."""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np
import simplejpeg
from PIL import Image

from caps_med.errors import InvalidInput, UnsupportedFormat
from caps_med.images.codecs.codec import Codec
from caps_med.images.codecs.pictures import checked_uint8, decode_picture, plane_of, to_bytes
from caps_med.images.image import Kind, MedicalImage
from caps_med.images.limits import Limits

#: The last is that of JPEG-LS (ITU-T T.87).
_START_OF_FRAME = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC} | {0xF7}
_START_OF_SCAN = 0xDA
_SCAN, _END = b"\xff\xda", b"\xff\xd9"
#: A progressive picture has about ten scans; each is decoded over the whole picture.
_MAX_SCANS = 100
#: How libjpeg-turbo begins what it says of streams that are not damaged but not read.
_NOT_READ = ("Unsupported", "tjDecompressHeader3(): Could not determine subsampling")


def decode(data: bytes, kind: Kind, limits: Limits) -> MedicalImage:
    """A picture, never labels: JPEG blurs ids into others."""
    if kind == "labels":
        raise UnsupportedFormat(
            "JPEG: labels are not read from JPEG files, whose compression blurs ids: save them "
            "as PNG"
        )
    frame = frame_of(data)
    limits.check_array((frame.height, frame.width), frame.channels)
    check_undamaged(data)
    return decode_picture(data, "JPEG", kind, limits, frame.bits)


def encode(image: MedicalImage) -> bytes:
    """An image at quality 95, its colours at full resolution; see `checked_uint8`.

    Raises:
        UnsupportedFormat: a label map, whose ids JPEG would blur.
    """
    if image.kind == "labels":
        raise UnsupportedFormat(
            "labels cannot be written as jpeg, whose compression blurs ids: use png"
        )
    plane = np.ascontiguousarray(checked_uint8(plane_of(image, "jpeg"), "jpeg"))
    return to_bytes(Image.fromarray(plane), "JPEG", quality=95, subsampling=0)


def check_undamaged(data: bytes) -> None:
    """Reject a JPEG of which the decoder would have to invent a part.

    libjpeg fills missing or corrupt parts with grey and only warns, which neither Pillow nor
    imagecodecs pass on. Here the smallest scale is decoded, with warnings turned into errors.

    Raises:
        InvalidInput: it is damaged. UnsupportedFormat: damage cannot be detected.
    """
    try:
        simplejpeg.decode_jpeg(data, colorspace="GRAY", min_height=1, min_width=1, strict=True)
    except ValueError as error:
        if str(error).startswith(_NOT_READ):
            raise UnsupportedFormat(
                "JPEG: 8 bits are read, with colours at full, half or quarter resolution: save it "
                "as PNG or TIFF"
            ) from error
        raise _broken() from error


class Frame(NamedTuple):
    """What the header of a frame says."""

    bits: int
    height: int
    width: int
    channels: int


def frame_of(data: bytes) -> Frame:
    """The frame of a JPEG: walks the segments up to the first scan.

    Raises:
        InvalidInput: there is no frame, the file has no end, or it has over `_MAX_SCANS` scans.
    """
    position, frames = 2, set()
    while True:
        if position + 4 > len(data) or data[position] != 0xFF:
            raise _broken()
        marker = data[position + 1]
        if marker == 0xFF:  # padding
            position += 1
            continue
        length = int.from_bytes(data[position + 2 : position + 4], "big")
        if marker in _START_OF_FRAME:
            frames.add(_frame(data[position + 4 : position + 2 + length]))
        if marker == _START_OF_SCAN:
            break
        position += 2 + length
    if len(frames) != 1 or _END not in data[position:]:
        raise _broken()
    if (scans := data.count(_SCAN, position)) > _MAX_SCANS:
        raise InvalidInput(
            f"JPEG: {scans} scans, but at most {_MAX_SCANS} are allowed: save the picture again"
        )
    return frames.pop()


def _frame(body: bytes) -> Frame:
    if len(body) < 6:
        raise InvalidInput("JPEG: the frame header is cut: copy the file again")
    frame = Frame(*struct.unpack_from(">BHHB", body))
    if 0 in frame:
        raise InvalidInput(
            f"JPEG: invalid picture: {frame.height} x {frame.width} pixels, "
            f"{frame.channels} channels"
        )
    return frame


def _broken() -> InvalidInput:
    return InvalidInput("JPEG: the file is cut or broken: copy it again")


def _recognises(data: bytes) -> bool:
    return data.startswith(b"\xff\xd8\xff")


CODEC = Codec("jpeg", (".jpg", ".jpeg"), "image/jpeg", _recognises, decode, encode)
