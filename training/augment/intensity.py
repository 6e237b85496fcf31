"""Synthetic intensities in [0, 1] as the numbers that the lab's own files hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from caps_med.images import MedicalImage, Normalization

#: Of a masked image: what a generator makes of nothing, and less is taken for it.
_NOTHING = 0.02


class Scale(BaseModel):
    """How real images became [0, 1], to be undone.

    Attributes:
        levels: of each real image, the intensities that became 0 and 1: of all its channels
            together, or of each.
        dtype: of the real images.
        masked: whether everything but the subject is exactly 0 in them.
        white: of all of them, see `MedicalImage.white`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    levels: tuple[tuple[tuple[float, float], ...], ...]
    dtype: str
    masked: bool
    white: int | None = None

    @classmethod
    def of(cls, images: Sequence[MedicalImage], normalization: Normalization) -> Scale:
        """Of some real images under the normalization of a generator's training."""
        return cls(
            levels=tuple(_levels(image, normalization) for image in images),
            dtype=np.result_type(*(image.array.dtype for image in images)).name,
            masked=normalization.foreground_only,
            white=images[0].white if len({image.white for image in images}) == 1 else None,
        )

    def image(self, label: MedicalImage, pixels: NDArray[np.floating], like: int) -> MedicalImage:
        """A synthetic image of a label map as it is when it is read from its file.

        Args:
            label: ``[1, *S]``.
            pixels, like: as of `restore`; ``[C, *S]``.
        """
        made = label.with_array(self.restore(pixels, like), kind="image")
        return replace(made, white=self.white)

    def restore(self, pixels: NDArray[np.floating], like: int) -> NDArray[np.generic]:
        """Pixels in [0, 1] in the intensities of one of the real images.

        Args:
            pixels: ``[C, *S]``.
            like: which of them; any whole number, counted round and round.
        """
        levels = np.array(self.levels[like % len(self.levels)], np.float64)
        low, high = levels.T.reshape(2, -1, *[1] * (pixels.ndim - 1))
        values: NDArray[np.generic] = low + np.asarray(pixels, np.float64) * (high - low)
        if self.masked:
            values[pixels < _NOTHING] = 0
        kind = np.dtype(self.dtype)
        if kind.kind in "iu":
            limits = np.iinfo(kind)
            values = np.rint(np.clip(values, limits.min, limits.max))
        return values.astype(kind)


def _levels(image: MedicalImage, normalization: Normalization) -> tuple[tuple[float, float], ...]:
    """What became 0 and 1: one pair for the image, or one for each channel."""
    own = normalization.for_white(image.white)
    parts = image.array if own.per_channel else image.array[None]
    return tuple(own.levels(part) for part in parts)
