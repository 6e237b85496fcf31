"""Colours for values in pictures, and the colour bar that explains them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from caps_med.images.fonts import caption_font

RGB = NDArray[np.uint8]

#: Of captions and of what is around pictures.
INK, PAPER = (232, 232, 236), (18, 18, 24)
#: Size of captions, and of a bar with its numbers, in pixels.
LETTERS, BAR_WIDTH, BAR_HEIGHT = 12, 160, 30
#: Matplotlib's inferno, coarsely: lightness rises evenly.
_RISING = np.array(
    [[5, 4, 20], [66, 14, 102], [140, 35, 105], [212, 72, 66], [251, 155, 6], [252, 255, 164]]
)
#: ColorBrewer's RdBu, reversed, coarsely: blue below zero, red above.
_DIVERGING = np.array([[5, 48, 97], [67, 147, 195], [247, 247, 247], [214, 96, 77], [103, 0, 31]])


def colored(values: NDArray[np.floating]) -> RGB:
    """Values in [0, 1] `[H, W]` as colours `[H, W, 3]`, brighter for larger ones."""
    return _interpolated(values, _RISING)


def colored_by_sign(values: NDArray[np.floating]) -> RGB:
    """Values in [-1, 1] `[H, W]` as colours `[H, W, 3]`: blue below zero, white, red above."""
    return _interpolated((values + 1) / 2, _DIVERGING)


def _interpolated(values: NDArray[np.floating], stops: NDArray[np.int_]) -> RGB:
    at = np.clip(values, 0, 1) * (len(stops) - 1)
    channels = [np.interp(at, np.arange(len(stops)), stops[:, c]) for c in range(3)]
    return np.stack(channels, -1).astype(np.uint8)


@dataclass(frozen=True)
class ColorBar:
    """The meaning of the colours.

    Attributes:
        low, high: values at the ends of the bar, as text.
        meaning: quantity and unit.
        colors: `[1, N, 3]`, from left to right.
    """

    low: str
    high: str
    meaning: str
    colors: RGB

    @classmethod
    def rising(cls, low: str, high: str, meaning: str) -> ColorBar:
        """The bar for `colored`."""
        return cls(low, high, meaning, colored(np.linspace(0, 1, BAR_WIDTH)[None]))

    @classmethod
    def by_sign(cls, largest: float, meaning: str) -> ColorBar:
        """The bar for `colored_by_sign`, from minus to plus `largest`."""
        colors = colored_by_sign(np.linspace(-1, 1, BAR_WIDTH)[None])
        return cls(f"-{largest:.3g}", f"{largest:.3g}", meaning, colors)

    @property
    def width(self) -> int:
        """Width of the bar with its texts, in pixels."""
        return round(caption_font(LETTERS).getlength(self._text)) + BAR_WIDTH + 24

    def draw(self, sheet: Image.Image, left: int, top: int) -> None:
        """Draw the bar between its values on the sheet, followed by its meaning."""
        draw, letters = ImageDraw.Draw(sheet), caption_font(LETTERS)
        draw.text((left, top), self.low, INK, letters)
        left += round(letters.getlength(self.low)) + 6
        bar = Image.fromarray(self.colors).resize((BAR_WIDTH, LETTERS), Image.Resampling.NEAREST)
        sheet.paste(bar, (left, top + 2))
        after = f"{self.high}   {self.meaning}"
        draw.text((left + BAR_WIDTH + 6, top), after, INK, letters)

    @property
    def _text(self) -> str:
        return f"{self.low}{self.high}   {self.meaning}"
