"""From few labelled images to many: train, draw new label maps, synthesize, judge, report."""

from training.augment.order import AugmentOrder, Workshop
from training.augment.report import Result
from training.augment.run import augment

__all__ = ["AugmentOrder", "Result", "Workshop", "augment"]
