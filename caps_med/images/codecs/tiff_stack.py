"""The pages of a file as described by OME-TIFF and ImageJ: slices, channels, times, voxel sizes.

OME: https://docs.openmicroscopy.org/ome-model/latest/ome-tiff/specification.html. Its text is not
given to an XML parser, because it is not trusted.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from caps_med.errors import UnsupportedFormat
from caps_med.images.codecs.tiff_calibration import imagej_fields, real
from caps_med.images.codecs.tiff_pages import Pages
from caps_med.images.units import MILLIMETRES

# none of these looks at a character more than a few times, whatever the text
_OME_PIXELS = re.compile(r"<(?:\w+:)?Pixels\b([^<>]{0,4000})>")
_OME_PAGES = re.compile(r"<(?:\w+:)?TiffData\b([^<>]{0,1000})>")
_ATTRIBUTE = re.compile(r"""\b(\w+)\s*=\s*("[^"]*"|'[^']*')""")
_AXES = "XYCZT"


@dataclass(frozen=True)
class Stack:
    """The pages as described by OME or ImageJ.

    Attributes:
        slices: along the third axis.
        channels: of each slice, in addition to those of each pixel.
        frames: time points.
        interleaved: whether the channels of a slice follow each other, or the slices of a channel.
        spacing: of columns, rows and slices in mm; None if one of them is unknown.
        order: the page of each plane; empty if they are in order.
    """

    slices: int = 1
    channels: int = 1
    frames: int = 1
    interleaved: bool = True
    spacing: tuple[float, float, float] | None = None
    order: tuple[int, ...] = ()

    @property
    def planes(self) -> int:
        """The number of pages of such a stack."""
        return self.slices * self.channels * self.frames


def described(pages: Pages) -> Stack:
    """The stack in the description of the first page, as written by OME or ImageJ.

    Raises:
        UnsupportedFormat: it describes several images, or planes that the file does not have.
    """
    text = pages.description
    if fields := imagej_fields(text):
        return _of_imagej(fields, pages)
    if images := _OME_PIXELS.findall(text):
        if len(images) > 1:
            raise UnsupportedFormat(
                f"TIFF: one image is read, this OME-TIFF has {len(images)} (series): save each in "
                "a file"
            )
        return _of_ome(_attributes(images[0]), pages, _OME_PAGES.findall(text))
    return Stack()


def _of_imagej(fields: Mapping[str, str], pages: Pages) -> Stack:
    slices, channels, frames = (
        _whole(fields.get(name)) for name in ("slices", "channels", "frames")
    )
    if slices * channels * frames == 1:
        frames = _whole(fields.get("images"))
    across, down, through = (
        MILLIMETRES.get(fields.get(name, fields.get("unit", "")).lower(), 0.0)
        for name in ("unit", "yunit", "zunit")
    )
    columns, rows = (1 / pixels if pixels > 0 else 0.0 for pixels in pages.resolution)
    depth = real(fields.get("spacing", "1"))  # which ImageJ leaves out if it is 1
    spacing = _known(across * columns, down * rows, through * depth)
    stack = Stack(slices, channels, frames, spacing=spacing)
    if pages.count == 1 < stack.planes:
        raise UnsupportedFormat(
            f"TIFF: one page holds all {stack.planes} pictures, as ImageJ writes large stacks: "
            "save it as OME-TIFF"
        )
    if stack.planes > 1:
        _check_count(stack.planes, pages)
    return stack


def _of_ome(fields: Mapping[str, str], pages: Pages, parts: Sequence[str]) -> Stack:
    """The stack of one image; `parts` are the attributes of its TiffData."""
    sizes = (
        real(fields.get(f"PhysicalSize{axis}"))
        * MILLIMETRES.get(fields.get(f"PhysicalSize{axis}Unit", "µm").lower(), 0.0)
        for axis in "XYZ"
    )
    lengths = {axis: _whole(fields.get(f"Size{axis}")) for axis in "CZT"}
    samples = max(1, pages.outline(0).samples)  # of each pixel, which OME counts as channels
    lengths["C"] //= samples if lengths["C"] % samples == 0 else 1
    order = fields.get("DimensionOrder", "")
    order = order if sorted(order) == sorted(_AXES) else _AXES
    _check_count(math.prod(lengths.values()), pages)
    return Stack(
        lengths["Z"], lengths["C"], lengths["T"],
        order.find("C") < order.find("Z"),
        _known(*sizes),
        _pages_of({axis: lengths[axis] for axis in order[2:]}, pages, parts),
    )  # fmt: skip


def _pages_of(lengths: Mapping[str, int], pages: Pages, parts: Sequence[str]) -> tuple[int, ...]:
    """The page of each plane, with planes counted along the axes of `lengths`, fastest first."""
    order: dict[int, int] = {}
    for part in map(_attributes, parts):
        plane, step = 0, 1
        for axis, length in lengths.items():
            plane += step * _index(part.get(f"First{axis}"))
            step *= length
        page = _index(part.get("IFD"))
        count = _whole(part.get("PlaneCount", "1" if "IFD" in part else str(pages.count)))
        order |= {plane + k: page + k for k in range(min(count, pages.count))}
    if order and not set(order) == set(order.values()) == set(range(pages.count)):
        raise UnsupportedFormat(
            "TIFF: OME names pages that this file does not have, or one twice: save it again"
        )
    return tuple(order[plane] for plane in sorted(order))


def _check_count(planes: int, pages: Pages) -> None:
    if planes != pages.count:
        raise UnsupportedFormat(
            f"TIFF: the description lists {planes} pages, but the file has {pages.count}: some "
            "are missing or in other files; save all of them in one file"
        )


def _attributes(text: str) -> dict[str, str]:
    return {name: html.unescape(value[1:-1]) for name, value in _ATTRIBUTE.findall(text)}


def _known(*spacing: float) -> tuple[float, float, float] | None:
    across, down, through = (abs(mm) for mm in spacing)
    return (across, down, through) if min(across, down, through) > 0 else None


def _whole(text: str | None) -> int:
    """A number of at least 1; the default is 1."""
    return max(_index(text), 1)


def _index(text: str | None) -> int:
    """A number of at least 0; the default is 0."""
    return int(text) if text and re.fullmatch(r"[0-9]{1,9}", text) else 0
