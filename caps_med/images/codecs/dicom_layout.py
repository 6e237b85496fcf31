"""A walk over the elements of a DICOM file in plain Python, before a library parses them.

Encoding: DICOM PS3.5 chapter 7; the file's own header: PS3.10 chapter 7.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from caps_med.errors import CapsMedError, InvalidInput, UnsupportedFormat
from caps_med.images.codecs.streams import inflate_raw
from caps_med.images.limits import Limits

PREAMBLE, MAGIC = 128, b"DICM"

_IMPLICIT = "1.2.840.10008.1.2"
_EXPLICIT = "1.2.840.10008.1.2.1"
_DEFLATED = "1.2.840.10008.1.2.1.99"
RLE, JPEG = "1.2.840.10008.1.2.5", "1.2.840.10008.1.2.4.50"
#: Transfer syntaxes with compressed frames that are read, and what they are called.
COMPRESSED = {
    RLE: "RLE",
    JPEG: "JPEG",
    "1.2.840.10008.1.2.4.90": "JPEG 2000",
    "1.2.840.10008.1.2.4.91": "JPEG 2000",
}
NATIVE = (_IMPLICIT, _EXPLICIT, _DEFLATED)

# Programs that a system would start if the file were given to it: Windows, Linux, macOS, scripts.
_EXECUTABLES = (
    b"MZ", b"\x7fELF", b"#!", b"\xfe\xed\xfa", b"\xce\xfa\xed\xfe", b"\xcf\xfa\xed\xfe",
    b"\xca\xfe\xba\xbe",
)  # fmt: skip
_SHORT = frozenset(
    b"AE AS AT CS DA DS DT FD FL IS LO LT PN SH SL SS ST TM UI UL US".split()
)  # a length of 2 bytes
_LONG = frozenset(b"OB OD OF OL OV OW SQ SV UC UN UR UT UV".split())  # of 4 bytes
_UNDEFINED = 0xFFFFFFFF
_TRANSFER_SYNTAX = (0x0002, 0x0010)
_PIXELS = (0x7FE0, 0x0010)
_ITEM, _ITEM_END, _SEQUENCE_END = (0xFFFE, 0xE000), (0xFFFE, 0xE00D), (0xFFFE, 0xE0DD)
_MAX_DEPTH = 24
_MAX_ELEMENTS = 500_000
# All elements but the pixels may take this much once inflated.
_HEADER_ROOM = 2**26


class NoPicture(CapsMedError):
    """A DICOM object of another kind, which may lie beside a series."""


class NoPixels(NoPicture, InvalidInput):
    """A directory, a report, a presentation state."""


class IsSegmentation(NoPicture, UnsupportedFormat):
    """A DICOM SEG."""


@dataclass(frozen=True)
class DicomLayout:
    """What the walk found.

    Attributes:
        syntax: the transfer syntax' identifier.
        pixels: bytes of the native pixel data; None where its frames are compressed.
        fragments: how many pieces the compressed pixel data has.
    """

    syntax: str
    pixels: int | None
    fragments: int


def recognises(data: bytes) -> bool:
    """Whether `data` has DICOM's magic after the preamble."""
    return data[PREAMBLE : PREAMBLE + 4] == MAGIC


def read_layout(data: bytes, limits: Limits) -> DicomLayout:
    """Walk every element; nothing is decoded.

    Raises:
        InvalidInput: a program in the preamble, an element that reaches past the end, nesting
            beyond `_MAX_DEPTH`, or no pixels.
        InputTooLarge: the deflated part is over the bounds.
        UnsupportedFormat: a transfer syntax that is not read.
    """
    if data.startswith(_EXECUTABLES):
        raise InvalidInput("DICOM: its preamble holds a program: have the file checked")
    syntax, start = _file_header(data)
    if syntax not in NATIVE and syntax not in COMPRESSED:
        raise UnsupportedFormat(
            "DICOM: this transfer syntax is not read: store it uncompressed, as RLE or JPEG 2000"
        )
    body = data[start:]
    if syntax == _DEFLATED:
        body = inflate_raw("DICOM", body, limits.max_inflated_bytes + _HEADER_ROOM)
    walk = _Walk(body, explicit=syntax != _IMPLICIT)
    walk.elements(0, len(body), 0)
    if walk.pixels is None and walk.fragments == 0:
        raise NoPixels("DICOM: it holds no picture (no Pixel Data)")
    if (walk.pixels is None) != (syntax in COMPRESSED):
        raise InvalidInput("DICOM: the pixel data is not of the transfer syntax that it declares")
    return DicomLayout(syntax, walk.pixels, walk.fragments)


