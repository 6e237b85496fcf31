"""Axon phantoms as files: most as the default has them, some dim and out of focus."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from caps_med.images import MedicalImage, encode_image
from training.labelmaps.phantoms import AxonAppearance, axon_phantom

SIZE = 64
#: Every fourth image is taken with less light, through more tissue.
HARD = 4
DIM = AxonAppearance(photons=(6.0, 12.0), haze=(0.2, 0.4), out_of_focus=(3, 6))


@dataclass(frozen=True)
class Labelled:
    """An image and its true label map, both PNG.

    Attributes:
        name: of the image.
    """

    name: str
    image: bytes
    truth: bytes


def phantoms(count: int, seed: int) -> list[Labelled]:
    """The first `count` phantoms of a seed."""
    return [_phantom(seed, case) for case in range(count)]


def _phantom(seed: int, case: int) -> Labelled:
    appearance = DIM if case % HARD == HARD - 1 else None
    found = axon_phantom(seed, case, size=SIZE, appearance=appearance)
    image = np.rint(found.image * 255).astype(np.uint8)
    truth = MedicalImage(found.label.astype(np.uint8), format="png", kind="labels")
    content = encode_image(MedicalImage(image, format="png"), "png")
    return Labelled(f"axons-{case:03}.png", content, encode_image(truth, "png"))
