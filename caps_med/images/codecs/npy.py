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
from caps_med.images.image import Kind, MedicalImage
from caps_med.images.limits import Limits

_MAGIC = b"\x93NUMPY"


def decode(data: bytes, kind: Kind, limits: Limits) -> MedicalImage:
    """A picture or a volume; never unpickles."""
    file = io.BytesIO(data)
    shape, fortran, dtype = _header(file)
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        raise UnsupportedFormat(f"npy: dtype {dtype} is not read: save real numbers of 64 bits")
    if len(shape) not in (2, 3) or min(shape) < 1:
        raise UnsupportedFormat(
            f"npy: [H, W], [H, W, 3] or [X, Y, Z] is read, the array has shape {shape}"
        )
    offset = file.tell()
    if len(data) - offset != math.prod(shape) * dtype.itemsize:
        raise InvalidInput(
            f"npy: the header describes {math.prod(shape) * dtype.itemsize} bytes, the file has "
            f"{len(data) - offset}: it is cut or its header wrong"
        )
    colour = len(shape) == 3 and shape[2] == 3 and kind == "image"
    limits.check_array(shape[:2] if colour else shape, dtype.itemsize * (3 if colour else 1))
    raw = np.frombuffer(data, dtype, offset=offset).reshape(shape, order="F" if fortran else "C")
    array = raw.astype(dtype.newbyteorder("="), order="C")
    if dtype.kind == "b":
        array = array.astype(np.uint8)
    array = np.ascontiguousarray(np.moveaxis(array, -1, 0)) if colour else array[None]
    flat = array.ndim == 3
    warnings = () if flat else ("npy: no geometry; voxels of 1 mm and axes to R, A, S are assumed",)
    return MedicalImage(array, format="npy", warnings=warnings)


def encode(image: MedicalImage) -> bytes:
    """`[*S]` of one channel, `[H, W, 3]` of an RGB picture, else `[C, *S]`; the dtype is kept."""
    array = image.array
    if len(array) == 1:
        array = array[0]
    elif image.spatial_dims == 2 and len(array) == 3:
        array = np.moveaxis(array, 0, -1)
    file = io.BytesIO()
    np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)
    return file.getvalue()


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


CODEC = Codec("npy", (".npy",), "application/x-npy", _recognises, decode, encode)
