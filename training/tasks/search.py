"""What a search over recipes of segmentation networks tries: values drawn at random.

Bergstra & Bengio, Random search for hyper-parameter optimization, JMLR 2012.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from caps_med.errors import InvalidParameter
from training.data import Source
from training.engine.recipe import AUTO, MIN_CROP
from training.tasks.overrides import build_recipe
from training.tasks.segmentation import SegmentationRecipe
from training.tasks.segmentation_networks import CHOICES, NetworkName

#: Networks with capsules; those to compare with are tried if they are asked for.
NETWORKS: tuple[NetworkName, ...] = ("convcaps", "ucaps", "segcaps-normalized")
LOSSES = ("dice_ce", "dice_focal", "dice", "margin")
#: Share of the planned edge of a crop.
CROPS = (1.0, 0.75, 0.5)
#: The learning rate lies between the network's own divided and multiplied by this.
RATE_FACTOR = 4.0
#: The values that are searched.
SEARCHED = ("network", "learning_rate", "loss", "crop")
#: Values of a planned recipe that follow from network and crop, see `SegmentationRecipe.completed`.
FOLLOWING = ("precision", "small_crops")


def check_something_varies(fixed: Collection[str], count: int) -> None:
    """Check that not all of `count` trials are the same.

    Args:
        fixed: names whose value the user has chosen.
        count: of the trials.

    Raises:
        InvalidParameter: they are.
    """
    if count > 1 and set(SEARCHED) <= set(fixed):
        raise InvalidParameter(
            f"--tune {count}: {', '.join(SEARCHED)} are all given, so there is nothing to search: "
            "leave at least one of them out, also in a recipe file"
        )


def draw(
    recipe: SegmentationRecipe, fixed: Collection[str], count: int, seed: int
) -> list[dict[str, Any]]:
    """Values of `SEARCHED` for `count` trials; the first has those of the recipe as planned.

    Args:
        fixed: names whose value the user has chosen.
        seed: the same one draws the same values, and more trials begin with those of fewer.
    """
    rng = np.random.default_rng(seed)
    return [
        {name: getattr(recipe, name) for name in SEARCHED}
        if number == 0
        else _drawn(recipe, fixed, rng)
        for number in range(count)
    ]


def recipe_of(
    planned: SegmentationRecipe,
    values: Mapping[str, Any],
    fixed: Collection[str],
    source: Source,
) -> SegmentationRecipe:
    """The recipe of one trial: as planned, with other values, and with what follows from them.

    Args:
        values: of `SEARCHED`.
        fixed: names whose value the user has chosen.
    """
    left = {name: None for name in FOLLOWING if name not in fixed}
    recipe = build_recipe(SegmentationRecipe, [planned.model_dump(), values, left])
    assert isinstance(recipe, SegmentationRecipe)  # noqa: S101 - of this class
    return recipe.completed(source)


def _drawn(
    recipe: SegmentationRecipe, fixed: Collection[str], rng: np.random.Generator
) -> dict[str, Any]:
    network = NETWORKS[rng.integers(len(NETWORKS))]
    factor = math.exp(rng.uniform(-1, 1) * math.log(RATE_FACTOR))
    loss = LOSSES[rng.integers(len(LOSSES))]
    crops = _crops(recipe.crop)
    crop = crops[rng.integers(len(crops))]
    if "network" in fixed:
        network = recipe.network
    planned = network == recipe.network and recipe.learning_rate != AUTO
    rate = recipe.rate if planned else CHOICES[network].rate
    found: Mapping[str, Any] = {
        "network": network,
        "learning_rate": float(f"{rate * factor:.2e}"),
        "loss": loss,
        "crop": crop,
    }
    return {k: getattr(recipe, k) if k in fixed else v for k, v in found.items()}


def _crops(planned: int) -> list[int]:
    """Edges to try, multiples of 16 except the planned one; see `MIN_CROP`."""
    smaller = [int(planned * share) // 16 * 16 for share in CROPS if share < 1]
    return [planned, *(edge for edge in dict.fromkeys(smaller) if MIN_CROP <= edge < planned)]
