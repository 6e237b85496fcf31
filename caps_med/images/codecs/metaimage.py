"""MetaImage (.mha), as ITK writes it. Fields: https://itk.org/Wiki/ITK/MetaIO/Documentation.

Where ITK and that text differ, ITK counts: the world is Left, Posterior, Superior, whatever
AnatomicalOrientation says, and MET_LONG has 32 bits.

A header received as bytes may not refer to voxels in another file, because its file name is not
trusted. For a path `x.mhd` only the file `x.raw` or `x.zraw` beside it is read; for a zip, a file
in it.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from caps_med.errors import InvalidInput, UnsupportedFormat
from caps_med.images.codecs.codec import Codec, with_common_dtype
from caps_med.images.codecs.streams import check_length, check_ratio, inflate_zlib
from caps_med.images.image import LPS_TO_RAS, Array, Kind, MedicalImage
from caps_med.images.limits import Limits
from caps_med.images.units import unsized

_MAX_HEADER = 2**16
#: The lines up to the one that every header has; others may come before it, comments included.
_MAGIC = re.compile(rb"(?:[A-Za-z]\w*[ \t]*=[^\n]*\n){0,16}NDims[ \t]*=")
#: The last line of a header: where the voxels are. If they are in another file it may lack its end.
_LAST = re.compile(rb"^ElementDataFile[ \t]*=([^\n]*)(?:\n|\Z)", re.MULTILINE)
_DTYPES = {
    "MET_CHAR": "i1", "MET_UCHAR": "u1", "MET_SHORT": "i2", "MET_USHORT": "u2", "MET_INT": "i4",
    "MET_UINT": "u4", "MET_LONG": "i4", "MET_ULONG": "u4", "MET_LONG_LONG": "i8",
    "MET_ULONG_LONG": "u8", "MET_FLOAT": "f4", "MET_DOUBLE": "f8",
}  # fmt: skip
_WRITTEN = {dtype: name for name, dtype in reversed(_DTYPES.items())}
#: The names that fields have had, the one that counts first.
_MATRIX = ("TransformMatrix", "Rotation", "Orientation")
_ORIGIN = ("Origin", "Offset", "Position")
_SPACING = ("ElementSpacing", "ElementSize")
_BIG_ENDIAN = ("BinaryDataByteOrderMSB", "ElementByteOrderMSB")
#: What the last line says of voxels in the same file.
_WITHIN = "LOCAL"
#: A HeaderSize: whatever is before the voxels, they end the file.
_AT_END = "-1"
#: Of a header in a file of its own: where its voxels are.
_BESIDE = (".raw", ".zraw")


def decode(data: bytes, kind: Kind, limits: Limits) -> MedicalImage:
    """Two axes are a picture (columns, rows), three a volume; each may have several channels.

    A fourth axis with one time point is dropped.
    """
    fields, start = _header(data)
    sizes = _sizes(fields)
    channels = _whole(fields, "ElementNumberOfChannels", 1)[0]
    dtype = _dtype(fields)
    limits.check_array(sizes, dtype.itemsize * channels)
    voxels = _voxels(fields, data[start:], math.prod(sizes) * channels * dtype.itemsize)
    array = np.frombuffer(voxels, dtype).reshape(channels, *sizes, order="F")
    array = array.swapaxes(1, 2) if len(sizes) == 2 else array
    array = array.astype(dtype.newbyteorder("="), order="C")
    warnings = _doubtful(fields, volume=len(sizes) == 3)
    if len(sizes) == 2:
        placed = any(name in fields for name in (*_MATRIX, *_ORIGIN, *_SPACING))
        plane = _affine(fields, 2) if placed else None
        return MedicalImage(array, format="metaimage", warnings=warnings, plane=plane)
    affine = LPS_TO_RAS @ _affine(fields, 3)
    return MedicalImage(array, affine, format="metaimage", warnings=warnings)


def encode(image: MedicalImage) -> bytes:
    """Compressed with zlib, in one file; the K channels of a voxel lie side by side."""
    array = with_common_dtype(image.array)
    if image.spatial_dims == 2:
        array = array.swapaxes(1, 2)
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    voxels = zlib.compress(little.tobytes(order="F"), 6)
    plane = np.eye(3) if image.plane is None else image.plane
    lps = LPS_TO_RAS @ image.affine if image.spatial_dims == 3 else plane
    steps, origin = lps[:-1, :-1], lps[:-1, -1]
    spacing = np.linalg.norm(steps, axis=0)
    fields = {
        "ObjectType": "Image",
        "NDims": image.spatial_dims,
        "BinaryData": True,
        "BinaryDataByteOrderMSB": False,
        "CompressedData": True,
        "CompressedDataSize": len(voxels),
        "TransformMatrix": _numbers((steps / spacing).T),
        "Offset": _numbers(origin),
        "CenterOfRotation": _numbers(np.zeros(image.spatial_dims)),
        "ElementSpacing": _numbers(spacing),
        "DimSize": " ".join(map(str, array.shape[1:])),
        "ElementNumberOfChannels": len(array),
        "ElementType": _WRITTEN[array.dtype.str[1:]],
        "ElementDataFile": _WITHIN,
    }
    return "".join(f"{name} = {value}\n" for name, value in fields.items()).encode() + voxels


def detached(header: bytes) -> str | None:
    """The name of the file that a header says its voxels are in; None if they follow it."""
    last = _LAST.search(header[:_MAX_HEADER])
    named = last[1].strip().decode("utf-8", "replace") if last else _WITHIN
    return None if named.upper() == _WITHIN else named


def attached(header: bytes, voxels: bytes) -> bytes:
    """The content of a single file, from a detached header and its voxels."""
    last = _LAST.search(header[:_MAX_HEADER])
    before = header if last is None else header[: last.start()]
    return before + f"ElementDataFile = {_WITHIN}\n".encode() + voxels


def _numbers(values: Array) -> str:
    return " ".join(repr(float(value)) for value in values.ravel())


def _header(data: bytes) -> tuple[Mapping[str, str], int]:
    """The fields, and where the voxels begin."""
    last = _LAST.search(data[:_MAX_HEADER])
    if last is None:
        raise InvalidInput(
            f"MetaImage: no line ElementDataFile ends the header within {_MAX_HEADER} bytes"
        )
    if last[1].strip().upper() != _WITHIN.encode():
        raise InvalidInput(
            "MetaImage: its voxels lie in another file (ElementDataFile), which is not opened: "
            "save it as one .mha file, or put both files into a zip"
        )
    fields: dict[str, str] = {}
    for line in data[: last.start()].decode("utf-8", "replace").split("\n"):
        name, equals, value = line.partition("=")
        if not equals and line.strip():
            raise InvalidInput(
                "MetaImage: a line of the header does not have the form NAME = VALUE"
            )
        if name.strip() in fields:
            raise InvalidInput("MetaImage: a field of the header is given twice")
        fields[name.strip()] = value.strip()
    if fields.get("HeaderSize", "0") not in ("0", _AT_END):
        raise UnsupportedFormat(
            "MetaImage: HeaderSize must be 0, or -1 if the voxels end the file: correct it, or "
            "save it again"
        )
    return fields, last.end()


def _sizes(fields: Mapping[str, str]) -> tuple[int, ...]:
    """The sizes of the spatial axes."""
    axes = _whole(fields, "NDims")[0]
    sizes = _whole(fields, "DimSize", count=axes) if axes in (2, 3, 4) else ()
    if not sizes or sizes[3:] not in ((), (1,)):
        raise UnsupportedFormat(
            f"MetaImage: NDims must be 2 (a picture) or 3 (a volume), got {axes}: split its time "
            "points into files"
        )
    return sizes[:3]


def _dtype(fields: Mapping[str, str]) -> np.dtype[np.generic]:
    name = _required(fields, "ElementType").removesuffix("_ARRAY")
    if name not in _DTYPES:
        raise UnsupportedFormat(
            "MetaImage: ElementType must be an integer or float of up to 64 bits"
        )
    order = ">" if _is_true(fields, *_BIG_ENDIAN) else "<"
    dtype: np.dtype[np.generic] = np.dtype(order + _DTYPES[name])
    return dtype


def _voxels(fields: Mapping[str, str], stored: bytes, size: int) -> bytes:
    if not _is_true(fields, "BinaryData", default="True"):
        raise UnsupportedFormat("MetaImage: voxels written as text are not read: save it as binary")
    at_end = fields.get("HeaderSize") == _AT_END
    if not _is_true(fields, "CompressedData"):
        stored = stored[-size:] if at_end else stored
        check_length("MetaImage", size, len(stored))
        return stored
    if at_end:
        raise UnsupportedFormat("MetaImage: HeaderSize must be 0 with CompressedData: correct it")
    if "CompressedDataSize" in fields:
        check_length("MetaImage", _whole(fields, "CompressedDataSize")[0], len(stored))
    check_ratio("MetaImage", size, len(stored))
    return inflate_zlib("MetaImage", stored, size)


def _doubtful(fields: Mapping[str, str], volume: bool) -> tuple[str, ...]:
    """Assumptions that had to be made."""
    warnings = []
    if volume and not any(name in fields for name in _MATRIX):
        warnings.append(
            "MetaImage: no orientation; its axes are taken for Left, Posterior, Superior"
        )
    if volume and not any(name in fields for name in _SPACING):
        warnings.append(unsized("MetaImage"))
    slope = _reals(fields, ("ElementToIntensityFunctionSlope",), (1.0,))
    offset = _reals(fields, ("ElementToIntensityFunctionOffset",), (0.0,))
    if slope != 1 or offset != 0:
        warnings.append("MetaImage: ElementToIntensityFunction is not applied, as ITK does not")
    return tuple(warnings)


def _affine(fields: Mapping[str, str], axes: int) -> Array:
    """Voxel indices to millimetres in the file's world, for the first, spatial axes."""
    given = _whole(fields, "NDims")[0]
    matrix = _reals(fields, _MATRIX, np.eye(given).ravel()).reshape(given, given)
    affine = np.eye(axes + 1)
    affine[:-1, :-1] = (matrix.T * _reals(fields, _SPACING, np.ones(given)))[:axes, :axes]
    affine[:-1, -1] = _reals(fields, _ORIGIN, np.zeros(given))[:axes]
    return affine


