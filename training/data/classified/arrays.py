"""Arrays with many pictures in one file: IDX files of MNIST, MedMNIST's npz, NORB's matrices."""

from __future__ import annotations

import functools
import gzip
import io
import math
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from caps_med.errors import CapsMedError, InputTooLarge, InvalidInput
from caps_med.images import MedicalImage
from training.data.cases import FileRef
from training.data.stacks import LIMITS

#: Third byte of an IDX file -> the type of its numbers (Y. LeCun's description of MNIST).
_IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
#: First four bytes of a binary matrix of NORB -> the type of its numbers.
_NORB_TYPES = {
    0x1E3D4C51: "<f4", 0x1E3D4C53: "<f8", 0x1E3D4C54: "<i4", 0x1E3D4C55: "<u1", 0x1E3D4C56: "<i2",
}  # fmt: skip
#: NORB's headers name at least so many sizes, whatever the number of axes; no matrix has more than
#: `_MOST_AXES`.
_NORB_SIZES, _MOST_AXES = 3, 8
_COLOURS = (1, 3)
_CHUNK = 2**24
_BROKEN = (OSError, EOFError, ValueError, zlib.error, zipfile.BadZipFile, RuntimeError)

Array = NDArray[Any]


@dataclass(frozen=True)
class ArrayRef(FileRef):
    """One picture in an array.

    Attributes:
        array: the array's name in an npz file; empty for IDX.
    """

    array: str = ""

    def __str__(self) -> str:
        """The file's name with the picture's index."""
        return f"{self.path.name}:{self.array}[{self.index}]" if self.array else super().__str__()


def read_array(path: Path, array: str = "") -> Array:
    """The array of an IDX file or a matrix of NORB, gzipped or not; or one in an npz file.

    Args:
        array: its name in an npz file; empty for other files.

    Raises:
        InvalidInput: the file is truncated or corrupt, or over the limits of local files.
    """
    try:
        stat = path.stat()
        return _read(path, array, stat.st_mtime_ns, stat.st_size)
    except CapsMedError:
        raise
    except _BROKEN as error:
        raise InvalidInput(f"{path.name}: truncated or corrupt: save or copy it again") from error


def read_picture(reference: ArrayRef) -> MedicalImage:
    """One picture ``[C, H, W]`` of an array ``[N, H, W]``, ``[N, H, W, C]`` or ``[N, C, H, W]``.

    Raises:
        InvalidInput: the array cannot be read or holds no pictures.
    """
    stack = read_array(reference.path, reference.array)
    plane = np.asarray(stack[reference.index])
    if plane.dtype.kind == "b":
        plane = plane.astype(np.uint8)
    if plane.ndim == 2:
        plane = plane[None]
    elif plane.ndim == 3 and plane.shape[0] not in _COLOURS and plane.shape[-1] in _COLOURS:
        plane = np.moveaxis(plane, -1, 0)
    if plane.ndim != 3:
        raise InvalidInput(f"{reference}: pictures [H, W] or [H, W, C] are needed, not volumes")
    return MedicalImage(np.ascontiguousarray(plane), format="png")


def names_in(path: Path) -> set[str]:
    """Names of the arrays in an npz file; none if it is not one."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {n.removesuffix(".npy") for n in archive.namelist() if n.endswith(".npy")}
    except (OSError, ValueError, zipfile.BadZipFile):
        return set()


@functools.lru_cache(maxsize=8)
def _read(path: Path, array: str, modified: int, size: int) -> Array:
    """Kept while the file is unchanged, which `modified` and `size` tell."""
    if array:
        return _npz_array(path, array)
    zipped = path.name.lower().endswith(".gz")
    with gzip.open(path) if zipped else path.open("rb") as file:
        matrix = path.name.lower().removesuffix(".gz").endswith(".mat")
        parse = _norb_array if matrix else _idx_array
        return parse(path, cast(BinaryIO, file))


def _idx_array(path: Path, file: BinaryIO) -> Array:
    magic = file.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in _IDX_TYPES or not magic[3]:
        raise InvalidInput(f"{path.name}: not an IDX file")
    dtype = np.dtype(_IDX_TYPES[magic[2]])
    shape = tuple(int(n) for n in np.frombuffer(file.read(4 * magic[3]), ">u4"))
    LIMITS.check_array(shape, dtype.itemsize)
    content = _exactly(file, math.prod(shape) * dtype.itemsize)
    return np.frombuffer(content, dtype).reshape(shape).astype(dtype.newbyteorder("="), copy=False)


def _norb_array(path: Path, file: BinaryIO) -> Array:
    """Magic number, number of axes, at least three sizes, then the numbers; all little-endian."""
    magic, axes = np.frombuffer(_exactly(file, 8), "<u4").tolist()
    if magic not in _NORB_TYPES or not 0 < axes <= _MOST_AXES:
        raise InvalidInput(f"{path.name}: not a binary matrix of NORB")
    sizes = np.frombuffer(_exactly(file, 4 * max(axes, _NORB_SIZES)), "<u4")
    shape, dtype = tuple(sizes[:axes].tolist()), np.dtype(_NORB_TYPES[magic])
    LIMITS.check_array(shape, dtype.itemsize)
    content = _exactly(file, math.prod(shape) * dtype.itemsize)
    return np.frombuffer(content, dtype).reshape(shape).astype(dtype.newbyteorder("="), copy=False)


def _npz_array(path: Path, array: str) -> Array:
    with zipfile.ZipFile(path) as archive:
        entry = archive.getinfo(f"{array}.npy")
        if entry.file_size > LIMITS.max_inflated_bytes:
            raise InputTooLarge(
                f"{path.name}: {array} takes {entry.file_size} bytes, allowed are "
                f"{LIMITS.max_inflated_bytes}: split the file"
            )
        with archive.open(entry) as file:
            content = _exactly(cast(BinaryIO, file), entry.file_size)
    found: Array = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
    return found


def _exactly(file: BinaryIO, size: int) -> bytearray:
    """`size` bytes, read in pieces: a header may promise more than there is."""
    content = bytearray()
    while len(content) < size:
        piece = file.read(min(_CHUNK, size - len(content)))
        if not piece:
            raise EOFError
        content += piece
    return content
