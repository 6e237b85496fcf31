"""The protocol between the service and its decoders: a line of JSON, then plain bytes.

A decoder has handled hostile bytes, so its answers are checked like an upload: no pickle, and every
size is bounded before anything is read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, get_args

import numpy as np

from caps_med.images import FORMATS, MedicalImage
from caps_med.images.dicom_origin import DicomOrigin
from caps_med.images.image import Array
from caps_med.images.label_codes import Coding, LabelCode, Laterality
from caps_med.images.series import Series

if TYPE_CHECKING:
    import nibabel as nib

_LONGEST_LINE = 2**20
#: Bytes of the names of all files of a zip.
_LONGEST_SERIES = 2**24
_DTYPES = frozenset("uifb")
#: What a malformed message raises in its reader.
MALFORMED = (
    KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError,
)  # fmt: skip


@dataclass(frozen=True)
class FilesOfImages:
    """How the DICOM files of a zip form images.

    Attributes:
        images: of each what tells it from others in its folder, and the names of its files.
        left_out: files that are no images, with the reason.
    """

    images: tuple[tuple[str, tuple[str, ...]], ...]
    left_out: tuple[tuple[str, str], ...]


class Garbled(Exception):
    """The other side sent a malformed message."""


def send(stream: BinaryIO, line: dict[str, Any], content: bytes = b"") -> None:
    """Write one line and the bytes that follow it."""
    stream.write(json.dumps(line).encode() + b"\n")
    stream.write(content)
    stream.flush()


def send_array(stream: BinaryIO, array: Array) -> None:
    """Write the bytes of an array."""
    stream.write(np.ascontiguousarray(array).data.cast("B"))
    stream.flush()


def receive_line(stream: BinaryIO) -> dict[str, Any]:
    """Read one line.

    Raises:
        EOFError: the other side has gone. Garbled: it is not a line of JSON.
    """
    line = stream.readline(_LONGEST_LINE)
    if not line:
        raise EOFError
    if not line.endswith(b"\n"):
        raise Garbled("a line without end")
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Garbled("not JSON") from error
    if not isinstance(found, dict):
        raise Garbled("not an object")
    return found


def receive_bytes(stream: BinaryIO, size: int) -> bytearray:
    """Read `size` bytes.

    Raises:
        EOFError: the other side has gone before.
    """
    content = bytearray(size)
    view, got = memoryview(content), 0
    while got < size:
        more = stream.readinto(view[got:])  # type: ignore[attr-defined]  # pipes are buffered readers
        if not more:
            raise EOFError
        got += more
    return content


def send_series(
    stream: BinaryIO,
    series: Sequence[Series[PurePosixPath]],
    skipped: Sequence[tuple[PurePosixPath, str]],
) -> None:
    """Write what `series_of_zip` has found."""
    images = [[one.label, [str(file) for file in one.files]] for one in series]
    left_out = [[str(file), reason] for file, reason in skipped]
    content = json.dumps({"images": images, "left_out": left_out}).encode()
    send(stream, {"series": len(content)}, content)


def receive_series(stream: BinaryIO, size: Any) -> FilesOfImages:  # noqa: ANN401
    """Read the `size` bytes of what `send_series` writes.

    Raises:
        EOFError: the other side has gone. Garbled: it is something else.
    """
    try:
        if not 0 < int(size) <= _LONGEST_SERIES:
            raise Garbled("impossible series")
        found = json.loads(receive_bytes(stream, int(size)))
        return FilesOfImages(
            tuple((str(label), tuple(map(str, files))) for label, files in found["images"]),
            tuple((str(file), str(reason)) for file, reason in found["left_out"]),
        )
    except MALFORMED as error:
        raise Garbled("impossible series") from error


def announce_image(stream: BinaryIO, image: MedicalImage) -> None:
    """Write an image's metadata; its array follows once the other side wants it."""
    palette = image.palette
    line = {
        "format": image.format,
        "kind": image.kind,
        "warnings": image.warnings,
        "white": image.white,
        "names": list(image.names.items()),
        "codes": [(label, *_words(code)) for label, code in image.codes.items()],
        "affine": image.affine.tolist(),
        "plane": None if image.plane is None else image.plane.tolist(),
        "patient": image.patient,
        "series": image.series,
        "header": image.header.binaryblock.hex() if image.header is not None else None,
        "origin": None if image.origin is None else vars(image.origin),
        "palette": None if palette is None else np.asarray(palette, np.uint8).tobytes().hex(),
        "dtype": image.array.dtype.str,
        "shape": image.array.shape,
    }
    send(stream, {"image": line})


