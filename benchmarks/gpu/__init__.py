"""Triton kernels on a GPU, right and fast? See ``python -m benchmarks.gpu --help``."""
