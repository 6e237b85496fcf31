"""From few labelled images to many: train, draw new label maps, synthesize, judge, report."""

from training.augment.config import AugmentConfig, AugmentFolder
from training.augment.pipeline import augment
from training.augment.result import Result

__all__ = ["AugmentConfig", "AugmentFolder", "Result", "augment"]
