"""Latency of the service beside a training job: ``python -m benchmarks.beside_training``.

A real server on the loopback interface answers clients while it trains a model. In each round the
job's processes are stopped (SIGSTOP) for one half of the requests and go on for the other, so that
whatever else the machine does falls on both. Every answer is compared with the library's. Exits
with 1 where the median beside the job is over `MOST` times the one without.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from api.jobs.locks import holder
from benchmarks.kills import discs
from benchmarks.load import Asked, load, service_of_two_models
from benchmarks.options import benchmark_parser
from benchmarks.serving import Server
from benchmarks.waiting import until
from caps_med.client import Client

#: What the median beside a job may be over the one without.
MOST = 1.3
#: Seconds until a job, which gives way to whatever else the machine does, has trained an epoch.
PATIENCE = 900.0


def main() -> None:
    """Measure, and print a line for each number of clients."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--requests", type=int, default=32, help="of each half of a round")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--size", type=int, default=256, help="edge of a picture, in pixels")
    parser.add_argument("--nice", type=int, default=10, help="CAPS_MED_JOB_NICE")
    parser.add_argument("--threads", type=int, default=1, help="of one pass")
    options = parser.parse_args()
    with (
        service_of_two_models(options, 4, job_nice=options.nice) as asked,
        training(asked.server, asked.models) as worker,
    ):
        ratios = [compare(asked, worker, n, options) for n in options.clients]
    sys.exit(0 if max(ratios) <= MOST else 1)


@contextmanager
def training(server: Server, models: Path) -> Iterator[int]:
    """A job that has trained an epoch and goes on, until the block ends; its process group."""
    with Client(server.address) as client:
        job = client.train("segmentation", "mine", discs(), epochs=10_000, steps=20, crop=64)["id"]
        until(lambda: bool(client.job(job)["scores"]), PATIENCE, state=lambda: client.job(job))
        worker = holder(models / ".jobs" / job / "lock")
        if worker is None:
            raise RuntimeError(f"the job has ended: {client.job(job)}")
        try:
            yield worker
        finally:
            os.killpg(worker, signal.SIGCONT)
            client.cancel(job)
            client.wait(job)


def compare(asked: Asked, worker: int, clients: int, options: argparse.Namespace) -> float:
    """The median latency beside the job over the one without."""
    found: dict[bool, list[float]] = {False: [], True: []}
    shares, ratios = [], []
    for number in range(options.rounds + 1):
        half = {}
        for beside in (True, False) if number % 2 else (False, True):
            os.killpg(worker, signal.SIGCONT if beside else signal.SIGSTOP)
            start, used = time.perf_counter(), _processor_time(worker)
            half[beside] = _latencies(asked, clients, options.requests)
            if beside:
                shares.append((_processor_time(worker) - used) / (time.perf_counter() - start))
        if number:  # the first round warms up
            ratios.append(statistics.median(half[True]) / statistics.median(half[False]))
            for beside, seconds in half.items():
                found[beside] += seconds
    ratio = statistics.median(ratios)
    print(
        f"{clients} clients: {_said(found[False])} without, {_said(found[True])} beside a job that "
        f"gets {statistics.median(shares):.2f} of a core; ratio of the medians {ratio:.2f}",
        flush=True,
    )
    return ratio


def _latencies(asked: Asked, clients: int, count: int) -> list[float]:
    tally = load(asked.server.address, asked.requests, count, clients)
    if set(tally.outcomes) - {"right", "503 with Retry-After"}:
        raise RuntimeError(f"not all answers are right: {tally.outcomes}")
    return [seconds for times in tally.seconds.values() for seconds in times]


def _said(seconds: Sequence[float]) -> str:
    ordered = sorted(seconds)
    late = ordered[int(0.95 * (len(ordered) - 1))]
    return f"median {1000 * statistics.median(ordered):.0f} ms (95 % within {1000 * late:.0f})"


def _processor_time(process: int) -> float:
    """Seconds of the processor that a process has used (Linux)."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
