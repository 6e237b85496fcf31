"""Times of work on a GPU: events around blocks of calls, all implementations in turn."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

Job = Callable[[], object]


@dataclass(frozen=True)
class Device:
    """Where it runs and how long one comparison may take.

    Attributes:
        device: a CUDA device, or the CPU where the kernels run on Triton's interpreter.
        tiny: networks and images of a few pixels and one call each: does everything run?
        seconds: for one comparison, all implementations together.
    """

    device: torch.device
    tiny: bool = False
    seconds: float = 1.0

    @property
    def cuda(self) -> bool:
        """Whether there are events and a memory of its own."""
        return self.device.type == "cuda"

    def finish(self) -> None:
        """Wait for all work that was launched."""
        if self.cuda:
            torch.cuda.synchronize(self.device)


@dataclass
class Times:
    """Milliseconds of one call, one number a round, and what failed.

    Attributes:
        rounds: by implementation; the same number for each.
        failed: the error of an implementation that cannot run, such as too little memory.
    """

    rounds: dict[str, list[float]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def median(self, name: str) -> float:
        """Milliseconds of a call; not a number if it failed."""
        return statistics.median(self.rounds[name]) if name in self.rounds else float("nan")

    def ratio(self, name: str, over: str) -> float:
        """Median of the ratios within a round; not a number if one failed."""
        if not {name, over} <= set(self.rounds):
            return float("nan")
        pairs = zip(self.rounds[name], self.rounds[over], strict=True)
        return statistics.median(a / b for a, b in pairs)

    def as_json(self) -> dict[str, object]:
        """Median, fastest and slowest round of each, in milliseconds."""
        return {
            **{
                name: {"median_ms": statistics.median(r), "min_ms": min(r), "max_ms": max(r)}
                for name, r in self.rounds.items()
            },
            **{name: {"failed": error} for name, error in self.failed.items()},
        }


#: A block of calls between two events lasts about this long, so that launches overlap.
_BLOCK_MS = 8.0
_ROUNDS, _MOST_CALLS = (5, 25), 200


def compare(jobs: Mapping[str, Job], where: Device) -> Times:
    """Time jobs in turn, several rounds, after two calls each that do not count."""
    times, calls = Times(), {}
    for name, job in jobs.items():
        try:
            once = _block(job, 1, where)
            if not where.tiny:
                once = _block(job, 1, where)
        except Exception as error:  # one implementation's failure leaves the others' times
            times.failed[name] = f"{type(error).__name__}: {str(error)[:200]}"
            free(where)
        else:
            calls[name] = max(1, min(_MOST_CALLS, round(_BLOCK_MS / once)))
            times.rounds[name] = [once] if where.tiny else []
    if where.tiny:
        return times
    end = time.perf_counter() + where.seconds
    for number in range(_ROUNDS[1]):
        if number >= _ROUNDS[0] and time.perf_counter() > end:
            break
        for name, count in calls.items():
            times.rounds[name].append(_block(jobs[name], count, where))
    return times


def peak_megabytes(job: Job, where: Device) -> float:
    """Peak memory of a call beyond what is held before it; not a number without a GPU."""
    if not where.cuda:
        return float("nan")
    job()  # an optimizer's state exists only after the first step
    free(where)
    torch.cuda.reset_peak_memory_stats(where.device)
    idle = torch.cuda.memory_allocated(where.device)
    job()
    where.finish()
    return (torch.cuda.max_memory_allocated(where.device) - idle) / 2**20


def free(where: Device) -> None:
    """Give back memory that nothing holds."""
    gc.collect()
    if where.cuda:
        torch.cuda.empty_cache()


def _block(job: Job, calls: int, where: Device) -> float:
    """Milliseconds a call, of `calls` in a row."""
    if not where.cuda:
        began = time.perf_counter()
        for _ in range(calls):
            job()
        return 1000 * (time.perf_counter() - began) / calls
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(calls):
        job()
    end.record()
    end.synchronize()
    milliseconds: float = start.elapsed_time(end)
    return max(milliseconds, 1e-6) / calls
