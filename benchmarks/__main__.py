"""``python -m benchmarks`` is ``python -m benchmarks.routing_speed``."""

from benchmarks.routing_speed import main

main()
