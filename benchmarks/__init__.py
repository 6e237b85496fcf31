"""Every figure of speed and memory that the README claims, as a command: ``python -m benchmarks``."""
