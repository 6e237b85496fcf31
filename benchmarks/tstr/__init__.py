"""Train on synthetic images, test on real ones: ``python -m benchmarks.tstr``."""
