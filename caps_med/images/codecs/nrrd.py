"""NRRD in one file (.nrrd), raw or gzip. Fields: https://teem.sourceforge.net/nrrd/format.html.

A header received as bytes may not refer to voxels in another file, because its file name is not
trusted. For a path `x.nhdr` only the file `x.raw` or `x.raw.gz` beside it is read; for a zip, a
file in it. Of the key/value pairs only the names of 3D Slicer's segments are read, for label maps:
others may hold anything, including a patient's DICOM tags.
"""

from __future__ import annotations

import gzip
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from caps_med.errors import InvalidInput, UnsupportedFormat
from caps_med.images.codecs.codec import Codec, with_common_dtype
from caps_med.images.codecs.nrrd_segments import segment_fields, segment_names
from caps_med.images.codecs.streams import check_length, check_ratio, inflate_gzip
from caps_med.images.image import LPS_TO_RAS, Array, Kind, MedicalImage
from caps_med.images.limits import Limits
from caps_med.images.units import MILLIMETRES, unsized

T = TypeVar("T")

_MAGIC = re.compile(rb"NRRD000[1-5]\r?\n")
#: 3D Slicer describes a segment in half a kilobyte.
MAX_HEADER = 2**20
_DETACHED = re.compile(rb"^data ?file *:(?!=)([^\n]*)\n?", re.IGNORECASE | re.MULTILINE)
_END = re.compile(rb"\r?\n\r?\n")
_WHOLE = re.compile(r"\s*[0-9]{1,9}(\s+[0-9]{1,9})*\s*")
#: Blanks inside a vector, which pynrrd takes for the end of it; each row of them is looked at once.
_BLANKS = re.compile(r"(?<=[(,])\s+|(?<!\s)\s+(?=[,)])")
_FIELDS = frozenset(
    ("type", "dimension", "sizes", "kinds", "encoding", "endian", "space", "space directions",
     "space origin", "space units", "spacings", "units")
)  # fmt: skip
#: Of lines and bytes before the voxels.
_SKIPS = ("line skip", "lineskip", "byte skip", "byteskip")
#: pynrrd has such a table, but not for others to use.
_DTYPES = {
    dtype: names.split(", ")
    for dtype, names in {
        "i1": "signed char, int8, int8_t",
        "u1": "uchar, unsigned char, uint8, uint8_t",
        "i2": "short, short int, signed short, signed short int, int16, int16_t",
        "u2": "ushort, unsigned short, unsigned short int, uint16, uint16_t",
        "i4": "int, signed int, int32, int32_t",
        "u4": "uint, unsigned int, uint32, uint32_t",
        "i8": "longlong, long long, long long int, signed long long, signed long long int, "
        "int64, int64_t",
        "u8": "ulonglong, unsigned long long, unsigned long long int, uint64, uint64_t",
        "f4": "float",
        "f8": "double",
    }.items()
}
_NAMES = {name: dtype for dtype, names in _DTYPES.items() for name in names}
_WRITTEN = {
    "i1": "int8", "u1": "uint8", "i2": "int16", "u2": "uint16", "i4": "int32", "u4": "uint32",
    "i8": "int64", "u8": "uint64", "f4": "float", "f8": "double",
}  # fmt: skip
#: Signs that turn the axes of a space into Right, Anterior, Superior.
_SPACES = {
    "right-anterior-superior": (1, 1, 1),
    "ras": (1, 1, 1),
    "left-anterior-superior": (-1, 1, 1),
    "las": (-1, 1, 1),
    "left-posterior-superior": (-1, -1, 1),
    "lps": (-1, -1, 1),
}
_NUMBERS = {2: "two", 3: "three"}
_COLOUR_KINDS = ("rgb-color", "3-color")
#: What `kinds` says of an axis of space, or of one of which nothing is known.
_OF_SPACE = ("domain", "space", "???", "none")
#: Of an axis along which the channels of an image lie. Alpha, tensors and complex numbers are none.
_OF_CHANNELS = (
    *_COLOUR_KINDS, "list", "point", "vector", "covariant-vector", "normal", "time", "scalar",
    "stub", "2-vector", "3-vector", "3-gradient", "3-normal", "4-vector",
)  # fmt: skip


