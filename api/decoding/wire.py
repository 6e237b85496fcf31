"""What the service and its decoders say to each other: a line of JSON, then plain bytes.

A decoder has had hostile bytes in its hands, so what it says is checked like an upload: there is
no pickle in it, and every size is bounded before anything is read.
"""

from __future__ import annotations

import json
import math
from typing import Any, BinaryIO

import nibabel as nib
import numpy as np
from nibabel.spatialimages import HeaderDataError

from caps_med.images import FORMATS, MedicalImage
from caps_med.images.dicom_origin import DicomOrigin
from caps_med.images.image import Array

_LONGEST_LINE = 2**20
_DTYPES = frozenset("uifb")
_HEADERS = {348: nib.Nifti1Header, 540: nib.Nifti2Header}


#: What lines that cannot have been meant make of their reader.
_IMPOSSIBLE = (KeyError, TypeError, ValueError, AttributeError, OverflowError, HeaderDataError)


class Garbled(Exception):
    """The other side said something that it cannot have meant."""


def send(stream: BinaryIO, line: dict[str, Any], *parts: Array | bytes) -> None:
    """Write one line and the bytes that follow it."""
    stream.write(json.dumps(line).encode() + b"\n")
    for part in parts:
        stream.write(part if isinstance(part, bytes) else np.ascontiguousarray(part).data.cast("B"))
    stream.flush()


def receive_line(stream: BinaryIO) -> dict[str, Any]:
    """Read one line.

    Raises:
        EOFError: the other side has gone. Garbled: it is no line of JSON.
    """
    line = stream.readline(_LONGEST_LINE)
    if not line:
        raise EOFError
    if not line.endswith(b"\n"):
        raise Garbled("a line without end")
    try:
        found = json.loads(line)
    except ValueError as error:
        raise Garbled("no JSON") from error
    if not isinstance(found, dict):
        raise Garbled("no object")
    return found


def receive_bytes(stream: BinaryIO, size: int) -> bytearray:
    """Read `size` bytes.

    Raises:
        EOFError: the other side has gone before.
    """
    content = bytearray(size)
    view, got = memoryview(content), 0
    while got < size:
        more = stream.readinto(view[got:])  # type: ignore[attr-defined]
        if not more:
            raise EOFError
        got += more
    return content


def send_image(stream: BinaryIO, image: MedicalImage) -> None:
    """Write an image with all that belongs to it."""
    palette = image.palette
    line = {
        "format": image.format,
        "kind": image.kind,
        "warnings": image.warnings,
        "affine": image.affine.tolist(),
        "header": image.header.binaryblock.hex() if image.header is not None else None,
        "origin": None if image.origin is None else vars(image.origin),
        "palette": None if palette is None else np.asarray(palette, np.uint8).tobytes().hex(),
        "dtype": image.array.dtype.str,
        "shape": image.array.shape,
    }
    send(stream, {"image": line}, image.array)


def receive_image(stream: BinaryIO, line: dict[str, Any], most: int) -> MedicalImage:
    """Read the image that `line` announces.

    Args:
        most: bytes that its array may take.

    Raises:
        EOFError: the other side has gone. Garbled: what it says cannot be.
    """
    try:
        dtype, shape = np.dtype(line["dtype"]), tuple(int(n) for n in line["shape"])
        size = math.prod(shape) * dtype.itemsize
        if dtype.kind not in _DTYPES or min(shape) < 1 or size > most:
            raise Garbled("an array that cannot be")
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
            origin=None if line["origin"] is None else _origin(**line["origin"]),
        )
    except _IMPOSSIBLE as error:
        raise Garbled("an image that cannot be") from error


def _palette(text: str) -> Array:
    return np.frombuffer(bytearray.fromhex(text), np.uint8).reshape(-1, 3)


def _printable(text: str) -> str:
    """It will stand in a header."""
    return "".join(character if character.isprintable() else " " for character in text)


def _origin(attributes: dict[str, str], slices: list[list[Any]], frames: bool) -> DicomOrigin:
    named = {str(key): str(value) for key, value in attributes.items()}
    return DicomOrigin(named, tuple((str(uid), int(n)) for uid, n in slices), bool(frames))


def _header(text: str | None) -> nib.Nifti1Header | None:
    if text is None:
        return None
    block = bytes.fromhex(text)
    if len(block) not in _HEADERS:
        raise Garbled("no header of NIfTI")
    return _HEADERS[len(block)](block)
