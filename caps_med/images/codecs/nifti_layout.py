"""The header of a NIfTI file checked in plain Python, before a library sees it.

Field offsets: nifti1.h (2007) and nifti2.h (2011), https://nifti.nimh.nih.gov.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

import numpy as np

from caps_med.errors import InvalidInput, UnsupportedFormat

# A gzip header may carry a file name before the data: the NIfTI header lies within this much.
PEEK = 2**17
#: The longer of the two headers.
LONGEST = 544

_HEADER_SIZES = {348: 1, 540: 2}
_MAGICS = {1: b"n+1\0", 2: b"n+2\0\r\n\x1a\n"}
_DTYPES = {
    2: "u1", 4: "i2", 8: "i4", 16: "f4", 64: "f8", 256: "i1", 512: "u2", 768: "u4", 1024: "i8",
    1280: "u8",
}  # fmt: skip
_NOT_NUMBERS = {32: "complex", 128: "RGB", 1792: "complex", 2048: "complex", 2304: "RGBA"}


@dataclass(frozen=True)
class NiftiLayout:
    """Where the voxels lie: `shape` [X, Y, Z] of `dtype` (byte order included) from `offset`."""

    version: int
    header_size: int
    shape: tuple[int, int, int]
    dtype: np.dtype[np.generic]
    offset: int

    @property
    def end(self) -> int:
        """The length of a file with these voxels."""
        return self.offset + math.prod(self.shape) * self.dtype.itemsize


def recognises(data: bytes) -> bool:
    """Whether `data` begins like a NIfTI header, of a pair or Analyze file included."""
    return data[:4] in {struct.pack(f"{o}i", size) for o in "<>" for size in _HEADER_SIZES}


def read_layout(data: bytes) -> NiftiLayout:
    """The layout that the header at the start of `data` describes.

    Raises:
        UnsupportedFormat: a detached header, Analyze or 4-D.
        InvalidInput: a field that cannot be, or voxels that are no real numbers.
    """
    order = "<" if data[0] else ">"
    size = struct.unpack_from(f"{order}i", data)[0]
    version = _HEADER_SIZES[size]
    if len(data) < size:
        raise InvalidInput(f"NIfTI: {len(data)} bytes are no whole header of {size}")
    _check_magic(data, version)
    if version == 1:
        dims = struct.unpack_from(f"{order}8h", data, 40)
        code = struct.unpack_from(f"{order}h", data, 70)[0]
        offset = struct.unpack_from(f"{order}f", data, 108)[0]
    else:
        code = struct.unpack_from(f"{order}h", data, 12)[0]
        dims = struct.unpack_from(f"{order}8q", data, 16)
        offset = struct.unpack_from(f"{order}q", data, 168)[0]
    return NiftiLayout(
        version=version,
        header_size=size,
        shape=_spatial_shape(dims),
        dtype=_dtype(code).newbyteorder("<" if order == "<" else ">"),
        offset=_voxel_offset(offset, size + 4),
    )


def _check_magic(data: bytes, version: int) -> None:
    at = 344 if version == 1 else 4
    magic = data[at : at + len(_MAGICS[version])]
    if magic.startswith((b"ni1", b"ni2")):
        raise UnsupportedFormat("NIfTI: voxels in a detached .img file; save it as one .nii file")
    if magic != _MAGICS[version]:
        raise UnsupportedFormat("Analyze 7.5 has no orientation; convert it to NIfTI")


def _spatial_shape(dims: tuple[int, ...]) -> tuple[int, int, int]:
    sizes = list(dims[1 : dims[0] + 1])
    if not 2 <= dims[0] <= 7 or min(sizes) < 1:
        raise InvalidInput(f"NIfTI: dim must be 2 to 7 sizes of at least 1, got {list(dims)}")
    while len(sizes) > 3 and sizes[-1] == 1:
        sizes.pop()
    if len(sizes) > 3:
        raise UnsupportedFormat(
            f"NIfTI: one volume [X, Y, Z] is read, this file has {sizes}: split its time points "
            "or channels into files"
        )
    x, y, z = [*sizes, 1][:3]
    return x, y, z


def _dtype(code: int) -> np.dtype[np.generic]:
    if code not in _DTYPES:
        raise InvalidInput(
            f"NIfTI: datatype {code} ({_NOT_NUMBERS.get(code, 'unknown')}) is not read: save it as "
            "integers or floats of up to 64 bits"
        )
    return np.dtype(_DTYPES[code])


def _voxel_offset(offset: float, least: int) -> int:
    if offset == 0:
        return least
    if not math.isfinite(offset) or offset != int(offset) or offset < least:
        raise InvalidInput(f"NIfTI: vox_offset must be at least {least}, got {offset}")
    return int(offset)
