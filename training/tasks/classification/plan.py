"""Recipe values that follow from the data, and the data as a recipe wants them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from caps_med.errors import InvalidParameter
from caps_med.images import Normalization, Plane
from caps_med.preprocessing import PicturePreprocessing
from training.data.check.card import Extent
from training.data.classified import ClassifiedDataset, ClassifiedSource, load_classified
from training.data.classified.check import ClassCard
from training.tasks.classification.recipe import ClassificationRecipe

#: Longest edge of a picture, by kind of device.
LARGEST = {"cpu": 96, "cuda": 224}
#: Shifts of two pixels were published for pictures of this edge.
PUBLISHED_EDGE, PUBLISHED_SHIFT = 28, 2
#: With a larger ratio between the largest and the smallest class, classes are weighted and the
#: balanced accuracy decides.
BALANCED = 1.5


def plan_classification(
    dataset: ClassifiedDataset,
    device: torch.device,
    dims: str | None = None,
    plane: Plane = "axial",
) -> dict[str, Any]:
    """Size, channels and intensities of the pictures, class weights, and what is scored.

    Raises:
        InvalidParameter: other `dims` than ``2d``.
    """
    if dims not in (None, "2d"):
        raise InvalidParameter(f"--dims {dims}: images are classified in two dimensions, 2d")
    card = dataset.card
    if card is None:
        return {}
    size = _size(card.sizes.in_plane(plane), LARGEST[device.type])
    shift = max(1, round(PUBLISHED_SHIFT * min(size) / PUBLISHED_EDGE))
    counts = [_counted(each.parts) for each in card.classes]
    uneven = card.exclusive and max(counts) > BALANCED * max(1, min(counts))
    return {
        "preparation": PicturePreprocessing(
            size=size, channels=_channels(card), normalization=_normalization(card)
        ),
        "augmentation": {"shift": shift},
        "class_weights": _weights(counts) if uneven else None,
        "score": "auroc" if not card.exclusive else "balanced_accuracy" if uneven else "accuracy",
    }


def load(dataset: ClassifiedDataset, store: Path, recipe: ClassificationRecipe) -> ClassifiedSource:
    """The images of a data set, prepared and divided as the recipe says."""
    return load_classified(
        dataset,
        store,
        recipe.preparation,
        recipe.validation,
        recipe.seed,
        keep_classes=recipe.keep_classes,
    )


def _size(sizes: Extent, largest: int) -> tuple[int, int]:
    """Rows and columns: the median's, or smaller in the same proportions."""
    rows, columns = (int(edge) for edge in sizes.median[-2:])
    factor = min(1.0, largest / max(rows, columns))
    # an edge over four times the other is beyond the networks' stem
    rows, columns = (max(1, round(edge * factor)) for edge in (rows, columns))
    return max(rows, -(-columns // 4)), max(columns, -(-rows // 4))


def _channels(card: ClassCard) -> int:
    """Grey, or colour if any image is; see the check for other mixtures."""
    return max(card.channels)


def _normalization(card: ClassCard) -> Normalization:
    """Pictures of 8 bits keep their scale; of all others the percentiles of each are taken."""
    return Normalization(window=(0, 255)) if card.eight_bits else Normalization()


def _counted(parts: dict[str, int]) -> int:
    """Images outside the test part."""
    return sum(count for part, count in parts.items() if part != "test")


def _weights(counts: list[int]) -> tuple[float, ...]:
    """Inverse to the root of the classes' sizes, one on average over the images."""
    sizes = np.maximum(1, np.array(counts, float))
    weights = 1 / np.sqrt(sizes)
    weights *= sizes.sum() / (weights * sizes).sum()
    return tuple(round(float(w), 6) for w in weights)
