"""Every figure of speed and memory that the README claims: ``python -m benchmarks``."""