def decode(data: bytes, kind: Kind, limits: Limits) -> MedicalImage:
    """Two spatial axes are a picture (columns, rows), three a volume; one more is its channels.

    The same holds for a fourth spatial axis with one time point, as ITK writes it.
    """
    fields, start, names = _header(data)
    zipped = _is_zipped(fields)
    sizes, axis = _sizes(fields)
    dtype = _dtype(fields)
    channels, space = (1, sizes) if axis is None else (sizes[axis], _without(sizes, axis))
    limits.check_array(space, dtype.itemsize * channels)
    raw = np.frombuffer(_voxels(zipped, data, start, math.prod(sizes) * dtype.itemsize), dtype)
    found = raw.reshape(sizes, order="F")
    found = found[None] if axis is None else np.moveaxis(found, axis, 0)
    found = found.swapaxes(1, 2) if len(space) == 2 else found
    array = found.astype(dtype.newbyteorder("="), order="C")
    if len(space) == 2:
        return MedicalImage(array, format="nrrd", plane=_plane(fields, axis))
    affine, warnings = _affine(_without_time(fields, axis), axis)
    if kind == "labels" and names and channels > 1:
        raise UnsupportedFormat(
            "NRRD: segments that overlap, in several layers, are not read: save them as one label "
            "map"
        )
    named = names if kind == "labels" else {}
    return MedicalImage(array, affine, format="nrrd", warnings=warnings, names=named)


def encode(image: MedicalImage, *, compress: bool = True) -> bytes:
    """Gzip or raw inside, LPS outside; K channels become the first axis.

    A label map with names carries them as 3D Slicer's segments, see `nrrd_segments`.
    """
    array = with_common_dtype(image.array)
    if image.spatial_dims == 2:
        array = array.swapaxes(1, 2)
    array = array if len(array) > 1 else array[0]
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    lines = [
        "NRRD0005",
        f"type: {_WRITTEN[array.dtype.str[1:]]}",
        f"dimension: {array.ndim}",
        *_geometry(image),
        f"sizes: {' '.join(map(str, array.shape))}",
        "endian: little",
        f"encoding: {'gzip' if compress else 'raw'}",
    ]
    if image.kind == "labels" and image.names and image.spatial_dims == 3:
        lines += segment_fields(image)
    head = "\n".join(lines).encode() + b"\n\n"
    voxels = little.tobytes(order="F")
    return head + (gzip.compress(voxels, 6, mtime=0) if compress else voxels)


def detached(header: bytes) -> str | None:
    """The name of the file that a header says its voxels are in; None if they follow it."""
    found = _DETACHED.search(_fields_of(header))
    return None if found is None else found[1].strip().decode("utf-8", "replace")


def attached(header: bytes, voxels: bytes) -> bytes:
    """The content of a single file, from a detached header and its voxels."""
    fields = _DETACHED.sub(b"", _fields_of(header))
    return fields.rstrip(b"\r\n") + b"\n\n" + voxels


def _fields_of(header: bytes) -> bytes:
    """The header up to its empty line, which a detached header may lack."""
    head = header[:MAX_HEADER]
    end = _END.search(head)
    return head[: end.start()] if end else head


def _geometry(image: MedicalImage) -> list[str]:
    channels = len(image.array)
    if image.spatial_dims == 2:
        first = {1: "", 3: "RGB-color "}.get(channels, "list ")
        kinds = f"kinds: {first}domain domain"
        if image.plane is None:
            return [kinds]
        return ["space dimension: 2", *_directions(image.plane, channels), kinds]
    return [
        "space: left-posterior-superior",
        *_directions(LPS_TO_RAS @ image.affine, channels),
        f"kinds: {' '.join((['list'] if channels > 1 else []) + ['domain'] * 3)}",
    ]


def _directions(affine: Array, channels: int) -> list[str]:
    steps = [_vector(step) for step in affine[:-1, :-1].T]
    return [
        f"space directions: {' '.join((['none'] if channels > 1 else []) + steps)}",
        f"space origin: {_vector(affine[:-1, -1])}",
    ]


def _vector(values: Array) -> str:
    return f"({','.join(repr(float(value)) for value in values)})"


