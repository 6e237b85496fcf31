"""What ImageJ writes into the first page of a file, and the calibration of values in it.

ImageJ holds pixels of 8 and 16 bits without sign, and shows a function of them: signed 16-bit
images, such as CT, are stored as value + 32768. See `setCalibration` of its FileOpener and
`getCValue` of its Calibration.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from caps_med.images.image import Array

_STRAIGHT_LINE, _NONE = 0, 20
_HALF = 2**15
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Calibration:
    """The line that gives the value of a stored number.

    Attributes:
        intercept, slope: of the line.
        clipped: whether values below 0 are 0.
    """

    intercept: float
    slope: float
    clipped: bool = False

    @property
    def signed(self) -> bool:
        """Whether it is that of signed 16-bit images, whose values are integers."""
        return (self.intercept, self.slope, self.clipped) == (-_HALF, 1, False)

    @property
    def dtype(self) -> str:
        """That of the values."""
        return "int16" if self.signed else "float32"

    def values(self, stored: Array) -> Array:
        """The values of numbers of 8 or 16 bits.

        Args:
            stored: without sign, or numbers of 16 bits with sign, to which ImageJ adds 32768.
        """
        offset = _HALF if stored.dtype.kind == "i" else 0
        if self.signed:
            return (stored.astype(np.int32) + (offset - _HALF)).astype(np.int16)
        values = stored.astype(np.float32)
        values *= np.float32(self.slope)
        values += np.float32(self.intercept + self.slope * offset)
        return np.maximum(values, 0, out=values) if self.clipped else values


def imagej_fields(description: str) -> dict[str, str]:
    """What ImageJ wrote about the file; empty if another program wrote it."""
    if not description.startswith("ImageJ="):
        return {}
    lines = (line.partition("=") for line in description.splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}


def calibration_of(fields: Mapping[str, str]) -> tuple[Calibration | None, tuple[str, ...]]:
    """The line by which ImageJ shows 8 and 16 bits, and a warning if it shows another function.

    ImageJ ignores functions without a unit of the values.
    """
    if "vunit" not in fields or "cf" not in fields:
        return None, ()
    function = real(fields["cf"])
    if function == _NONE:
        return None, ()
    intercept, slope = (real(fields.get(name)) for name in ("c0", "c1"))
    spread = abs(intercept) + 2 * _HALF * abs(slope)
    if function != _STRAIGHT_LINE or slope == 0 or spread > _LARGEST:
        return None, ("TIFF: ImageJ shows a function of the stored values, which is not applied",)
    return Calibration(intercept, slope, fields.get("zeroclip") == "true"), ()


def real(text: str | None) -> float:
    """A finite number; the default is 0."""
    try:
        value = float(text or 0)
    except ValueError:
        return 0.0
    return value if math.isfinite(value) else 0.0
