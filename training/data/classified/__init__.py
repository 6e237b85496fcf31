"""Data sets of images that each belong to one class, or to several."""

from training.data.classified.dataset import ClassifiedDataset, open_classified
from training.data.classified.source import ClassifiedSource, load_classified

__all__ = ["ClassifiedDataset", "ClassifiedSource", "load_classified", "open_classified"]