def _header(data: bytes) -> tuple[Mapping[str, Any], int, dict[int, str]]:
    """The used fields, as pynrrd reads them, the start of the voxels, and names of ids."""
    if detached(data) is not None:
        raise InvalidInput(
            "NRRD: its voxels lie in another file (data file), which is not opened: save it as one "
            ".nrrd file, or put both files into a zip"
        )
    head = data[:MAX_HEADER]
    end = _END.search(head)
    if end is None:
        raise InvalidInput(f"NRRD: no empty line ends the header within {MAX_HEADER} bytes")
    text = head[: end.start()].decode("utf-8", "replace")
    magic, *lines = (line.removesuffix("\r") for line in text.split("\n"))
    names = segment_names(lines)
    # pynrrd mixes key/value pairs with fields, and parses fields that do not matter here
    lines = [line for line in lines if not line.startswith("#") and ":=" not in line]
    fields = [(name.strip().lower(), value) for name, _, value in map(_parted, lines)]
    if any(name in _SKIPS and value.strip() != "0" for name, value in fields):
        raise UnsupportedFormat("NRRD: line skip and byte skip are not read: save it again")
    if not all(_WHOLE.fullmatch(value) for name, value in fields if name == "sizes"):
        raise InvalidInput("NRRD: sizes must be whole numbers")  # pynrrd would cut 2.5 to 2
    import nrrd

    try:
        used = [f"{name}: {_BLANKS.sub('', value)}" for name, value in fields if name in _FIELDS]
        return nrrd.read_header([magic, *used]), end.end(), names
    except Exception as error:  # pynrrd raises several types, and quotes values
        raise InvalidInput("NRRD: a field of the header is broken or given twice") from error


def _parted(line: str) -> tuple[str, str, str]:
    if ": " not in line:
        raise InvalidInput("NRRD: a line of the header is not a field")
    return line.partition(": ")


def _sizes(fields: Mapping[str, Any]) -> tuple[tuple[int, ...], int | None]:
    """The sizes, and the axis of the channels."""
    sizes = tuple(int(size) for size in _required(fields, "sizes"))
    if _required(fields, "dimension") != len(sizes) or min(sizes, default=0) < 1:
        raise InvalidInput("NRRD: sizes must be as many as dimension, each at least 1")
    kinds = [kind.lower() for kind in fields.get("kinds", ())]
    if kinds and len(kinds) != len(sizes):
        raise InvalidInput("NRRD: kinds must be as many as dimension")
    beside = {axis for axis, kind in enumerate(kinds) if kind not in _OF_SPACE}
    beside |= _without_direction(fields)
    if not beside and sizes[3:] == (1,):
        beside = {3}
    readable = all(kind in (*_OF_SPACE, *_OF_CHANNELS) for kind in kinds)
    if not readable or len(beside) > 1 or len(sizes) - len(beside) not in (2, 3):
        raise UnsupportedFormat(
            f"NRRD: a picture or one volume is read, with channels along one axis that kinds names "
            f"(list, vector), this file has sizes {list(sizes)}: split its channels or time points "
            "into files"
        )
    axis = next(iter(beside), None)
    if axis is not None and kinds and kinds[axis] in _COLOUR_KINDS and sizes[axis] != 3:
        raise InvalidInput(
            f"NRRD: an axis of three colours must have the size 3, got {sizes[axis]}"
        )
    return sizes, axis


def _without_direction(fields: Mapping[str, Any]) -> set[int]:
    """The axes that have no direction in space (none)."""
    directions = np.atleast_2d(np.asarray(fields.get("space directions", ((),)), np.float64))
    return set(np.flatnonzero(np.isnan(directions).all(1) & (directions.shape[1] > 0)).tolist())


def _without(values: Sequence[T], axis: int | None) -> tuple[T, ...]:
    """The values for the spatial axes."""
    return tuple(value for at, value in enumerate(values) if at != axis)


def _dtype(fields: Mapping[str, Any]) -> np.dtype[np.generic]:
    name = _required(fields, "type").lower()
    if name not in _NAMES:
        raise UnsupportedFormat("NRRD: type must be an integer or float of up to 64 bits")
    dtype: np.dtype[np.generic] = np.dtype(_NAMES[name])
    if dtype.itemsize == 1:
        return dtype
    endian = _required(fields, "endian").lower()
    if endian not in ("little", "big"):
        raise InvalidInput("NRRD: endian must be little or big")
    ordered: np.dtype[np.generic] = dtype.newbyteorder("<" if endian == "little" else ">")
    return ordered


def _is_zipped(fields: Mapping[str, Any]) -> bool:
    encoding: str = _required(fields, "encoding").lower()
    if encoding not in ("raw", "gzip", "gz"):
        raise UnsupportedFormat("NRRD: encoding must be raw or gzip: save it again")
    return encoding != "raw"


def _voxels(zipped: bool, data: bytes, start: int, size: int) -> bytes:
    if zipped:
        check_ratio("NRRD", size, len(data) - start)
        return inflate_gzip("NRRD", data[start:], size)
    check_length("NRRD", size, len(data) - start)
    return data[start:]


