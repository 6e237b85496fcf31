"""Train on synthetic volumes, test on real ones: ``python -m benchmarks.tstr --data DIR``."""
