"""One NumPy array in .npy, without geometry.

`[H, W]` is a picture, `[H, W, 3]` an RGB picture (a volume if labels are asked for), any other
`[X, Y, Z]` a volume with the identity as its affine: voxels of 1 mm, axes to Right, Anterior and
Superior. https://numpy.org/neps/nep-0001-npy-format.html
"""

from __future__ import annotations

import io
import math

import numpy as np

from caps_med.errors import InvalidInput, UnsupportedFormat
from caps_med.images.codecs.codec import Codec
from caps_med.images.codecs.streams import check_length
from caps_med.images.image import Array, Kind, MedicalImage
from caps_med.images.limits import Limits

_MAGIC = b"\x93NUMPY"
#: What is assumed of a volume; a sentence of warnings.
NO_GEOMETRY = "no geometry; voxels of 1 mm and axes to R, A, S are assumed"
_MAX_AXES = 4  # [C, X, Y, Z], or a stack [N, H, W, 3]


def decode(data: bytes, kind: Kind, limits: Limits) -> MedicalImage:
    """A picture or a volume; never unpickles."""
    array = array_of(data, limits)
    if array.ndim not in (2, 3):
        raise UnsupportedFormat(
            f"npy: [H, W], [H, W, 3] or [X, Y, Z] is read, the array has shape {array.shape}"
        )
    return _image(array, kind)


def decode_one(data: bytes, kind: Kind, limits: Limits, index: int) -> MedicalImage:
    """Picture `index` of a stack `[N, H, W]` or `[N, H, W, 3]`; 0 for a single picture."""
    number = count(data, limits)
    if not 0 <= index < number:
        raise InvalidInput(f"npy: no picture {index} in a stack of {number}")
    array = array_of(data, limits)
    return _image(array if _single(array.shape) else array[index], kind)


def count(data: bytes, limits: Limits) -> int:
    """The length N of a stack `[N, H, W]` or `[N, H, W, 3]`; 1 for `[H, W]` and `[H, W, 3]`."""
    shape, *_ = _check(data, limits)
    if len(shape) == 4 and shape[3] != 3:
        raise UnsupportedFormat(
            f"npy: a stack of pictures is [N, H, W] or [N, H, W, 3], the array has shape {shape}"
        )
    return 1 if _single(shape) else shape[0]


def _single(shape: tuple[int, ...]) -> bool:
    return len(shape) == 2 or (len(shape) == 3 and shape[2] == 3)


def array_of(data: bytes, limits: Limits) -> Array:
    """The array of a .npy file, of any shape, in native byte order and C order.

    Raises:
        UnsupportedFormat: it holds no real numbers. InvalidInput: it is truncated or corrupt.
        InputTooLarge: it is over `limits`.
    """
    shape, fortran, dtype, offset = _check(data, limits)
    raw = np.frombuffer(data, dtype, offset=offset).reshape(shape, order="F" if fortran else "C")
    array = raw.astype(dtype.newbyteorder("="), order="C")
    return array.astype(np.uint8) if dtype.kind == "b" else array


def bytes_of(array: Array) -> bytes:
    """An array as a .npy file."""
    file = io.BytesIO()
    np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)
    return file.getvalue()


def _image(array: Array, kind: Kind) -> MedicalImage:
    colour = array.ndim == 3 and array.shape[2] == 3 and kind == "image"
    array = np.ascontiguousarray(np.moveaxis(array, -1, 0)) if colour else array[None]
    flat = array.ndim == 3
    warnings = () if flat else (f"npy: {NO_GEOMETRY}",)
    return MedicalImage(array, format="npy", warnings=warnings)


def _check(data: bytes, limits: Limits) -> tuple[tuple[int, ...], bool, np.dtype[np.generic], int]:
    """Shape, whether in Fortran order, dtype, and where the values begin."""
    file = io.BytesIO(data)
    shape, fortran, dtype = _header(file)
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        raise UnsupportedFormat(
            f"npy: dtype {dtype} is not read: save real numbers of up to 64 bits"
        )
    if not 2 <= len(shape) <= _MAX_AXES or min(shape) < 1:
        raise UnsupportedFormat(
            f"npy: [H, W], [H, W, 3] or [X, Y, Z] is read, the array has shape {shape}"
        )
    offset = file.tell()
    check_length("npy", math.prod(shape) * dtype.itemsize, len(data) - offset)
    colour = len(shape) > 2 and shape[-1] == 3
    limits.check_array(shape[:-1] if colour else shape, dtype.itemsize * (3 if colour else 1))
    return shape, fortran, dtype, offset


def encode(image: MedicalImage) -> bytes:
    """`[*S]` for one channel, `[H, W, 3]` for RGB pictures, else `[C, *S]`; the dtype is kept."""
    array = image.array
    if len(array) == 1:
        array = array[0]
    elif image.spatial_dims == 2 and len(array) == 3:
        array = np.moveaxis(array, 0, -1)
    return bytes_of(array)


def _header(file: io.BytesIO) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    try:
        version = np.lib.format.read_magic(file)
        if version == (1, 0):
            return np.lib.format.read_array_header_1_0(file)
        if version == (2, 0):
            return np.lib.format.read_array_header_2_0(file)
    except Exception as error:  # NumPy's parser raises nearly every type for broken headers
        raise InvalidInput("npy: the header is cut or broken: save the array again") from error
    raise UnsupportedFormat(f"npy: version {version} is not read: save real numbers")


def _recognises(data: bytes) -> bool:
    return data.startswith(_MAGIC)


CODEC = Codec(
    "npy",
    (".npy",),
    "application/x-npy",
    _recognises,
    decode,
    encode,
    count=count,
    decode_one=decode_one,
)
