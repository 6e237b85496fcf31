"""A walk over the elements of a DICOM file in plain Python, before a library parses them.

Encoding: DICOM PS3.5 chapter 7; the file's own header: PS3.10 chapter 7.
"""

from __future__ import annotations

import io
import struct
from array import array
from dataclasses import dataclass, field
from typing import BinaryIO

from caps_med.errors import InputTooLarge, InvalidInput, UnsupportedFormat
from caps_med.images.codecs.streams import inflate_raw, peek_raw
from caps_med.images.limits import Limits

PREAMBLE, MAGIC = 128, b"DICM"

_UIDS = "1.2.840.10008.1.2"
_IMPLICIT, _EXPLICIT, BIG_ENDIAN = _UIDS, f"{_UIDS}.1", f"{_UIDS}.2"
_DEFLATED = f"{_UIDS}.1.99"
RLE = f"{_UIDS}.5"
#: ITU-T T.81 of 8 bits; of 8 or 12 bits; lossless, by any predictor or the first.
JPEG, JPEG_EXTENDED = f"{_UIDS}.4.50", f"{_UIDS}.4.51"
JPEG_LOSSLESS = (f"{_UIDS}.4.57", f"{_UIDS}.4.70")
JPEG_LS = (f"{_UIDS}.4.80", f"{_UIDS}.4.81")
#: Part 1 of the standard, and with its high-throughput coder.
JPEG_2000 = tuple(f"{_UIDS}.4.{number}" for number in (90, 91, 201, 202, 203))
#: Transfer syntaxes that are read, with native and with compressed frames.
NATIVE = (_IMPLICIT, _EXPLICIT, BIG_ENDIAN, _DEFLATED)
COMPRESSED = (RLE, JPEG, JPEG_EXTENDED, *JPEG_LOSSLESS, *JPEG_LS, *JPEG_2000)

_NOT_READ = (
    "DICOM: this transfer syntax is not read (a video, or a manufacturer's own): convert the file "
    "with `gdcmconv --raw IN OUT` of python-gdcm"
)

# Programs that a system would start if the file were given to it: Windows, Linux, macOS, scripts.
_EXECUTABLES = (
    b"MZ", b"\x7fELF", b"#!", b"\xfe\xed\xfa", b"\xce\xfa\xed\xfe", b"\xcf\xfa\xed\xfe",
    b"\xca\xfe\xba\xbe",
)  # fmt: skip
_SHORT = frozenset(
    b"AE AS AT CS DA DS DT FD FL IS LO LT PN SH SL SS ST TM UI UL US".split()
)  # a length of 2 bytes
_ENCAPSULATED = (b"OB", b"OW")
_LONG = frozenset(b"OB OD OF OL OV OW SQ SV UC UN UR UT UV".split())  # of 4 bytes
_UNDEFINED = 0xFFFFFFFF
_TRANSFER_SYNTAX = (0x0002, 0x0010)
_PIXELS = (0x7FE0, 0x0010)
#: Float Pixel Data and Double Float Pixel Data, which stand in place of them.
_FLOAT_PIXELS = ((0x7FE0, 0x0008), (0x7FE0, 0x0009))
#: Of the file header, and of data sets: little and big endian.
_FIRST_GROUPS = (b"\2\0", b"\x08\0", b"\0\x08")
_ITEM, _ITEM_END, _SEQUENCE_END = (0xFFFE, 0xE000), (0xFFFE, 0xE00D), (0xFFFE, 0xE0DD)
_MAX_DEPTH = 24
#: What a file may hold: 2,000 frames, each with 800 elements in 25 functional groups. To parse as
#: much at once takes pydicom 7 s and 600 MB, in which an item costs as much as four elements.
_MAX_ELEMENTS = 2_000_000
_ITEM_COST = 4
#: What separates values, and the parts of names. pydicom makes an object of each, which costs about
#: as much as an element, and without types texts may have any length.
_SEPARATORS = (b"\\", b"^", b"=")
_SEPARATED = frozenset((b"", *b"AE AS CS DA DS DT IS LO PN SH TM UC UI UN".split()))
#: Groups from here on hold contours, doses, overlays: nothing here reads their texts.
_FIRST_UNREAD_GROUP = 0x3000
#: Character sets, of which a file may name a few. To look up many takes pydicom their square.
_CHARACTER_SET, _LONGEST_CHARACTER_SET = (0x0008, 0x0005), 512
#: pydicom gives a value of unknown type (UN) that of its dictionary if it is shorter than this.
_LONGEST_RETYPED = 0xFFFF
# All elements but the pixels may take this much once inflated.
_HEADER_ROOM = 2**26
#: The file header, which tells whether the rest is compressed, has fewer bytes.
_LONGEST_FILE_HEADER = 2**14


