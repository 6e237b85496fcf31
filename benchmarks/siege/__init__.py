"""Attacks on a real service, each one a small case: ``python -m benchmarks.siege``."""
