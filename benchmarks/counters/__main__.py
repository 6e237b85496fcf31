"""Work counted, not timed: ``python -m benchmarks.counters [--write]``.

Operations, floating-point operations, copied bytes and votes of each network's forward pass and
training step; instructions of the Triton kernels, and how many kernels a GPU launches; files,
threads, processes and calls of a request to the service. On any machine they are the same, so a
test compares them with the bounds in ``bounds.json``. ``--write`` makes today's counts the bounds:
do so after a change that is worth what it costs, and say so in its commit.
"""

from __future__ import annotations

import sys

from benchmarks.counters.bounds import BOUNDS, exceeded, read, write
from benchmarks.counters.compiled import compiled_counts
from benchmarks.counters.launches import launch_counts
from benchmarks.counters.networks import NETWORKS, network_counts
from benchmarks.counters.requests import request_counts
from benchmarks.options import benchmark_parser


def main() -> None:
    """Count, print, and compare with the bounds or write them."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--write", action="store_true", help="make today's counts the bounds")
    options = parser.parse_args()
    counts = {**request_counts(), **compiled_counts(), **launch_counts()}
    counts |= {name: count for n in NETWORKS for name, count in network_counts(n).items()}
    bounds = read() if BOUNDS.exists() else {}
    for name, count in counts.items():
        print(f"{name:52}{count:14} {'' if name in bounds else 'no'} bound {bounds.get(name, '')}")
    if options.write:
        write(counts)
    elif found := exceeded(counts, bounds):
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
