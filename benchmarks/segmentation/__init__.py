"""Segmentation networks compared on real data; see `benchmarks.segmentation.__main__`."""
