"""Time by alternating, memory in a fresh process each, and the machine's copy rate."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from benchmarks.subjects import Network, Work, job

Clock = Callable[[], float]

#: Edge of the image on which a process warms up before its memory is measured, in pixels.
WARM_UP = 64


def alternate(
    jobs: Mapping[str, Callable[[], None]], rounds: int, clock: Clock = time.perf_counter
) -> dict[str, list[float]]:
    """Seconds of each job in each round; one uncounted call first, then all in turn."""
    for run in jobs.values():
        run()
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(rounds):
        for name, run in jobs.items():
            start = clock()
            run()
            seconds[name].append(clock() - start)
    return seconds


def ratio(seconds: Mapping[str, list[float]], name: str, over: str) -> float:
    """Median over the rounds of one job's time over another's in the same round."""
    return statistics.median(a / b for a, b in zip(seconds[name], seconds[over], strict=True))


def peak_megabytes(network: Network, implementation: str, size: int, work: Work) -> float:
    """Peak resident memory of a job beyond the idle process that holds the network."""
    what = (network, implementation, str(size), work)
    command = [sys.executable, "-m", "benchmarks.measure", *what]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(result.stdout.split()[-1])


def copy_rate(floats: int = 2**25) -> float:
    """Bytes read and written per second by the fastest of several large copies."""
    source, target = (torch.rand(floats) for _ in range(2))

    def copy() -> None:
        target.copy_(source)

    return 8 * floats / min(alternate({"copy": copy}, 9)["copy"])


def resident_megabytes(field: str) -> float:
    """``VmRSS``, this process' memory now, or ``VmHWM``, its peak."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"/proc/self/status has no {field}: peak memory needs Linux")


def peak_beyond_idle(run: Callable[[], object], times: int = 1) -> float:
    """Megabytes of memory at the peak of a job, beyond what this process holds before it.

    Args:
        times: how often it runs; 2 for training steps, as Adam's state exists only from the second.
    """
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    idle = resident_megabytes("VmRSS")
    for _ in range(times):
        run()
    return resident_megabytes("VmHWM") - idle


def _main(network: Network, implementation: str, size: str, work: Work) -> None:
    job(network, implementation, WARM_UP, work)()  # code that loads on the first call
    print(peak_beyond_idle(job(network, implementation, int(size), work), times=2))


if __name__ == "__main__":
    _main(*sys.argv[1:])  # type: ignore[arg-type]
