"""Images side by side in one picture."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from caps_med.images import MedicalImage, SliceStack
from caps_med.images.slices import Plane

Picture = NDArray[np.generic]


def strip(images: Sequence[MedicalImage], plane: Plane) -> MedicalImage:
    """Images of one size from left to right, as an 8-bit picture `[C, H, N W]`.

    Of volumes the middle slice in `plane` is shown. Values are taken from 0 to 1, or as they are
    where they are 8-bit.
    """
    shown = [SliceStack.from_image(image, plane).array for image in images]
    return sheet([[one[len(one) // 2] for one in shown]])


def sheet(rows: Sequence[Sequence[Picture]]) -> MedicalImage:
    """Rows of pictures `[C, H, W]` of one size, as an 8-bit picture without gaps."""
    whole = np.concatenate([np.concatenate(row, axis=2) for row in rows], axis=1)
    if whole.dtype != np.uint8:
        whole = np.rint(np.clip(whole, 0, 1) * 255).astype(np.uint8)
    return MedicalImage(whole, format="png")
