"""Compressed frames of a DICOM file: JPEG, lossless JPEG, JPEG-LS and JPEG 2000.

libjpeg-turbo, CharLS and OpenJPEG decode them (imagecodecs); 8-bit JPEG is decoded by Pillow. The
size that a frame declares is first compared with that in the file's header, by which the memory was
bounded.
"""

from __future__ import annotations

import struct

import imagecodecs
import numpy as np
from pydicom.dataset import FileDataset
from pydicom.encaps import generate_frames
from pydicom.pixels.processing import convert_color_space
from pydicom.pixels.utils import pixel_array

from caps_med.errors import InvalidInput
from caps_med.images.codecs import dicom_layout as layouts
from caps_med.images.codecs import jpeg
from caps_med.images.image import Array

_CONVERTED = ("YBR_FULL", "YBR_FULL_422")
_SIZ = b"\xff\x4f\xff\x51"


def decode(header: FileDataset, syntax: str, shape: tuple[int, int, int, int]) -> Array:
    """All frames `[F, H, W]` or `[F, H, W, 3]` in RGB.

    Args:
        shape: (frames, rows, columns, channels) that the header promises.

    Raises:
        InvalidInput: a frame is damaged, or its size differs from the header.
    """
    count, *size = shape
    frames = list(generate_frames(header.PixelData, number_of_frames=count))
    if len(frames) != count:
        raise InvalidInput(f"DICOM: {len(frames)} compressed frames, the header describes {count}")
    for frame in frames:
        if _size_of(frame, syntax) != tuple(size):
            raise InvalidInput("DICOM: a compressed frame has another size than the header says")
    if _has_8_bits(frames, syntax):
        for frame in frames:  # of damaged ones the decoder would fill a part with grey
            jpeg.check_undamaged(frame)
        return np.asarray(pixel_array(header, decoding_plugin="pillow"))
    decoded = np.stack([_decoded(frame, syntax, shape[3]) for frame in frames])
    decoded = _signed(header, decoded)
    if shape[3] == 3 and header.PhotometricInterpretation in _CONVERTED:
        return np.asarray(convert_color_space(decoded, "YBR_FULL", "RGB"))
    return decoded


def _has_8_bits(frames: list[bytes], syntax: str) -> bool:
    if syntax not in (layouts.JPEG, layouts.JPEG_EXTENDED):
        return False
    return syntax == layouts.JPEG or all(jpeg.frame_of(frame).bits == 8 for frame in frames)


def _size_of(frame: bytes, syntax: str) -> tuple[int, int, int]:
    """(rows, columns, channels) from the beginning of a codestream."""
    if syntax in layouts.JPEG_2000:
        return _jpeg_2000_size(frame)
    found = jpeg.frame_of(frame)
    return found.height, found.width, found.channels


def _jpeg_2000_size(frame: bytes) -> tuple[int, int, int]:
    """From the SIZ marker segment: ITU-T T.800, A.5.1."""
    at = frame.find(_SIZ)
    if at < 0 or at + 42 > len(frame):
        raise InvalidInput("DICOM: a JPEG 2000 frame is cut or broken")
    right, bottom, left, top = struct.unpack_from(">4I", frame, at + 8)
    (channels,) = struct.unpack_from(">H", frame, at + 40)
    return bottom - top, right - left, channels


def _decoded(frame: bytes, syntax: str, channels: int) -> Array:
    if syntax in layouts.JPEG_2000:
        return np.asarray(imagecodecs.jpeg2k_decode(frame))
    if syntax in layouts.JPEG_LS:
        return np.asarray(imagecodecs.jpegls_decode(frame))
    space = "RGB" if channels == 3 else None  # the colours as they are stored
    return np.asarray(imagecodecs.jpeg8_decode(frame, colorspace=space, outcolorspace=space))


def _signed(header: FileDataset, array: Array) -> Array:
    """The same bits as signed numbers if the header says so: codestreams may not."""
    wanted = "i" if header.PixelRepresentation == 1 else "u"
    return array if array.dtype.kind == wanted else array.view(f"{wanted}{array.itemsize}")
