"""How much replicas answer, what each answer costs, and what this machine could do at best."""

from __future__ import annotations

import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import httpx
import psutil

from benchmarks.cluster.parts import Meter, by_part
from benchmarks.cluster.pictures import pictures

#: A model and an edge in pixels of which an answer takes long enough that the clients, who share
#: the cores, hardly count.
MODEL, SIZE = "axon-segmentation", 256


@dataclass(frozen=True)
class Throughput:
    """Of replicas under load.

    Attributes:
        rate: right answers a second.
        processor_ms: of each answer, by part of the cluster, see `by_part`.
    """

    rate: float
    processor_ms: dict[str, float]


def throughput(address: str, meter: Meter, clients: int, seconds: float) -> Throughput:
    """Load by that many clients, each with one connection; warming up does not count.

    Answers count by the share of their time that lies within the time that is measured.
    """
    asked, count, stop = pictures(16, SIZE), itertools.count(), threading.Event()
    spans: list[tuple[float, float]] = []

    def ask() -> None:
        with httpx.Client(base_url=address, timeout=600) as client:
            while not stop.is_set():
                picture, begin = asked[next(count) % len(asked)], time.perf_counter()
                answer = client.post(f"/v1/models/{MODEL}/segment", files={"image": picture})
                answer.raise_for_status()
                spans.append((begin, time.perf_counter()))

    with ThreadPoolExecutor(clients) as pool:
        running = [pool.submit(ask) for _ in range(clients)]
        try:
            time.sleep(seconds / 5)
            before, begin = meter.read(), time.perf_counter()
            time.sleep(seconds)
            after, end = meter.read(), time.perf_counter()
        finally:
            stop.set()
        for future in running:
            future.result()
    answers = sum(
        max(0.0, min(last, end) - max(first, begin)) / (last - first) for first, last in spans
    )
    return Throughput(answers / (end - begin), by_part(before, after, answers))


def machine() -> dict[str, float]:
    """What this machine's cores are, and what share its host has taken of them since the start."""
    times = psutil.cpu_times()
    return {
        "threads_of_a_core": (psutil.cpu_count() or 1) / (psutil.cpu_count(logical=False) or 1),
        "stolen": round(getattr(times, "steal", 0.0) / sum(times), 4),
    }
