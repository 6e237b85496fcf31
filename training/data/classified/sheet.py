"""A contact sheet of classified images: a row of examples for each class."""

from __future__ import annotations

from caps_med.images import MedicalImage, slice_count
from training.data.classified.images import ClassifiedImage, ClassifiedImages
from training.pictures.pixels import RGB
from training.pictures.sheet import TILE, Cell, image_pixels, sheet

#: Examples of each class, and classes shown.
EXAMPLES, CLASSES = 6, 20


class ClassSheet:
    """Collects the first images of each class."""

    def __init__(self, dataset: ClassifiedImages) -> None:
        self._names = dataset.classes[:CLASSES]
        self._rows: list[list[RGB]] = [[] for _ in self._names]

    def add(self, image: ClassifiedImage, content: MedicalImage) -> None:
        """Keep the picture if an example of its class is needed; of a volume the middle slice."""
        rows = [self._rows[k] for k in image.classes if k < len(self._rows)]
        rows = [row for row in rows if len(row) < EXAMPLES]
        if not rows:
            return
        pixels = image_pixels(content, slice_count(content) // 2)
        step = max(1, max(pixels.shape[:2]) // (2 * TILE))
        for row in rows:
            row.append(pixels[::step, ::step])

    def picture(self) -> MedicalImage | None:
        """The sheet; None without any image."""
        cells = [
            Cell(name, tuple(row)) for name, row in zip(self._names, self._rows, strict=True) if row
        ]
        return sheet(cells, 1) if cells else None
