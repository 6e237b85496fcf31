"""A command for every figure in the documentation; ``python -m benchmarks`` times the networks."""
