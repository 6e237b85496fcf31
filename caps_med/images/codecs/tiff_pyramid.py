"""A large picture in several sizes, as written by whole-slide scanners.

OME-TIFF holds the smaller ones in directories of the first page (SubIFDs); others, such as Aperio's
SVS, on the pages after it, beside pictures of the slide's label and of the whole glass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from caps_med.errors import InputTooLarge, InvalidInput
from caps_med.images.codecs.tiff_pages import Outline, Pages
from caps_med.images.image import Kind, MedicalImage
from caps_med.images.limits import Limits

#: Proportions of two sizes of one picture may differ by this share, or by so many pixels.
_TOLERANCE, _PIXELS = 0.02, 2


@dataclass(frozen=True)
class Pyramid:
    """The sizes of one picture.

    Attributes:
        sizes: by the number that selects one, with 0 for the largest; for pages, the page numbers.
        inside: whether the smaller ones are parts of the first page.
    """

    sizes: dict[int, tuple[int, int]]
    inside: bool

    def read(self, pages: Pages, index: int, kind: Kind) -> MedicalImage:
        """The picture in the size with that number.

        Raises:
            InvalidInput: there is no such size.
        """
        if index not in self.sizes:
            raise InvalidInput(f"TIFF: no size {index} of the picture: there are {self.listed()}")
        if self.inside and index:
            return pages.read_part(index - 1, kind)
        return pages.read(index, kind)

    def listed(self, limits: Limits | None = None) -> str:
        """The sizes; only those within `limits`."""
        found = []
        for index, (height, width) in self.sizes.items():
            try:
                if limits is not None:
                    limits.check_array((height, width))
            except InputTooLarge:
                continue
            found.append(f"{index} ({height} x {width})")
        return " or ".join(found)


def read_full(pages: Pages, kind: Kind, limits: Limits) -> MedicalImage:
    """The picture on the first page, which is its full size.

    Raises:
        InputTooLarge: it is over `limits`; the message names the smaller sizes that fit.
    """
    try:
        return pages.read(0, kind)
    except InputTooLarge as error:
        pyramid = pyramid_of(pages)
        if pyramid is None or not (fitting := pyramid.listed(limits)):
            raise
        raise InputTooLarge(
            f"{error}; or choose a smaller size of it, {fitting}, with --volume N (Python: "
            "read_image(..., index=N), HTTP: ?volume=N)"
        ) from error


def pyramid_of(pages: Pages) -> Pyramid | None:
    """The sizes of the only picture in the file; None if it holds something else."""
    first = pages.outline(0)
    if pages.count == 1:
        parts = [k for k, part in enumerate(pages.parts, start=1) if _is_smaller(part, first)]
        return _pyramid(first, dict(enumerate(pages.parts, start=1)), parts, inside=True)
    others = {k: pages.outline(k) for k in range(1, pages.count)}
    smaller = [
        k for k, one in others.items()
        if _is_smaller(one, first) and (one.reduced or first.tiled)
    ]  # fmt: skip
    beside = [k for k, one in others.items() if one.reduced or (first.tiled and not one.tiled)]
    if set(others) - {*smaller, *beside}:
        return None
    return _pyramid(first, others, smaller, inside=False)


def _pyramid(
    first: Outline, others: dict[int, Outline], smaller: Sequence[int], *, inside: bool
) -> Pyramid | None:
    if not smaller:
        return None
    chosen = {0: first} | {k: others[k] for k in smaller}
    return Pyramid({k: (one.height, one.width) for k, one in chosen.items()}, inside)


def _is_smaller(one: Outline, first: Outline) -> bool:
    """Whether it has fewer pixels in the same proportions."""
    if not (0 < one.height < first.height and 0 < one.width < first.width):
        return False
    height = first.height * one.width / first.width
    return abs(one.height - height) <= max(_PIXELS, _TOLERANCE * height)
