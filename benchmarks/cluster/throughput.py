"""How much replicas answer, when each has a core of its own."""

from __future__ import annotations

import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx

from benchmarks.cluster.pictures import pictures

#: Pixels of an edge: large enough that the clients, who share the cores, hardly count.
SIZE = 256


def answers_a_second(address: str, model: str, clients: int, seconds: float) -> float:
    """Right answers a second to that many clients; a few seconds of warming up do not count."""
    asked, count = pictures(16, SIZE), itertools.count()
    stop, counting = threading.Event(), threading.Event()
    done: list[int] = []

    def ask() -> None:
        with httpx.Client(base_url=address, timeout=600) as client:
            while not stop.is_set():
                picture = asked[next(count) % len(asked)]
                answer = client.post(f"/v1/models/{model}/segment", files={"image": picture})
                answer.raise_for_status()
                if counting.is_set() and not stop.is_set():
                    done.append(1)

    with ThreadPoolExecutor(clients) as pool:
        running = [pool.submit(ask) for _ in range(clients)]
        time.sleep(seconds / 10)
        counting.set()
        begin = time.perf_counter()
        time.sleep(seconds)
        stop.set()
        took = time.perf_counter() - begin
        for future in running:
            future.result()
    return len(done) / took
