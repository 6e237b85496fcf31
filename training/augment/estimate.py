"""A rough estimate of how long a run takes."""

from __future__ import annotations

import time

import torch
import torch.nn.functional as F

from training.augment.config import AugmentConfig
from training.augment.models import FOLDS, recipes_of
from training.engine.recipe import Recipe

#: Seconds of one crop in a training step (64 x 64 pixels of the generator's, 128 x 128 of the
#: segmenters'), and of one synthetic image with its label map and judgement, where the convolution
#: of `_slowness` takes `_REFERENCE_S`.
_GENERATOR_S, _SEGMENTER_S, _IMAGE_S = 0.053, 0.04, 0.7
_REFERENCE_S = 0.024


def minutes(config: AugmentConfig, groups: int) -> float:
    """Minutes that a run takes on this machine, with crops of the default size."""
    generator, judge, segmenter = map(_crops, recipes_of(config))
    crops = {
        "generator": 0 if config.model else generator,
        "segmenter": 0 if config.judge_model else judge * min(FOLDS, groups),
    }
    if config.train_segmenter:
        crops["segmenter"] += 2 * config.segmenter_seeds * segmenter
    seconds = crops["generator"] * _GENERATOR_S + crops["segmenter"] * _SEGMENTER_S
    return (seconds + config.count * _IMAGE_S) * _slowness() / 60


def duration(config: AugmentConfig, groups: int) -> str:
    """The estimated duration in words."""
    estimated = minutes(config, groups)
    return "a minute or two" if estimated < 2 else f"about {_rounded(estimated)} minutes"


def _crops(recipe: Recipe) -> int:
    return recipe.epochs * recipe.steps * recipe.batch_size


def _rounded(value: float) -> int:
    step = 5 if value > 15 else 1
    return max(step, round(value / step) * step)


def _slowness() -> float:
    """How much slower this machine is than the one on which the seconds above were measured."""
    image, kernel = torch.ones(4, 32, 128, 128), torch.ones(32, 32, 3, 3)
    taken = []
    for _ in range(20):
        start = time.perf_counter()
        F.conv2d(image, kernel, padding=1)
        taken.append(time.perf_counter() - start)
    return min(taken) / _REFERENCE_S
