"""Several Ray nodes on one machine: ``python -m benchmarks.cluster serving|training|batch|...``."""

from __future__ import annotations

import sys
from importlib import import_module

#: The measurements, each a module of this package with a function `main`.
MEASUREMENTS = ("serving", "training", "batch", "simulation", "upgrade")


def main() -> None:
    """Run one measurement with the arguments after its name."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in MEASUREMENTS:
        sys.exit(f"usage: python -m benchmarks.cluster {'|'.join(MEASUREMENTS)} [--help]")
    del sys.argv[1]
    sys.argv[0] = f"python -m benchmarks.cluster {name}"
    import_module(f"benchmarks.cluster.{name}").main()


if __name__ == "__main__":
    main()
