"""Small labelled folders that a tiny network learns in seconds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image


def disc(rng: np.random.Generator, size: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """A noisy picture of a bright disc on grey, and its mask."""
    y, x = np.mgrid[:size, :size]
    centre, radius = rng.uniform(size * 0.3, size * 0.7, 2), rng.uniform(size * 0.1, size * 0.25)
    mask = (y - centre[0]) ** 2 + (x - centre[1]) ** 2 < radius**2
    image = np.where(mask, 200, 60) + rng.normal(0, 10, mask.shape)
    return image.clip(0, 255).astype(np.uint8), mask.astype(np.uint8)


@pytest.fixture(scope="session")
def discs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of six 72x80 pictures of discs, with masks of 0 and 255."""
    folder = tmp_path_factory.mktemp("discs")
    rng = np.random.default_rng(0)
    for kind in ("images", "labels"):
        (folder / kind).mkdir()
    for i in range(6):
        image, mask = disc(rng, 80)
        Image.fromarray(image[:72]).save(folder / "images" / f"case{i}.png")
        Image.fromarray(mask[:72] * np.uint8(255)).save(folder / "labels" / f"case{i}.png")
    return folder