def _affine(fields: Mapping[str, Any], channels: int | None) -> tuple[Array, tuple[str, ...]]:
    """The affine of a volume, from the fields of all axes except that of the channels."""
    affine = np.eye(4)
    if "space directions" not in fields:
        scale, notes = _millimetres("units", _without(fields.get("units", ()), channels))
        spacings = _three(fields, "spacings", (3,), channels) if "spacings" in fields else 1.0
        affine[:3, :3] = np.diag(spacings * scale)
        guess = "NRRD: no orientation; left and right are a guess from the voxel order"
        return affine, (guess, *notes, *([] if "spacings" in fields else [unsized("NRRD")]))
    affine[:3, :3] = _three(fields, "space directions", (3, 3), channels).T
    if "space origin" in fields:
        affine[:3, 3] = _three(fields, "space origin", (3,))
    scale, notes = _millimetres("space units", fields.get("space units", ()))
    affine = np.diag([*scale, 1.0]) @ affine
    space = fields.get("space", "").lower()
    if space in _SPACES:
        return np.diag([*_SPACES[space], 1.0]) @ affine, notes
    if space:
        raise UnsupportedFormat("NRRD: space must be RAS, LAS or LPS")
    guess = "NRRD: no space is named; its axes are taken for Right, Anterior, Superior"
    return affine, (guess, *notes)


def _without_time(fields: Mapping[str, Any], channels: int | None) -> Mapping[str, Any]:
    """The fields without the last coordinate of a space that includes time.

    ITK does not name such a space, and writes its own coordinates.
    """
    steps = np.asarray(_without(fields.get("space directions", ()), channels), np.float64)
    if steps.shape != (3, 4) or steps[:, 3].any():
        return fields
    placed = ("space directions", "space origin", "space units")
    kept = {name: np.asarray(fields[name])[..., :3] for name in placed if name in fields}
    space = fields.get("space", "lps").lower().removesuffix("-time").removesuffix("t")
    return {**fields, **kept, "space": space}


def _plane(fields: Mapping[str, Any], channels: int | None) -> Array | None:
    """The position of a picture's pixels in their plane; None for one that lies in space."""
    if "space directions" in fields:
        steps = np.asarray(_without(fields["space directions"], channels), np.float64).T
        origin, units = fields.get("space origin", (0.0, 0.0)), fields.get("space units", ())
    else:
        steps = np.diag(np.asarray(_without(fields.get("spacings", ()), channels), np.float64))
        origin, units = (0.0, 0.0), _without(fields.get("units", ()), channels)
    if steps.shape != (2, 2) or len(origin) != 2 or not np.isfinite(steps).all():
        return None
    scale, _ = _millimetres("units", units, axes=2)
    plane = np.eye(3)
    plane[:2, :2], plane[:2, 2] = steps, origin
    return np.diag([*scale, 1.0]) @ plane


def _millimetres(name: str, units: Sequence[str], axes: int = 3) -> tuple[Array, tuple[str, ...]]:
    """Each axis' unit in millimetres, 1 if unknown, and a note about this."""
    given = [unit.strip().lower() for unit in units]
    if any(given) and len(given) != axes:
        raise InvalidInput(f"NRRD: {name} must be given for {_NUMBERS[axes]} axes")
    known = [MILLIMETRES.get(unit) for unit in given] if any(given) else [1.0] * axes
    note = f"NRRD: {name} holds a unit that is not known; millimetres are assumed"
    return np.array([mm or 1.0 for mm in known]), (note,) * (None in known)


def _three(
    fields: Mapping[str, Any], name: str, shape: tuple[int, ...], channels: int | None = None
) -> Array:
    """A field with one entry per spatial axis."""
    found = np.asarray(_without(fields[name], channels))
    if found.shape != shape:
        raise InvalidInput(f"NRRD: {name} must be given for three axes in three dimensions")
    return found


def _required(fields: Mapping[str, Any], key: str) -> Any:  # noqa: ANN401 - of the field's type
    if key not in fields:
        raise InvalidInput(f"NRRD: the field {key} is missing")
    return fields[key]


def _recognises(data: bytes) -> bool:
    return _MAGIC.match(data) is not None


CODEC = Codec(
    "nrrd", (".nrrd", ".nhdr"), "application/x-nrrd", _recognises, decode, encode,
    detached=detached, attached=attached, beside={".nhdr": (".raw", ".raw.gz")},
)  # fmt: skip
