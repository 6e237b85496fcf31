"""Pictures to ask for."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image


def pictures(count: int, size: int, seed: int = 0) -> list[bytes]:
    """`count` different PNG files of `size` x `size` pixels."""
    rng, found = np.random.default_rng([seed, size]), []
    for _ in range(count):
        buffer = io.BytesIO()
        pixels = rng.integers(0, 255, (size, size)).astype(np.uint8)
        Image.fromarray(pixels).save(buffer, "png")
        found.append(buffer.getvalue())
    return found
