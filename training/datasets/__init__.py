"""Data sets: by a registered name, or a folder of images and labels."""

from training.datasets.source import Sample, Source

__all__ = ["Sample", "Source"]
