"""Crop a region of one slice into a separate picture."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from caps_med.errors import InvalidParameter
from caps_med.images.image import MedicalImage
from caps_med.images.slices import Plane, SliceStack, one_slice


class Region(NamedTuple):
    """A rectangle of pixels: its first row and column, and its size."""

    row: int
    column: int
    height: int
    width: int

    @classmethod
    def parse(cls, text: str) -> Region:
        """From ``row,column,height,width``.

        Raises:
            InvalidParameter: the text does not have this form.
        """
        try:
            return cls(*(int(part) for part in text.split(",")))
        except (ValueError, TypeError) as error:
            raise InvalidParameter(
                f"region={text!r}: give row,column,height,width in pixels, such as 10,20,64,64"
            ) from error


def cropped(
    image: MedicalImage, region: Region, slice: int | None = None, plane: Plane = "axial"
) -> MedicalImage:
    """The pixels of a region of a picture, or of one slice of a volume, as a picture.

    Args:
        slice: of a volume, counted along `plane`; None for the middle one.

    Raises:
        InvalidParameter: there is no such slice, or the region is empty or extends beyond it.
    """
    [pixels] = SliceStack.from_image(one_slice(image, slice, plane), plane).array
    rows, columns = pixels.shape[1:]
    row, column, height, width = region
    inside = row >= 0 and column >= 0 and row + height <= rows and column + width <= columns
    if not inside or min(height, width) < 1:
        raise InvalidParameter(
            f"region={row},{column},{height},{width}: must lie in the slice of {rows} rows and "
            f"{columns} columns"
        )
    part = np.ascontiguousarray(pixels[:, row : row + height, column : column + width])
    return MedicalImage(part, format="png", warnings=image.warnings, white=image.white)
