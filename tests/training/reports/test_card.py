from __future__ import annotations

import numpy as np

from caps_med.images import MedicalImage
from training.data.check.card import CardBuilder
from training.reports.card import card_rows


def test_sizes_and_spacings_are_written_x_first_with_units() -> None:
    """However the axes are stored: here a sagittal volume, z along its second axis."""
    affine = np.array([[0, 0, 2.5, 0], [0.75, 0, 0, 0], [0, 0.5, 0, 0], [0, 0, 0, 1]])
    volume = MedicalImage(np.zeros((1, 6, 4, 7), np.float32), affine)
    mask = MedicalImage(np.ones((1, 6, 4, 7), np.uint8), affine, kind="labels")
    builder = CardBuilder()
    builder.add("one", volume, {1: 168}, mask)
    card = builder.card({})
    assert card is not None
    rows = card_rows(card)
    assert rows["cases"] == "1 volume in 1 group"
    assert rows["size"] == "7 × 6 × 4 voxels"
    assert rows["spacing"] == "2.5 × 0.75 × 0.5 mm"
