"""A picture of four colours, and what a view shows of it."""

from __future__ import annotations

import numpy as np
from playwright.sync_api import FilePayload, Page

from caps_med.images import MedicalImage, encode_image, read_image
from tests.waiting import until

#: Rows, columns, and red, green and blue.
QUARTERS = np.array([[[200, 40, 40], [40, 160, 40]], [[60, 60, 220], [120, 120, 120]]])
ROWS, COLUMNS = 48, 64


def quarters(name: str, bits: int = 8) -> FilePayload:
    """A PNG of `QUARTERS`."""
    array = QUARTERS.repeat(ROWS // 2, 0).repeat(COLUMNS // 2, 1) * ((2**bits - 1) // 255)
    image = MedicalImage(array.transpose(2, 0, 1).astype(f"uint{bits}"), format="png")
    return FilePayload(name=name, mimeType="image/png", buffer=encode_image(image, "png"))


def expect_quarters(page: Page, view: str, wanted: np.ndarray = QUARTERS) -> None:
    """The middle of each quarter has, or gets, the colour that is wanted."""

    def shown() -> np.ndarray:
        taken = read_image(page.locator(f"{view} .view").first.screenshot()).array
        rows, columns = taken.shape[1:]
        side = min(rows / ROWS, columns / COLUMNS)
        down, across = (
            [length // 2 + int(k * size / 4 * side) for k in (-1, 1)]
            for length, size in ((rows, ROWS), (columns, COLUMNS))
        )
        return taken[:3, down][:, :, across].transpose(1, 2, 0).astype(int)

    until(lambda: np.abs(shown() - wanted).max() <= 4, state=shown)