def announced_bytes(line: dict[str, Any], most: int) -> int:
    """Bytes of the array that `line` announces, at most `most`.

    Raises:
        Garbled: the array is impossible.
    """
    try:
        dtype, shape = _array(line)
    except MALFORMED as error:
        raise Garbled("an impossible array") from error
    size = math.prod(shape) * dtype.itemsize
    if dtype.kind not in _DTYPES or min(shape) < 1 or size > most:
        raise Garbled("an impossible array")
    return size


def _array(line: dict[str, Any]) -> tuple[np.dtype[Any], tuple[int, ...]]:
    return np.dtype(line["dtype"]), tuple(int(n) for n in line["shape"])


def receive_image(stream: BinaryIO, line: dict[str, Any], size: int) -> MedicalImage:
    """Read the image that `line` announces.

    Args:
        size: what `announced_bytes` says of it.

    Raises:
        EOFError: the other side has gone. Garbled: the image is impossible.
    """
    try:
        dtype, shape = _array(line)
        if line["format"] not in FORMATS:
            raise Garbled("an unknown format")
        content = receive_bytes(stream, size)
        palette = line["palette"]
        return MedicalImage(
            np.frombuffer(content, dtype).reshape(shape),
            np.array(line["affine"], np.float64),
            line["format"],
            line["kind"],
            header=_header(line["header"]),
            palette=None if palette is None else _palette(palette),
            warnings=tuple(_printable(str(note)) for note in line["warnings"]),
            names={int(label): _printable(str(name)) for label, name in line["names"]},
            codes={int(label): _code(*words) for label, *words in line["codes"]},
            origin=None if line["origin"] is None else _origin(**line["origin"]),
            white=None if line["white"] is None else _white(line["white"]),
            plane=None if line["plane"] is None else np.array(line["plane"], np.float64),
            patient=str(line["patient"]),
            series=str(line["series"]),
        )
    except MALFORMED as error:
        raise Garbled("an impossible image") from error


def _white(value: Any) -> int:  # noqa: ANN401 - whatever the other side sent
    if not 0 < int(value) < 2**32:
        raise Garbled("an impossible white")
    return int(value)


def _palette(text: str) -> Array:
    return np.frombuffer(bytearray.fromhex(text), np.uint8).reshape(-1, 3)


def _printable(text: str) -> str:
    """Fit for an HTTP header."""
    return "".join(character if character.isprintable() else " " for character in text)


def _origin(attributes: dict[str, str], slices: list[list[Any]]) -> DicomOrigin:
    named = {str(key): str(value) for key, value in attributes.items()}
    return DicomOrigin(named, tuple((str(uid), int(n)) for uid, n in slices))


def _words(code: LabelCode) -> tuple[list[str], str | None, list[str]]:
    """The parts of a code, each concept as a list of texts."""
    of_type, category = ([one.value, one.scheme, one.meaning] for one in (code.type, code.category))
    return of_type, code.laterality, category


def _code(of_type: list[str], laterality: str | None, category: list[str]) -> LabelCode:
    side = next((known for known in get_args(Laterality) if known == laterality), None)
    return LabelCode(Coding(*map(str, of_type)), side, Coding(*map(str, category)))


def _header(text: str | None) -> nib.Nifti1Header | None:
    if text is None:
        return None
    import nibabel as nib
    from nibabel.spatialimages import HeaderDataError

    block, kinds = bytes.fromhex(text), {348: nib.Nifti1Header, 540: nib.Nifti2Header}
    if len(block) not in kinds:
        raise Garbled("not a NIfTI header")
    try:
        return kinds[len(block)](block)
    except HeaderDataError as error:
        raise Garbled("an impossible NIfTI header") from error
