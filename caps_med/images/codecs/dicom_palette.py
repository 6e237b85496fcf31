"""Palettes: pictures whose stored values are colour indices, as is common in ultrasound.

Palette Color Lookup Tables: DICOM PS3.3, C.7.6.3.1.5 and C.7.6.3.1.6; in segments: C.7.9.2.
"""

from __future__ import annotations

import numpy as np
from pydicom.dataset import Dataset

from caps_med.errors import InvalidInput, UnsupportedFormat
from caps_med.images.codecs.pictures import is_grey
from caps_med.images.image import Array

PHOTOMETRIC = "PALETTE COLOR"
_TABLES = tuple(f"{colour}PaletteColorLookupTable" for colour in ("Red", "Green", "Blue"))
#: Elements that `Palette` reads.
TAGS = (
    *(f"{table}Descriptor" for table in _TABLES),
    *(f"{table}Data" for table in _TABLES),
    *(f"Segmented{table}Data" for table in _TABLES),
)
#: What a table has at most: its descriptor then says 0.
_MOST = 2**16
_DISCRETE, _LINEAR = 0, 1


class Palette:
    """The colours of a picture; a palette of greys is grey, as in PNG and TIFF.

    Args:
        header: of the file.
        big_endian: whether its tables are big-endian.

    Attributes:
        channels: 1 for greys, otherwise 3.

    Raises:
        InvalidInput: a table is missing or truncated, or the three differ in size.
        UnsupportedFormat: a table refers to parts of itself.
    """

    def __init__(self, header: Dataset, *, big_endian: bool) -> None:
        counts, firsts, bits = zip(*(_described(header, table) for table in _TABLES), strict=True)
        if len({*counts}) > 1 or len({*firsts}) > 1:
            raise InvalidInput("DICOM: the palettes of red, green and blue are of different sizes")
        order = ">" if big_endian else "<"
        tables = [
            _table(header, *given, order)
            for given in zip(_TABLES, counts, bits, strict=True)
        ]  # fmt: skip
        colours = np.stack(tables, axis=-1)
        if colours.max() > np.iinfo(np.uint8).max:  # some with 8 bits say that they have 16
            colours >>= 8
        colours = colours.astype(np.uint8)
        self.channels = 1 if is_grey(colours) else 3
        self._colours = colours[:, 0] if self.channels == 1 else colours
        signed = header.get("PixelRepresentation") == 1
        self._first = int(np.array(firsts[0]).astype(np.int16 if signed else np.uint16))

    def applied(self, stored: Array) -> Array:
        """The colours ``[F, H, W, 3]``, or greys ``[F, H, W]``, of stored values ``[F, H, W]``.

        Values outside the table get the colour of its first or last entry.
        """
        found = np.empty((*stored.shape, *self._colours.shape[1:]), np.uint8)
        for picture, frame in zip(found, stored, strict=True):
            numbers = frame.astype(np.int64) - self._first
            picture[...] = self._colours[numbers.clip(0, len(self._colours) - 1)]
        return found


def _described(header: Dataset, table: str) -> tuple[int, int, int]:
    """Number of entries, the stored value of the first, and bits of each."""
    described = header.get(f"{table}Descriptor")
    if described is None or len(described) != 3:
        raise InvalidInput("DICOM: a palette is missing (Palette Color Lookup Table Descriptor)")
    count, first, bits = map(int, described)
    return count % _MOST or _MOST, first, bits


def _table(header: Dataset, table: str, count: int, bits: int, order: str) -> Array:
    """The entries, with 16 bits."""
    segmented = f"Segmented{table}Data" in header
    content = header.get(f"{'Segmented' if segmented else ''}{table}Data")
    words = np.frombuffer(content or b"", f"{order}u2").astype("<u2")
    octets = words.view(np.uint8).astype(np.uint16)
    if segmented:
        return _expanded(octets if bits == 8 else words, count)
    entries = words if len(words) >= count else octets  # whatever number of bits is said
    if len(entries) < count:
        raise _cut()
    return entries[:count]


def _expanded(codes: Array, count: int) -> Array:
    """The `count` entries given by segments: single values, or steps to a last value."""
    pieces, at, size = [np.empty(0, np.uint16)], 0, 0
    while size < count and at + 2 < len(codes):
        kind, length = int(codes[at]), int(codes[at + 1])
        if kind == _DISCRETE:
            piece, at = codes[at + 2 : at + 2 + length], at + 2 + length
        elif kind == _LINEAR and size:
            line = np.linspace(pieces[-1][-1], codes[at + 2], length + 1)[1:]
            piece, at = np.rint(line).astype(np.uint16), at + 3
        else:
            raise UnsupportedFormat(
                "DICOM: a palette whose segments refer to each other is not read: convert the "
                "picture to RGB"
            )
        if len(piece) < max(length, 1):
            raise _cut()
        pieces.append(piece)
        size += length
    if size != count:
        raise _cut()
    return np.concatenate(pieces)


def _cut() -> InvalidInput:
    return InvalidInput("DICOM: a palette has another size than its descriptor says")
