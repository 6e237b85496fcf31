"""Clients that ask a cluster for pictures while something happens to it."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from benchmarks.cluster.pictures import pictures
from benchmarks.cluster.replicas import PATIENCE
from benchmarks.waiting import until
from caps_med.client import Client


class Clients:
    """Clients that ask for a picture each, all different, until they are told to stop.

    Attributes:
        count: how many ask at the same time.
        times: when each request was answered, by `time.monotonic`.
        versions: of caps_med that have answered -> how often.
        lost: errors of the others.
    """

    def __init__(self, address: str, model: str, count: int = 6) -> None:
        self._address, self._model, self.count = address, model, count
        self.times: list[float] = []
        self.versions: Counter[str] = Counter()
        self.lost: list[str] = []
        self._numbers, self._stop, self._lock = (
            itertools.count(),
            threading.Event(),
            threading.Lock(),
        )

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Ask until the block ends; each request is then finished."""
        with ThreadPoolExecutor(self.count) as pool:
            running = [pool.submit(self._run) for _ in range(self.count)]
            try:
                yield
            finally:
                self._stop.set()
            for future in running:
                future.result()

    def _run(self) -> None:
        with Client(self._address, tries=20) as client:
            while not self._stop.is_set():
                (picture,) = pictures(1, 64, seed=next(self._numbers))
                try:
                    answer = json.loads(client.segment(self._model, picture, "json"))
                except Exception as error:
                    self.lost.append(f"{type(error).__name__}: {error}")
                else:
                    with self._lock:
                        self.versions[answer["provenance"]["caps_med_version"]] += 1
                        self.times.append(time.monotonic())

    def until(self, answers: int) -> None:
        """Wait until that many requests have been answered.

        Raises:
            TimeoutError: they are not.
        """
        until(lambda: len(self.times) >= answers, PATIENCE)

    def longest_pause(self, first: int, begin: float) -> float:
        """Seconds between two answers, from number `first` on, or `begin` and the first of them."""
        return max(b - a for a, b in itertools.pairwise([begin, *sorted(self.times[first:])]))


def repeated(*audits: Path) -> dict[str, int]:
    """Of pictures that were each asked for once: how many have several records of an answer, and
    how many of several requests, as their keys tell these apart."""
    records = [json.loads(line) for file in audits for line in file.read_text().splitlines()]
    answered = [r for r in records if r["outcome"] == "200"]
    pictures = {r["input_sha256"] for r in answered}
    requests = {(r["input_sha256"], r["idempotency_sha256"]) for r in answered}
    return {
        "answered_again": len(answered) - len(pictures),
        "audited_twice": len(requests) - len(pictures),
    }
