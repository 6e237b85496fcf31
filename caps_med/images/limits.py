"""Bounds on what is read from strangers, checked before a library parses anything."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

from caps_med.errors import InputTooLarge, InvalidParameter


@dataclass(frozen=True)
class Limits:
    """How large an input may be: as it arrives, and once it is decoded.

    Args:
        max_bytes: size of the file as it arrives, compressed or not.
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

    def check_file(self, size: int) -> None:
        """Raise `InputTooLarge` for a file of `size` bytes over `max_bytes`."""
        if size > self.max_bytes:
            raise InputTooLarge(
                f"the file has more than {self.max_bytes} bytes (max_bytes): crop or compress it"
            )

    def check_array(self, shape: Sequence[int], bytes_per_voxel: int = 1) -> None:
        """Raise `InputTooLarge` for spatial axes `shape` of `bytes_per_voxel` over the bounds."""
        voxels = math.prod(shape)
        if voxels > self.max_voxels:
            raise InputTooLarge(
                f"{' x '.join(map(str, shape))} are {voxels} voxels, allowed are {self.max_voxels} "
                "(max_voxels): crop or downsample the image"
            )
        if voxels * bytes_per_voxel > self.max_inflated_bytes:
            raise InputTooLarge(
                f"the decoded image takes {voxels * bytes_per_voxel} bytes, allowed are "
                f"{self.max_inflated_bytes} (max_inflated_bytes): crop or downsample the image"
            )


DEFAULT_LIMITS = Limits()