def _file_header(data: bytes) -> tuple[str, int]:
    """The transfer syntax, and where the data set begins."""
    walk = _Walk(data, explicit=True)
    position, syntax = PREAMBLE + len(MAGIC), ""
    while position + 8 <= len(data) and data[position : position + 2] == b"\2\0":
        tag, _, length, value = walk.head(position, len(data))
        if length == _UNDEFINED or value + length > len(data):
            raise _cut()
        if tag == _TRANSFER_SYNTAX:
            syntax = data[value : value + length].rstrip(b"\0 ").decode("ascii", "replace")
        position = value + length
    if not syntax:
        raise InvalidInput("DICOM: the file header names no transfer syntax")
    return syntax, position


class _Walk:
    """Follows lengths through the elements of one data set."""

    def __init__(self, data: bytes, explicit: bool) -> None:
        self.data, self.explicit = data, explicit
        self.pixels: int | None = None
        self.fragments = 0
        self._left = _MAX_ELEMENTS

    def head(
        self, position: int, end: int, explicit: bool | None = None
    ) -> tuple[tuple[int, int], bytes, int, int]:
        """Tag, value representation, length, and where the value begins."""
        self._left -= 1
        if self._left < 0:
            raise InvalidInput(f"DICOM: more than {_MAX_ELEMENTS} elements")
        if position + 8 > end:
            raise _cut()
        group, element = struct.unpack_from("<HH", self.data, position)
        if not (self.explicit if explicit is None else explicit) or group == 0xFFFE:
            (length,) = struct.unpack_from("<I", self.data, position + 4)
            return (group, element), b"", length, position + 8
        kind = self.data[position + 4 : position + 6]
        if kind in _SHORT:
            (length,) = struct.unpack_from("<H", self.data, position + 6)
            return (group, element), kind, length, position + 8
        if kind not in _LONG or position + 12 > end:
            raise InvalidInput("DICOM: an element has no known type: the file is broken")
        (length,) = struct.unpack_from("<I", self.data, position + 8)
        return (group, element), kind, length, position + 12

    def elements(
        self, position: int, end: int, depth: int, *, open_end: bool = False,
        explicit: bool | None = None,
    ) -> int:  # fmt: skip
        """Walk up to `end`, or with `open_end` to an item's end mark; where it ended."""
        if depth > _MAX_DEPTH:
            raise InvalidInput(f"DICOM: sequences are nested more than {_MAX_DEPTH} deep")
        while position < end:
            tag, kind, length, value = self.head(position, end, explicit)
            if tag == _ITEM_END and open_end and length == 0:
                return value
            if tag[0] == 0xFFFE:
                raise InvalidInput("DICOM: an item lies outside a sequence")
            if tag == _PIXELS and depth == 0:
                position = self._pixel_data(value, length, end)
            elif length == _UNDEFINED:
                if kind not in (b"SQ", b"UN", b""):
                    raise InvalidInput("DICOM: an element that is no sequence has no length")
                implied = False if kind == b"UN" else explicit
                position = self._items(value, end, depth, open_end=True, explicit=implied)
            elif value + length > end:
                raise _cut()
            else:
                if kind == b"SQ":
                    self._items(value, value + length, depth, open_end=False, explicit=explicit)
                position = value + length
        if open_end:
            raise _cut()
        return position

    def _items(
        self, position: int, end: int, depth: int, *, open_end: bool, explicit: bool | None
    ) -> int:
        while position < end:
            tag, _, length, value = self.head(position, end, explicit)
            if tag == _SEQUENCE_END and open_end and length == 0:
                return value
            if tag != _ITEM:
                raise InvalidInput("DICOM: a sequence holds something other than items")
            if length == _UNDEFINED:
                position = self.elements(value, end, depth + 1, open_end=True, explicit=explicit)
            elif value + length > end:
                raise _cut()
            else:
                self.elements(value, value + length, depth + 1, explicit=explicit)
                position = value + length
        if open_end:
            raise _cut()
        return position

    def _pixel_data(self, position: int, length: int, end: int) -> int:
        if self.pixels is not None or self.fragments:
            raise InvalidInput("DICOM: the pixel data is given twice")
        if length != _UNDEFINED:
            if position + length > end:
                raise _cut()
            self.pixels = length
            return position + length
        while position < end:
            tag, _, length, value = self.head(position, end)
            if tag == _SEQUENCE_END and length == 0:
                self.fragments -= 1  # the first piece is the table of offsets
                return value
            if tag != _ITEM or value + length > end:
                raise _cut()
            self.fragments += 1
            position = value + length
        raise _cut()


def _cut() -> InvalidInput:
    return InvalidInput("DICOM: an element reaches past the end: the file is cut or broken")
