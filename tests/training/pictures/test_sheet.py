from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw

from caps_med.images import MedicalImage, label_palette
from caps_med.images.fonts import caption_font
from training.pictures.sheet import label_pixels


def test_a_mask_of_255_has_the_color_of_the_label_that_it_is() -> None:
    """As in the report of an augmentation: new label maps are in the values of the data's files."""
    ids = np.array([[[0, 1]]], np.uint8)
    known = MedicalImage(ids, kind="labels")
    written = MedicalImage(ids * np.uint8(255), kind="labels", palette=label_palette())
    values = {0: 0, 255: 1}
    one, other = (label_pixels(x, values=values, palette=label_palette()) for x in (known, written))
    np.testing.assert_array_equal(one, other)


def drawn(text: str) -> bytes:
    picture = Image.new("L", (40, 24))
    ImageDraw.Draw(picture).text((4, 4), text, 255, caption_font(12))
    return picture.tobytes()


def test_captions_have_letters_instead_of_boxes() -> None:
    box = drawn("\uffff")
    letters = [drawn(letter) for letter in "UÜéµ×ßŁЖλ"]
    assert box not in letters
    assert len(set(letters)) == len(letters)
