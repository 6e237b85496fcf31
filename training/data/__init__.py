"""Data sets: registered ones by name, or labelled images on disk."""

from training.data.classified import ClassifiedDataset, ClassifiedSource, open_classified
from training.data.dataset import REGISTERED, Dataset, open_dataset
from training.data.prepare import Preparation, load_source
from training.data.samples import Sample, Source

__all__ = [
    "REGISTERED",
    "ClassifiedDataset",
    "ClassifiedSource",
    "Dataset",
    "Preparation",
    "Sample",
    "Source",
    "load_source",
    "open_classified",
    "open_dataset",
]
