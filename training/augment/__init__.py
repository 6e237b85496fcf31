"""From few labelled images to many: train, draw new label maps, synthesize, judge, report."""

from training.augment.config import AugmentOrder, Workshop
from training.augment.pipeline import augment
from training.augment.result import Result

__all__ = ["AugmentOrder", "Result", "Workshop", "augment"]
