"""Files that attackers and others send; a theme's own ones are built beside its cases."""

from __future__ import annotations

import gzip
import io
import struct
import zlib

import nibabel as nib
import numpy as np
from PIL import Image


def small_picture() -> bytes:
    """The good request."""
    return noise_png(64, 64)


def noise_png(width: int, height: int) -> bytes:
    """A PNG whose features do not compress."""
    pixels = np.random.default_rng(7).integers(0, 255, (height, width), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return file.getvalue()


def grey_png(width: int, height: int, pixels: bytes) -> bytes:
    """A grey PNG with these bytes as its rows."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        checksum = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    content = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(pixels, 9))
    return b"\x89PNG\r\n\x1a\n" + content + chunk(b"IEND", b"")


def black_png(width: int, height: int) -> bytes:
    """A PNG that is a thousandth of its pixels."""
    return grey_png(width, height, bytes((width + 1) * height))


def black_nifti(*shape: int) -> bytes:
    """A compressed NIfTI of zeros."""
    header = nib.Nifti1Image(np.zeros((1, 1, 1), np.uint8), np.eye(4)).header
    header.set_data_shape(shape)
    header.set_slope_inter(1, 0)
    size = int(np.prod(shape))
    return gzip.compress(header.binaryblock + bytes(4 + size), 9)