@dataclass(frozen=True)
class DicomLayout:
    """The result of the walk.

    Attributes:
        syntax: the identifier of the transfer syntax.
        pixels: bytes of the native pixel data; None if its frames are compressed.
        fragments: number of pieces of the compressed pixel data.
        floats: whether there are pixels that are floating-point numbers.
        lengths: positions of sequences without a length, each followed by that length: for
            `with_lengths`.
    """

    syntax: str
    pixels: int | None
    fragments: int
    floats: bool = False
    lengths: array[int] = field(default_factory=lambda: array("Q"), repr=False, compare=False)


def recognises(data: bytes) -> bool:
    """Whether `data` has DICOM's magic after the preamble, or begins like a file without one."""
    return data[PREAMBLE : PREAMBLE + 4] == MAGIC or _begins_like_elements(data)


def holds_program(data: bytes) -> bool:
    """Whether the preamble begins like a program."""
    return data.startswith(_EXECUTABLES)


def read_layout(data: bytes, limits: Limits) -> DicomLayout:
    """Walk every element; nothing is decoded.

    Raises:
        InvalidInput: a program in the preamble, an element that extends past the end, or nesting
            beyond `_MAX_DEPTH`.
        UnsupportedFormat: the same in a private transfer syntax.
        InputTooLarge: too many elements, or the deflated part is over the bounds.
    """
    if holds_program(data):
        raise InvalidInput(
            "DICOM: the preamble contains a program: do not open the file, and have it checked"
        )
    syntax, start = _file_header(data)
    body = data[start:]
    if syntax == _DEFLATED:
        body = inflate_raw("DICOM", body, limits.max_inflated_bytes + _HEADER_ROOM)
    order = ">" if syntax == BIG_ENDIAN else "<"
    walk = _Walk(body, explicit=syntax != _IMPLICIT, order=order)
    try:
        walk.elements(0, len(body), 0)
    except InvalidInput as error:
        if not syntax.startswith(_UIDS):  # such as GE's, whose elements have no types
            raise UnsupportedFormat(_NOT_READ) from error
        raise
    layout = DicomLayout(syntax, walk.pixels, walk.fragments, walk.floats)
    if syntax != _DEFLATED:
        for place, length in zip(*[iter(walk.lengths)] * 2, strict=True):
            layout.lengths.extend((start + place, length))
    return layout


def inflated_beginning(file: BinaryIO) -> BinaryIO | None:
    """The beginning of a compressed data set, which pydicom would inflate as a whole.

    Returns:
        None if the data set is not compressed; `file` is then back at its beginning.

    Raises:
        InvalidInput: the compressed part is broken.
    """
    head = file.read(_LONGEST_FILE_HEADER)
    file.seek(0)
    try:
        syntax, start = _file_header(head)
    except InvalidInput:
        return None
    if syntax != _DEFLATED:
        return None
    file.seek(start)
    return io.BytesIO(peek_raw(file.read(_HEADER_ROOM), _HEADER_ROOM))


def with_lengths(data: bytes, layout: DicomLayout) -> bytes:
    """The content of a file in which sequences without a length have been given one.

    pydicom parses a sequence with a length on access, and any other at once: for thousands of
    frames, most of which are never accessed, this takes many seconds.
    """
    if not layout.lengths:
        return data
    order = ">" if layout.syntax == BIG_ENDIAN else "<"
    changed = bytearray(data)
    for place, length in zip(*[iter(layout.lengths)] * 2, strict=True):
        struct.pack_into(f"{order}I", changed, place, length)
    return bytes(changed)


def check_syntax(layout: DicomLayout) -> None:
    """Reject frames that no decoder here can read.

    Raises:
        UnsupportedFormat: the transfer syntax is not supported.
        InvalidInput: the pixels do not have the transfer syntax that the file declares.
    """
    if layout.syntax not in (*NATIVE, *COMPRESSED):
        raise UnsupportedFormat(_NOT_READ)
    if (layout.pixels is None) != (layout.syntax in COMPRESSED):
        raise InvalidInput("DICOM: the pixel data does not match the transfer syntax in the header")


