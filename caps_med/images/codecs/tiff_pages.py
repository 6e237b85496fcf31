"""The pages of a TIFF file: each is checked before tifffile reads its pixels.

Directories: TIFF 6.0, p. 14; BigTIFF, https://www.awaresystems.be/imaging/tiff/bigtiff.html.
"""

from __future__ import annotations

import logging
import math
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from inspect import getattr_static
from itertools import islice
from types import ModuleType
from typing import Any, BinaryIO

import numpy as np

from caps_med.errors import InputTooLarge, InvalidInput, UnsupportedFormat
from caps_med.images.codecs import jpeg
from caps_med.images.codecs.pictures import (
    decoding,
    is_grey,
    over_black,
    transparency,
    turned,
)
from caps_med.images.codecs.tiff_calibration import Calibration, calibration_of, imagej_fields
from caps_med.images.image import Array, Kind, MedicalImage
from caps_med.images.limits import Limits

logging.getLogger("tifffile").setLevel(logging.CRITICAL + 1)  # it would log what tags hold

#: Samples of one pixel that are read; more channels are pages.
MAX_CHANNELS = 8
_MAX_PAGES, _MAX_TAGS, _MAX_BITS = 2**14, 4096, 64
_TYPE_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4,
               16: 8, 17: 8, 18: 8}  # fmt: skip
_PRIVATE = 2**15
_JPEG = 7
#: None, CCITT, LZW, JPEG, Deflate, PackBits, Zstandard: what can be decoded within a bound.
_COMPRESSIONS = frozenset((1, 2, 3, 4, 5, _JPEG, 8, 32946, 32773, 34926, 50000))
_WHITE_IS_ZERO, _BLACK_IS_ZERO, _PALETTE, _YCBCR = 0, 1, 3, 6
_COLOURS = {0: 1, 1: 1, 2: 3, 3: 1, 4: 1, 6: 3}
#: Samples of these are channels, whatever their number.
_PLAIN_LIGHT = (1, 2)
_UNASSOCIATED_ALPHA, _ALPHAS = 2, (1, 2)
_ORIENTATION, _SUB_DIRECTORIES = 274, 330
#: Smaller sizes of one picture that are looked at.
_MOST_PARTS = 32


@dataclass(frozen=True)
class Form:
    """What the pages of one volume have in common."""

    height: int
    width: int
    channels: int
    dtype: str
    bits: int
    photometric: int


@dataclass(frozen=True)
class Outline:
    """What a page says about itself.

    Attributes:
        height, width: its size; in a hostile file any number.
        samples: of each pixel.
        reduced: whether it is marked as a smaller version of another picture in the file.
        tiled: whether its pixels are stored in tiles.
    """

    height: int
    width: int
    samples: int
    reduced: bool
    tiled: bool


