"""Training jobs on a cluster: ``python -m benchmarks.cluster training WHAT``.

``losses``: the worker, the service and the node of a job are killed; the weights must be those of a
job that was left in peace. ``many``: ten jobs over two nodes; ten versions, once each.
``tune``: a search against the default recipe, on cases that neither has seen.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.cluster.jobs import run_many, service, survive_losses
from benchmarks.cluster.nodes import cluster
from benchmarks.cluster.searching import add_options, compare
from benchmarks.kills import discs
from benchmarks.options import benchmark_parser


def main() -> None:
    """Run one of them."""
    parser = benchmark_parser(__doc__)
    commands = parser.add_subparsers(dest="what", required=True)
    losses = commands.add_parser("losses", help="weights after kills")
    losses.add_argument("--epochs", type=int, default=60)
    many = commands.add_parser("many", help="ten jobs over two nodes")
    many.add_argument("--jobs", type=int, default=10)
    many.add_argument("--epochs", type=int, default=3)
    tune = commands.add_parser("tune", help="a search against the default recipe")
    add_options(tune)
    options = parser.parse_args()
    began = time.monotonic()
    if options.what == "tune":
        compare(options)
    else:
        _on_nodes(options)
    print(f"{time.monotonic() - began:.0f} s")
    sys.exit(0)


def _on_nodes(options: argparse.Namespace) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        cluster([0, 1, 1], dashboard=True) as nodes,
        service(Path(folder), nodes) as found,
    ):
        if options.what == "losses":
            survive_losses(found, discs(), options.epochs)
            print("worker, service and node killed: epochs once each, equal weights")
        else:
            models = run_many(found, discs(), options.jobs, options.epochs)
            print(f"{len(models)} jobs: {', '.join(models)}")
