"""Bounds on untrusted input, checked before a library parses anything."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields

from caps_med.errors import InputTooLarge, InvalidParameter

#: The bounds by the environment variables that set them, for the commands as for the service.
VARIABLES = {
    "max_bytes": "CAPS_MED_MAX_UPLOAD_BYTES",
    "max_inflated_bytes": "CAPS_MED_MAX_INFLATED_BYTES",
    "max_voxels": "CAPS_MED_MAX_VOXELS",
}
_SMALLER = "crop or downsample the image"


@dataclass(frozen=True)
class Limits:
    """How large an input may be, as received and once decoded.

    Args:
        max_bytes: size of the file as received, compressed or not.
        max_inflated_bytes: size of the decoded pixels or voxels, in bytes.
        max_voxels: number of pixels or voxels (the three channels of a colour count once).
    """

    max_bytes: int = 256 * 2**20
    max_inflated_bytes: int = 2**30
    max_voxels: int = 2**27

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value < 1:
                raise InvalidParameter(f"{field.name} must be at least 1, got {value}")

    @classmethod
    def of_environment(cls) -> Limits:
        """The defaults, unless environment variables override them, see `VARIABLES`.

        Raises:
            InvalidParameter: a variable is not a whole number, or is below 1.
        """
        given = {name: os.environ.get(variable) for name, variable in VARIABLES.items()}
        return cls(**{name: _whole(name, text) for name, text in given.items() if text})

    def check_file(self, size: int) -> None:
        """Raise `InputTooLarge` for a file whose `size` in bytes exceeds `max_bytes`."""
        if size > self.max_bytes:
            what = f"the file has more than {self.max_bytes} bytes"
            raise too_large("max_bytes", what, "crop or compress it")

    def check_array(self, shape: Sequence[int], bytes_per_voxel: int = 1) -> None:
        """Raise `InputTooLarge` if `shape` with `bytes_per_voxel` exceeds the bounds."""
        voxels = math.prod(shape)
        if voxels > self.max_voxels:
            axes = " x ".join(map(str, shape))
            what = f"{axes} are {voxels} voxels, allowed are {self.max_voxels}"
            raise too_large("max_voxels", what, _SMALLER)
        self.check_decoded("the decoded image", voxels * bytes_per_voxel)

    def check_decoded(self, what: str, size: int, header: int = 0) -> None:
        """Raise `InputTooLarge` if `size` in bytes exceeds `max_inflated_bytes`.

        Args:
            what: what takes these bytes, for the message.
            header: bytes that are allowed in addition to the values.
        """
        if size > self.max_inflated_bytes + header:
            told = f"{what} takes {size} bytes, allowed are {self.max_inflated_bytes}"
            raise too_large("max_inflated_bytes", told, _SMALLER)


def too_large(bound: str, what: str, fix: str) -> InputTooLarge:
    """The error for an exceeded bound of `Limits`, by its name, with the possible remedies."""
    return InputTooLarge(f"{what} ({bound}): {fix}, or allow more with {VARIABLES[bound]}")


def _whole(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidParameter(f"{VARIABLES[name]}: must be a whole number, got {text!r}") from None


DEFAULT_LIMITS = Limits()
