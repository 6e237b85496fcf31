"""Normalize the intensities of any scanner to one scale."""

from __future__ import annotations

from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, model_validator

from caps_med.errors import InvalidParameter
from caps_med.images.blocks import blocks
from caps_med.images.image import Array

#: With ranks, the most frequent value counts at most as this share of an image: a background of
#: one value takes no more of the scale, however much of the image it fills.
MODE_SHARE = 0.1
#: Ranks are taken from at most this many values of an image, and kept at this many of them.
_RANKED, _LANDMARKS = 2**20, 4096
_EIGHT_BITS = (0.0, 255.0)

Percentile = Annotated[float, Field(ge=0, le=100)]


class Normalization(BaseModel):
    """Map the intensities between two percentiles to 0..1, and clip the rest.

    Attributes:
        lower: percentile that becomes 0. None: the intensity 0 itself becomes 0.
        upper: percentile that becomes 1.
        foreground_only: take the percentiles of the voxels above 0, and leave all others
            exactly 0: for images whose background was masked. `lower=None` then keeps the
            darkest tissue distinct from the background.
        window: two intensities that become 0 and 1, the same in every image (Hounsfield units in
            CT); the percentiles above are then not used.
        per_channel: each channel has its own percentiles, as needed for the sequences of an MRI;
            otherwise all share one scale, so that colours keep their hue.
        ranks: an intensity becomes the fraction of the image's values below it (histogram
            equalization), so that a factor, an offset, a gamma or any other increasing curve
            changes nothing; the percentiles are then not used. See `MODE_SHARE`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    lower: Percentile | None = 0.5
    upper: Percentile = 99.5
    foreground_only: bool = False
    window: tuple[FiniteFloat, FiniteFloat] | None = None
    per_channel: bool = False
    ranks: bool = False

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.lower is not None and self.lower >= self.upper:
            raise ValueError(f"lower must be below upper, got {self.lower} and {self.upper}")
        if self.window is not None and not self.window[0] < self.window[1]:
            raise ValueError(f"window must rise, got {self.window[0]:g} to {self.window[1]:g}")
        if self.window is not None and self.foreground_only:
            raise ValueError("window and foreground_only exclude each other: choose one")
        if self.ranks and (self.window is not None or self.foreground_only):
            raise ValueError("ranks excludes window and foreground_only: choose one")
        return self

    def __str__(self) -> str:
        """A short form, for an answer's provenance."""
        if self.window is not None:
            return f"{self.window[0]:g}..{self.window[1]:g}"
        if self.ranks:
            return f"ranks{' per channel' if self.per_channel else ''}"
        low = "0" if self.lower is None else f"p{self.lower:g}"
        return (
            f"{low}..p{self.upper:g}{' of foreground' if self.foreground_only else ''}"
            f"{' per channel' if self.per_channel else ''}"
        )

    def for_white(self, white: int | None) -> Normalization:
        """The normalization for an image whose format defines white, see `MedicalImage.white`.

        A window over 8 bits means black to white: for a 16-bit picture it is 0 to 65535, so that
        a picture that was saved again with more bits looks the same.
        """
        if white is None or self.window != _EIGHT_BITS:
            return self
        return self.model_copy(update={"window": (0.0, float(white))})

    def levels(self, array: Array) -> tuple[float, float]:
        """The intensities of `array` that become 0 and 1; (0, 1) if it holds no foreground.

        Raises:
            InvalidParameter: it is normalized by ranks, a curve that two levels cannot describe.
        """
        if self.ranks:
            raise InvalidParameter(
                "ranks are for segmentation: choose percentiles or a window here"
            )
        if self.window is not None:
            return self.window
        counted = np.ravel(array, order="K")  # the order of memory, which is fastest
        if self.foreground_only:
            counted = counted[counted > 0]
        if counted.size == 0:
            return 0.0, 1.0
        low = 0.0 if self.lower is None else _percentile(counted, self.lower)
        return low, _percentile(counted, self.upper)

    def apply(self, array: Array, channel_axis: int = 0) -> NDArray[np.float32]:
        """`array` of any shape, finite, as float32 in [0, 1]; all 0 if it is constant or empty.

        Arithmetic is in float64: the range of a float32 image may not fit float32.

        Args:
            array: an image with its channels along `channel_axis`.
            channel_axis: only used if the scale is `per_channel`.
        """
        if self.per_channel:
            scaled = np.empty(array.shape, np.float32)
            channels = np.moveaxis(scaled, channel_axis, 0), np.moveaxis(array, channel_axis, 0)
            for target, channel in zip(*channels, strict=True):
                target[:] = self._scaled(channel)
            return scaled
        return self._scaled(array)

    def _scaled(self, array: Array) -> NDArray[np.float32]:
        if self.ranks:
            return _ranked(array)
        low, high = self.levels(array)
        scaled = np.zeros(array.shape, dtype=np.float32)
        if high > low:
            for part in blocks(array.shape):
                values = np.asarray(array[part], dtype=np.float64)
                scaled[part] = np.clip((values - low) / (high - low), 0, 1)
                if self.foreground_only:
                    scaled[part][values <= 0] = 0
        return scaled


def _percentile(values: Array, percent: float) -> float:
    """`numpy.percentile` in float64 of values ``[N]``, without converting all of them."""
    position = (values.size - 1) * (percent / 100)
    below = int(position)
    above, share = min(below + 1, values.size - 1), position - below
    first, second = np.partition(values, (below, above))[[below, above]].astype(np.float64).tolist()
    if share < 0.5:
        return float(first + (second - first) * share)
    return float(second - (second - first) * (1 - share))


def _ranked(array: Array) -> NDArray[np.float32]:
    """The fraction of values below each, ties in the middle; all 0 if there is only one value.

    Values that are not among those ranked are placed between their neighbours.
    """
    values = np.asarray(array).ravel()
    if values.size > _RANKED:
        values = values[np.random.default_rng(0).integers(0, values.size, _RANKED)]
    found, counts = np.unique(values, return_counts=True)
    if len(found) < 2:
        return np.zeros(np.shape(array), np.float32)
    weights = counts.astype(np.float64)
    mode = int(counts.argmax())
    others = values.size - counts[mode]
    weights[mode] = min(weights[mode], others * MODE_SHARE / (1 - MODE_SHARE))
    ranks = (weights.cumsum() - weights / 2) / weights.sum()
    if len(found) > _LANDMARKS:
        even = np.linspace(ranks[0], ranks[-1], _LANDMARKS)
        kept = np.unique(np.searchsorted(ranks, even).clip(max=len(ranks) - 1))
        found, ranks = found[kept], ranks[kept]
    ranked = np.empty(np.shape(array), np.float32)
    for part in blocks(ranked.shape):
        ranked[part] = np.interp(array[part], found, ranks)
    return ranked


def to_uint8(intensities: NDArray[Any]) -> NDArray[np.uint8]:
    """Intensities in [0, 1] as 0..255; values outside are clipped."""
    pixels: NDArray[np.uint8] = np.rint(np.clip(intensities, 0, 1) * 255).astype(np.uint8)
    return pixels