class Pages:
    """The pages of an open file.

    Args:
        tif: the file.
        count: how many pages `directories` found in it.
        limits: for each page.
        directories: of the same file.
    """

    def __init__(
        self, tif: Any, count: int, limits: Limits, directories: _Directories  # noqa: ANN401 - no types
    ) -> None:  # fmt: skip
        self._tif, self._limits, self._directories = tif, limits, directories
        self.count = count

    def outline(self, index: int) -> Outline:
        """What page `index` says about itself; nothing is checked."""
        return _outline(self._tif.pages[index])

    @cached_property
    def parts(self) -> tuple[Outline, ...]:
        """The directories that belong to the first page (SubIFDs), such as smaller sizes."""
        return tuple(_outline(page) for page in self._parts)

    @cached_property
    def _parts(self) -> tuple[Any, ...]:
        import tifffile

        offsets = self._tif.pages[0].tags.valueof(_SUB_DIRECTORIES, ())
        places = offsets if isinstance(offsets, tuple) else (offsets,)
        found = []
        for number, place in enumerate(places[:_MOST_PARTS]):
            self._directories.check(place)
            self._tif.filehandle.seek(place)
            found.append(tifffile.TiffPage(self._tif, (0, number)))
        return tuple(found)

    @property
    def description(self) -> str:
        """The text that the first page holds about the file."""
        return str(self._tif.pages[0].description)

    @property
    def resolution(self) -> tuple[float, float]:
        """Pixels per unit along x and y; 0 if the first page does not say."""
        across, down = (_ratio(self._tif.pages[0].tags.valueof(tag)) for tag in (282, 283))
        return across, down

    def form(self, index: int) -> Form:
        """The form of page `index`, checked."""
        page = self._page(index)
        calibration, _ = self._calibration(page)
        return Form(
            page.imagelength, page.imagewidth, page.samplesperpixel,
            calibration.dtype if calibration else str(page.dtype),
            page.bitspersample, int(page.photometric),
        )  # fmt: skip

    def read(self, index: int, kind: Kind) -> MedicalImage:
        """The picture on page `index`; see `caps_med.images.codecs.pictures.decode_picture`."""
        page = self._page(index)
        calibration, warnings = self._calibration(page)
        if kind == "labels":  # ids are stored, but for the sign
            calibration, warnings = calibration if calibration and calibration.signed else None, ()
        elif calibration:
            size = np.dtype(calibration.dtype).itemsize
            self._limits.check_array((page.imagelength, page.imagewidth), size)
        image = _picture(page, kind, calibration)
        return replace(image, warnings=image.warnings + warnings)

    def read_part(self, index: int, kind: Kind) -> MedicalImage:
        """The picture in part `index` of the first page, like `read`."""
        page = self._parts[index]
        _check_page(page, self._limits)
        return _picture(page, kind)

    def _calibration(self, page: Any) -> tuple[Calibration | None, tuple[str, ...]]:  # noqa: ANN401
        """See `calibration_of`; ImageJ applies it to grey pages of 8 and 16 bits."""
        known = page.dtype in (np.uint8, np.uint16, np.int16) and page.bitspersample in (8, 16)
        grey = page.samplesperpixel == 1 and page.photometric in (_WHITE_IS_ZERO, _BLACK_IS_ZERO)
        if not (known and grey):
            return None, ()
        return calibration_of(imagej_fields(self.description))

    def _page(self, index: int) -> Any:  # noqa: ANN401
        page = self._tif.pages[index]
        _check_page(page, self._limits)
        return page


@contextmanager
def opened(file: BinaryIO, limits: Limits, most: int | None = None) -> Iterator[Pages]:
    """The first `most` pages of `file`; None for all of them.

    Raises:
        InvalidInput, InputTooLarge, UnsupportedFormat: also for errors inside the block.
    """
    import tifffile

    with decoding("TIFF"):
        count = sum(1 for _ in islice(directories(file), most))
        if count == 0:
            raise InvalidInput("TIFF: it holds no page")
        file.seek(0)
        with tifffile.TiffFile(file, **_without_vendors(tifffile)) as tif:
            yield Pages(tif, count, limits, _Directories(file))


def _without_vendors(tifffile: ModuleType) -> dict[str, bool]:
    """Arguments that leave out readers of vendors' variants, not wanted for bytes from strangers.

    Some versions of tifffile compute a few of these flags from the first page, and raise an error
    if they are given.
    """
    flags = [f"is_{flag}" for flag in tifffile.TIFF.FILE_FLAGS]
    of_file = {flag: getattr_static(tifffile.TiffFile, flag, None) for flag in flags}
    return {flag: False for flag, there in of_file.items() if not isinstance(there, property)}


def directories(file: BinaryIO) -> Iterator[int]:
    """The offsets of the pages' directories; each is checked before the next is looked up.

    Raises:
        InvalidInput: a directory lies outside the file, leads back, or its tags overlap.
        InputTooLarge: there are more than `_MAX_PAGES`.
    """
    checks = _Directories(file)
    position = checks.first
    seen: set[int] = set()
    while position:
        if position in seen:
            raise InvalidInput("TIFF: a directory points at itself or at one before it")
        if len(seen) == _MAX_PAGES:
            raise InputTooLarge(f"TIFF: more than {_MAX_PAGES} pages: split the file")
        seen.add(position)
        following = checks.check(position)
        yield position
        position = following


