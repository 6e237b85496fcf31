"""What the service does for one request: files, threads, connections, calls of its own code."""

from __future__ import annotations

import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

import anyio.to_thread
import numpy as np
from fastapi.testclient import TestClient

import api
import caps_med
from api.app import create_app
from api.settings import Settings
from benchmarks.load import TINY, write_tiny
from caps_med.images import MedicalImage, encode_image

#: Edge of the picture, in pixels: what is counted is the service.
SIZE = 32
_OWN = tuple(str(Path(package.__path__[0]).resolve()) for package in (api, caps_med))
_EVENTS = {
    "open": "files opened",
    "sqlite3.connect": "databases opened",
    "subprocess.Popen": "processes started",
}
_MORE = ("threads started", "work given to threads", "calls of its own functions")
#: Requests that are counted; the least counts, for other threads may be at work, such as those of a
#: service that other tests of this process have begun.
REPEATS = 20


class _Watch:
    """Counts events of this process while it is told to; Python forgets no audit hook."""

    def __init__(self) -> None:
        self.counts: Counter[str] | None = None
        sys.addaudithook(self._event)

    def _event(self, event: str, _: Any) -> None:  # noqa: ANN401 - as Python calls it
        if self.counts is not None and event in _EVENTS:
            self.counts[_EVENTS[event]] += 1

    def called(self, frame: FrameType, event: str, _: Any) -> None:  # noqa: ANN401
        """A profile function, for the threads that start while it is set."""
        if self.counts is None or event != "call":
            return
        if frame.f_code.co_filename.startswith(_OWN):
            self.counts["calls of its own functions"] += 1


_watch = _Watch()


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Counts what this process does in the block, all threads together."""
    counts = Counter(dict.fromkeys((*_EVENTS.values(), *_MORE), 0))
    run, start = anyio.to_thread.run_sync, threading.Thread.start

    async def noted(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        counts["work given to threads"] += 1
        return await run(*arguments, **options)

    def started(thread: threading.Thread) -> None:
        counts["threads started"] += 1
        start(thread)

    with (
        patch.object(anyio.to_thread, "run_sync", noted),
        patch.object(threading.Thread, "start", started),
    ):
        _watch.counts = counts
        try:
            yield counts
        finally:
            _watch.counts = None


def request_counts() -> dict[str, int]:
    """The counts of a request to segment, and to synthesize, a small picture."""
    pixels = np.random.default_rng(0).integers(0, 3, (1, SIZE, SIZE)).astype(np.uint8)
    labels = encode_image(MedicalImage(pixels, kind="labels"), "png")
    picture = encode_image(MedicalImage(pixels * 80), "png")
    sent = {
        "segment": (f"/v1/models/{TINY[0]}/segment", {"image": picture}),
        "synthesize": (f"/v1/models/{TINY[1]}/synthesize", {"labels": labels}),
    }
    found = {}
    with _client() as client:
        for name, (address, files) in sent.items():
            for _ in range(2):  # what is made once is made
                client.post(address, files=files).raise_for_status()
            repeats = []
            for _ in range(REPEATS):
                with counted() as counts:
                    client.post(address, files=files)
                repeats.append(counts)
            for what in counts:
                found[f"{name}: {what}"] = min(each[what] for each in repeats)
    return found


@contextmanager
def _client() -> Iterator[TestClient]:
    """A client of a service in this process, whose threads count their calls."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_tiny(root)
        settings = Settings(
            models=root, preload=TINY, keys=root / "keys.db", training=False, projects=False,
            reload_seconds=3600, threads=1,
        )  # fmt: skip
        threading.setprofile(_watch.called)
        try:
            with TestClient(create_app(settings)) as client:
                while client.get("/readyz").status_code != 200:
                    threading.Event().wait(0.05)
                yield client
        finally:
            threading.setprofile(None)
