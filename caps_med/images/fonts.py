"""The font of captions in pictures."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path

from PIL import ImageFont

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


@cache
def caption_font(size: int) -> Font:
    """DejaVu Sans, which comes with matplotlib and covers most alphabets; otherwise Pillow's own
    font, which covers little more than ASCII and draws other letters as boxes.
    """
    spec = importlib.util.find_spec("matplotlib")
    if spec is not None and spec.origin is not None:
        file = Path(spec.origin).parent / "mpl-data" / "fonts" / "ttf" / "DejaVuSans.ttf"
        if file.is_file():
            return ImageFont.truetype(file, size)
    return ImageFont.load_default(size)