def _file_header(data: bytes) -> tuple[str, int]:
    """The transfer syntax, and where the data set begins."""
    magic = PREAMBLE + len(MAGIC)
    begin = position = magic if data[PREAMBLE:magic] == MAGIC else 0
    walk, syntax = _Walk(data, explicit=True), ""
    while position + 8 <= len(data) and data[position : position + 2] == b"\2\0":
        tag, _, length, value = walk.head(position, len(data))
        if length == _UNDEFINED or value + length > len(data):
            raise _cut()
        if tag == _TRANSFER_SYNTAX:
            syntax = data[value : value + length].rstrip(b"\0 ").decode("ascii", "replace")
        position = value + length
    if not syntax and position == begin == 0:
        return _guessed_syntax(data), position
    if not syntax:
        raise InvalidInput("DICOM: the file header names no transfer syntax")
    return syntax, position


def _guessed_syntax(data: bytes) -> str:
    """The transfer syntax of a data set without a file header, as older programs stored it."""
    if data[4:6] not in _SHORT | _LONG:
        return _IMPLICIT
    return BIG_ENDIAN if data[:1] == b"\0" else _EXPLICIT


def _begins_like_elements(data: bytes) -> bool:
    """Whether two elements of a file header or of the first group (0008) follow each other."""
    group = next((g for g in _FIRST_GROUPS if data.startswith(g)), None)
    if group is None:
        return False
    syntax = _EXPLICIT if group == b"\2\0" else _guessed_syntax(data)
    order = ">" if group[:1] == b"\0" else "<"
    walk = _Walk(data, explicit=syntax != _IMPLICIT, order=order)
    try:
        first, _, length, value = walk.head(0, len(data))
        second, _, _, _ = walk.head(value + length, len(data))
    except InvalidInput:
        return False
    return first < second and second[0] in (first[0], 0x0008)


def _becomes_sequence(tag: tuple[int, int], kind: bytes, length: int) -> bool:
    """Whether pydicom takes a value without a type for a sequence, following its dictionary."""
    if kind not in (b"", b"UN") or not length or (kind and length >= _LONGEST_RETYPED):
        return False
    from pydicom.datadict import dictionary_VR

    try:
        return dictionary_VR(tag) == "SQ"
    except KeyError:
        return False