class _Directories:
    """Checks directories of a file; together they may hold no more than twice the file's size."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._size, self._held = file, file.seek(0, 2), 0
        file.seek(0)
        head = file.read(4)
        self._order = "<" if head.startswith(b"II") else ">"
        self._big = 43 in head[2:]
        forms = ("Q", "Q", "HHQQ", 8) if self._big else ("I", "H", "HHII", 4)
        self._pointer, self._counter, self._row, self._inline = forms

    @property
    def first(self) -> int:
        """The offset of the first directory."""
        return _number(self._file, 8 if self._big else 4, self._order + self._pointer)

    def check(self, position: int) -> int:
        """Check the directory at that offset; returns that of the next one, 0 after the last."""
        width = struct.calcsize(self._order + self._row)
        count = _number(self._file, position, self._order + self._counter)
        if count > _MAX_TAGS:
            raise InvalidInput(f"TIFF: a directory of {count} tags: the file is broken")
        rows = self._file.read(count * width)
        if len(rows) < count * width:
            raise InvalidInput("TIFF: a directory lies outside the file: copy it again")
        for tag, code, number, where in struct.iter_unpack(self._order + self._row, rows):
            length = _TYPE_SIZES.get(code, 0) * number
            if tag < _PRIVATE and self._inline < length > self._size - where:
                raise InvalidInput("TIFF: a tag lies outside the file: copy it again")
            self._held += length
        if self._held > 2 * self._size:
            raise InvalidInput("TIFF: its tags hold more than the file: the file is broken")
        end = position + struct.calcsize(self._order + self._counter) + count * width
        return _number(self._file, end, self._order + self._pointer)


def _outline(page: Any) -> Outline:  # noqa: ANN401 - no types
    size = int(page.imagelength), int(page.imagewidth), int(page.samplesperpixel)
    return Outline(*size, bool(page.is_reduced), bool(page.is_tiled))


def _number(file: BinaryIO, position: int, format: str) -> int:
    try:
        file.seek(position)
        return int(struct.unpack(format, file.read(struct.calcsize(format)))[0])
    except (struct.error, OverflowError, ValueError) as error:
        raise InvalidInput("TIFF: a directory lies outside the file: copy it again") from error


def _ratio(value: Any) -> float:  # noqa: ANN401 - whatever the tag holds
    numerator, denominator = value if isinstance(value, tuple) and len(value) == 2 else (0, 1)
    return numerator / denominator if denominator else 0.0


def _check_page(page: Any, limits: Limits) -> None:  # noqa: ANN401
    height, width, channels = page.imagelength, page.imagewidth, page.samplesperpixel
    bits = page.bitspersample
    if min(height, width) < 1 or not 1 <= channels <= MAX_CHANNELS or np.max(bits) > _MAX_BITS:
        raise InvalidInput(
            f"TIFF: invalid picture: {height} x {width} pixels, {channels} channels of {bits} bits"
        )
    if page.dtype is None or page.dtype.kind not in "buif":
        raise UnsupportedFormat(
            f"TIFF: samples of {bits} bits in this form are not read: save integers or floats of "
            "up to 64 bits"
        )
    if page.compression not in _COMPRESSIONS:
        raise UnsupportedFormat(
            "TIFF: this compression is not read: save it with LZW, Deflate, Zstandard or none"
        )
    if page.photometric == _YCBCR and page.compression != _JPEG:
        raise UnsupportedFormat("TIFF: YCbCr colours are read from JPEG alone: save it as RGB")
    if page.imagedepth != 1 or page.tiledepth != 1:
        raise UnsupportedFormat("TIFF: volumes on one page are not read: save one slice a page")
    limits.check_array((height, width), channels * page.dtype.itemsize)
    segment = (page.tilelength, page.tilewidth) if page.is_tiled else (page.rowsperstrip, width)
    limits.check_array(segment, channels * page.dtype.itemsize)
    _check_segments(page, segment)


def _check_segments(page: Any, segment: tuple[int, int]) -> None:  # noqa: ANN401
    """Check that all strips or tiles are there; tifffile would leave the others black."""
    expected = math.ceil(page.imagelength / segment[0]) * math.ceil(page.imagewidth / segment[1])
    expected *= page.samplesperpixel if page.planarconfig == 2 else 1
    offsets, lengths = (np.array(n, np.uint64) for n in (page.dataoffsets, page.databytecounts))
    size = np.uint64(page.parent.filehandle.size)
    if not len(offsets) == len(lengths) == expected:
        raise InvalidInput("TIFF: strips or tiles are missing: the file is broken")
    if not ((offsets > 0) & (lengths > 0) & (offsets <= size)).all():
        raise InvalidInput("TIFF: the picture is cut or broken: copy the file again")
    if (lengths > size - offsets).any():
        raise InvalidInput("TIFF: the picture is cut or broken: copy the file again")
    if page.compression == _JPEG:
        for offset, length in zip(offsets.tolist(), lengths.tolist(), strict=True):
            page.parent.filehandle.seek(offset)
            content = page.parent.filehandle.read(length)
            frame = jpeg.frame_of(content)
            if frame.height > segment[0] or frame.width > segment[1]:
                raise InvalidInput("TIFF: a JPEG in it is larger than its strip or tile")
            tables = page.jpegtables  # what all strips share, a JPEG without pictures
            jpeg.check_undamaged(tables[:-2] + content[2:] if tables else content)


def _picture(
    page: Any, kind: Kind, calibration: Calibration | None = None  # noqa: ANN401
) -> MedicalImage:  # fmt: skip
    """A picture `[C, H, W]`, upright, without transparency; for labels C is 1 or 3."""
    samples = page.asarray(maxworkers=1, squeeze=False)[:, 0]  # [planes, H, W, samples]
    array = np.moveaxis(samples, -1, 1).reshape(page.samplesperpixel, *samples.shape[1:3])
    array = turned(array, page.tags.valueof(_ORIENTATION, 1))
    array = array.astype(np.uint8) if array.dtype.kind == "b" else array
    array, warnings = _opaque(array, page, kind)
    palette = None
    if page.photometric not in _COLOURS or len(array) not in (1, _COLOURS[page.photometric]):
        several = kind == "image" and page.photometric in _PLAIN_LIGHT
        if len(array) != 3 and not several:
            raise UnsupportedFormat(
                "TIFF: only grey and RGB pictures, with or without alpha, can be read: convert "
                "the file to one of them"
            )
    elif page.photometric == _PALETTE:
        palette = (page.colormap >> 8).astype(np.uint8).T
        if kind == "image":
            array = np.moveaxis(palette[array[0]], -1, 0)[: 1 if is_grey(palette) else 3]
    elif calibration:
        array = calibration.values(array)
    else:
        array = _levels(array, page, kind)
        if kind == "labels" and page.photometric == _WHITE_IS_ZERO:
            warnings = (*warnings, "TIFF: white is 0 here; ids are the numbers as they are stored")
    array = np.require(array.astype(array.dtype.newbyteorder("="), copy=False), None, ["C", "W"])
    kept = palette if kind == "labels" else None
    white = 2**page.bitspersample - 1 if array.dtype == np.uint16 else None
    return MedicalImage(array, format="tiff", palette=kept, warnings=warnings, white=white)


def _levels(array: Array, page: Any, kind: Kind) -> Array:  # noqa: ANN401
    """Samples that are brighter if larger; images with 1, 2 or 4 bits are scaled to 0..255.

    Ids stay as stored, however bright they are displayed: ImageJ saves masks that are black on
    white, and tifffile booleans, as samples in which white is 0, but marked pixels are 255 or True.
    """
    if kind == "labels":
        return array
    top = 2**page.bitspersample - 1
    if page.photometric == _WHITE_IS_ZERO:
        if array.dtype.kind != "u":
            raise UnsupportedFormat(
                "TIFF: signed and float samples in which white is 0 cannot be read: save the "
                "picture with black as 0"
            )
        array = array.dtype.type(top) - array
    return array * np.uint8(255 // top) if top in (1, 3, 15) else array


def _opaque(array: Array, page: Any, kind: Kind) -> tuple[Array, tuple[str, ...]]:  # noqa: ANN401
    """The channels without alpha, blended over black."""
    if not page.extrasamples or page.extrasamples[-1] not in _ALPHAS or len(array) < 2:
        return array, ()
    colours, alpha = array[:-1], array[-1]
    top = 1 if alpha.dtype.kind == "f" else 2**page.bitspersample - 1
    if (alpha == top).all():
        return colours, ()
    warnings = transparency("tiff", kind)
    if page.extrasamples[-1] == _UNASSOCIATED_ALPHA:
        colours = over_black(colours, alpha, top)
    return colours, warnings