def _reals(fields: Mapping[str, str], names: tuple[str, ...], default: ArrayLike) -> Array:
    """As many numbers as the default has, from the first of the named fields that exists."""
    wanted = np.asarray(default)
    name = next((name for name in names if name in fields), None)
    if name is None:
        return wanted
    try:
        found = np.array([float(value) for value in fields[name].split()])
    except ValueError:
        found = np.array(())
    if len(found) != len(wanted):
        numbers = "a number" if len(wanted) == 1 else f"{len(wanted)} numbers"
        raise InvalidInput(f"MetaImage: {name} must be {numbers}")
    return found


def _whole(
    fields: Mapping[str, str], name: str, default: int | None = None, count: int = 1
) -> tuple[int, ...]:
    """The numbers of a field, each at least 1."""
    if default is not None and name not in fields:
        return (default,)
    words = _required(fields, name).split()
    if len(words) != count or not all(re.fullmatch(r"[1-9][0-9]{0,17}", word) for word in words):
        numbers = "a whole number" if count == 1 else f"{count} whole numbers"
        raise InvalidInput(f"MetaImage: {name} must be {numbers} of at least 1")
    return tuple(map(int, words))


def _is_true(fields: Mapping[str, str], *names: str, default: str = "False") -> bool:
    """The truth value of the first of the named fields that exists."""
    said = next((fields[name] for name in names if name in fields), default)
    if said.lower() not in ("true", "false", "1", "0"):
        raise InvalidInput(f"MetaImage: {names[0]} must be True or False")
    return said.lower() in ("true", "1")


def _required(fields: Mapping[str, str], name: str) -> str:
    if name not in fields:
        raise InvalidInput(f"MetaImage: the field {name} is missing")
    return fields[name]


def _recognises(data: bytes) -> bool:
    return _MAGIC.match(data[:_MAX_HEADER]) is not None


CODEC = Codec(
    "metaimage", (".mha", ".mhd"), "application/x-metaimage", _recognises, decode, encode,
    detached=detached, attached=attached, beside={".mhd": _BESIDE},
)  # fmt: skip