class _Walk:
    """Follows lengths through the elements of one data set."""

    def __init__(self, data: bytes, explicit: bool, order: str = "<") -> None:
        self.data, self.explicit, self.order = data, explicit, order
        self.pixels: int | None = None
        self.fragments, self.floats = 0, False
        self.lengths = array("Q")
        self._left = _MAX_ELEMENTS

    def head(
        self, position: int, end: int, explicit: bool | None = None
    ) -> tuple[tuple[int, int], bytes, int, int]:
        """Tag, value representation, length, and where the value begins."""
        if position + 8 > end:
            raise _cut()
        group, element = struct.unpack_from(f"{self.order}HH", self.data, position)
        self._spend(_ITEM_COST if (group, element) == _ITEM else 1)
        if not (self.explicit if explicit is None else explicit) or group == 0xFFFE:
            (length,) = struct.unpack_from(f"{self.order}I", self.data, position + 4)
            return (group, element), b"", length, position + 8
        kind = self.data[position + 4 : position + 6]
        if kind in _SHORT:
            (length,) = struct.unpack_from(f"{self.order}H", self.data, position + 6)
            return (group, element), kind, length, position + 8
        if kind not in _LONG or position + 12 > end:
            raise InvalidInput("DICOM: an element has no known type: the file is broken")
        (length,) = struct.unpack_from(f"{self.order}I", self.data, position + 8)
        return (group, element), kind, length, position + 12

    def elements(
        self, position: int, end: int, depth: int, *, open_end: bool = False,
        explicit: bool | None = None,
    ) -> int:  # fmt: skip
        """Walk up to `end`, or with `open_end` to an item's end mark; returns where it ended."""
        if depth > _MAX_DEPTH:
            raise InvalidInput(f"DICOM: sequences are nested more than {_MAX_DEPTH} deep")
        while position < end:
            if depth == 0 and self._padding(position):
                return end
            tag, kind, length, value = self.head(position, end, explicit)
            if tag == _ITEM_END and open_end and length == 0:
                return value
            if tag[0] == 0xFFFE:
                raise InvalidInput("DICOM: an item lies outside a sequence")
            self.floats = self.floats or (tag in _FLOAT_PIXELS and depth == 0)
            if tag == _PIXELS and depth == 0:
                position = self._pixel_data(value, length, end)
            elif length == _UNDEFINED and kind in _ENCAPSULATED:  # such as an icon's pixels
                position = self._fragments(value, end)[1]
            elif length == _UNDEFINED:
                if kind not in (b"SQ", b"UN", b""):
                    raise InvalidInput("DICOM: an element that is no sequence has no length")
                position = self._items(value, end, depth, open_end=True, explicit=explicit)
                if kind != b"UN":  # whose items would be parsed as those of another encoding
                    self.lengths.extend((value - 4, position - value))
            elif value + length > end:
                raise _cut()
            else:
                if kind == b"SQ" or _becomes_sequence(tag, kind, length):
                    self._items(value, value + length, depth, open_end=False, explicit=explicit)
                elif kind in _SEPARATED and tag[0] < _FIRST_UNREAD_GROUP:
                    self._values(tag, value, value + length)
                position = value + length
        if open_end:
            raise _cut()
        return position

    def _values(self, tag: tuple[int, int], position: int, end: int) -> None:
        """Count the values of one element, and the parts of names."""
        if tag == _CHARACTER_SET and end - position > _LONGEST_CHARACTER_SET:
            raise InvalidInput("DICOM: Specific Character Set names too many: the file is broken")
        self._spend(sum(self.data.count(sign, position, end) for sign in _SEPARATORS))

    def _spend(self, cost: int) -> None:
        self._left -= cost
        if self._left < 0:
            raise InputTooLarge(
                f"DICOM: the file has more than {_MAX_ELEMENTS} elements or values of them "
                f"(an item counts as {_ITEM_COST}): convert the series to NIfTI with dcm2niix"
            )

    def _items(
        self, position: int, end: int, depth: int, *, open_end: bool, explicit: bool | None
    ) -> int:
        while position < end:
            tag, _, length, value = self.head(position, end, explicit)
            if tag == _SEQUENCE_END and open_end and length == 0:
                return value
            if tag != _ITEM:
                raise InvalidInput("DICOM: a sequence holds something other than items")
            typed = (self.explicit if explicit is None else explicit) and self._is_typed(value)
            if length == _UNDEFINED:
                position = self.elements(value, end, depth + 1, open_end=True, explicit=typed)
            elif value + length > end:
                raise _cut()
            else:
                self.elements(value, value + length, depth + 1, explicit=typed)
                position = value + length
        if open_end:
            raise _cut()
        return position

    def _is_typed(self, position: int) -> bool:
        """Whether the first element of an item has a type: pydicom decides by this, too."""
        kind = self.data[position + 4 : position + 6]
        return kind.isalpha() and kind.isupper()

    def _padding(self, position: int) -> bool:
        """Whether only zeros follow the pixels; checked once, at the first of them."""
        if self.pixels is None and not self.fragments:
            return False
        if any(self.data[position : position + 8]):
            return False
        if self.data.count(b"\0", position) < len(self.data) - position:
            raise _cut()
        return True

    def _pixel_data(self, position: int, length: int, end: int) -> int:
        if self.pixels is not None or self.fragments:
            raise InvalidInput("DICOM: the pixel data is given twice")
        if length == _UNDEFINED:
            self.fragments, position = self._fragments(position, end)
            return position
        if position + length > end:
            raise _cut()
        self.pixels = length
        return position + length

    def _fragments(self, position: int, end: int) -> tuple[int, int]:
        """Number of pieces of encapsulated data after its table of offsets, and where it ends."""
        pieces = -1
        while position < end:
            tag, _, length, value = self.head(position, end)
            if tag == _SEQUENCE_END and length == 0:
                return pieces, value
            if tag != _ITEM or value + length > end:
                raise _cut()
            pieces += 1
            position = value + length
        raise _cut()


def _cut() -> InvalidInput:
    return InvalidInput("DICOM: an element reaches past the end: the file is cut or broken")
