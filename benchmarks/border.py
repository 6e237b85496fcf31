"""Whether a margin of replicated pixels helps trained networks at the border of an image.

``python -m benchmarks.border`` segments axon phantoms that `axon-segmentation` has not seen,
against their true labels, and tiles within slices of a head that `brain-t1-tissue` has not seen,
against its answer to the whole slice. It prints the share of the outer 8 pixels that are right, and
the Dice coefficient of the foreground there, without and with a margin that is cropped away again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

import caps_med
from benchmarks.options import benchmark_parser
from caps_med import samples
from caps_med.images import DEFAULT_LIMITS, MedicalImage, read_image
from caps_med.inference import Model
from caps_med.networks import predicted_classes
from training.labelmaps.phantoms import axon_phantoms

Labels = NDArray[np.integer]

#: Pixels from the edge that count.
BORDER = 8
MARGINS = (0, 8, 16)
#: The first phantom of no training.
FIRST_SEED = 900
#: Edge of the tiles of the head, their first rows and columns, and slices from the middle one.
TILE, ROWS, COLUMNS, SLICES = 64, (8, 16), (8, 24), (-20, -8, 0, 10, 18)


class Scores(NamedTuple):
    """Of the outer pixels of an image."""

    right: float
    dice: float


def main() -> None:
    """Print a line for each model and margin."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--count", type=int, default=24, help="phantoms of 128 x 128 pixels")
    count = parser.parse_args().count
    for name, cases in (
        ("axon-segmentation", lambda model: phantoms(model, count)),
        ("brain-t1-tissue", tiles),
    ):
        model = caps_med.load_model(name)
        pairs = list(cases(model))
        for margin in MARGINS:
            found = [scores(segmented(model, image, margin), truth) for image, truth in pairs]
            right, dice = np.mean(found, axis=0)
            print(f"{name}, margin {margin}: right {right:.4f}, Dice {dice:.4f}", flush=True)


def phantoms(model: Model, count: int) -> Iterator[tuple[Tensor, Labels]]:
    """Network input `[1, 1, H, W]` and true labels `[H, W]`."""
    for _, phantom in axon_phantoms(count, seed=FIRST_SEED, size=128):
        image = MedicalImage(phantom.image, format="png")
        yield network_input(model, image), phantom.label[0]


def tiles(model: Model) -> Iterator[tuple[Tensor, Labels]]:
    """Tiles of a head, each with what the model answers there for the whole slice."""
    head = read_image(samples.COLIN27)
    middle = head.spatial_shape[2] // 2
    for number in SLICES:
        part = head.array[..., middle + number : middle + number + 1]
        image = network_input(model, MedicalImage(part, head.affine, "nifti"))
        rows, columns = (size // 8 * 8 for size in image.shape[2:])
        whole = segmented(model, image[..., :rows, :columns], 0)
        for row in ROWS:
            for column in COLUMNS:
                tile = (..., slice(row, row + TILE), slice(column, column + TILE))
                yield image[tile].contiguous(), whole[tile]


def network_input(model: Model, image: MedicalImage) -> Tensor:
    """One slice as the network takes it."""
    return model.segmenter.card.preprocessing.network_input(image, DEFAULT_LIMITS).slices


def segmented(model: Model, image: Tensor, margin: int) -> Labels:
    """Classes `[H, W]` of an image that is continued by its edge, and cropped again."""
    with torch.inference_mode():
        lengths = model.segmenter.network(F.pad(image, (margin,) * 4, mode="replicate"))
    rows, columns = image.shape[2:]
    inner = lengths[..., margin : margin + rows, margin : margin + columns]
    classes: Labels = predicted_classes(inner).numpy().reshape(rows, columns)
    return classes


def scores(found: Labels, truth: Labels) -> Scores:
    """Of the outer `BORDER` pixels; Dice of all foreground classes together."""
    outer = np.ones(found.shape, bool)
    outer[BORDER:-BORDER, BORDER:-BORDER] = False
    a, b = found[outer], truth[outer]
    same, area = ((a == b) & (a > 0)).sum(), (a > 0).sum() + (b > 0).sum()
    return Scores(float((a == b).mean()), float(2 * same / area) if area else 1.0)


if __name__ == "__main__":
    main()
