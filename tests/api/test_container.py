"""The compose file's container: read-only but for its volumes and its tmpfs."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.serving import PATIENCE, Server, start_command
from benchmarks.siege.container import Container, composed, run_command, why_not
from benchmarks.siege.service import kill_all
from tests.api import http
from tests.conftest import tiny_card, write_tiny
from tests.waiting import until

needs_namespaces = pytest.mark.skipif(bool(why_not()), reason=why_not())
NAME = "tiny-segmentation"


def is_ready(server: Server, log: Path) -> bool:
    """Whether its models are loaded; fails if one of them cannot be."""
    said = log.read_text()
    assert "a preloaded model failed" not in said, said
    return http.get(f"{server.address}/readyz").status_code == 200


@contextmanager
def contained(container: Container, folder: Path) -> Iterator[Server]:
    """The service in its container, ready, until the block ends."""
    server = start_command(run_command(container, folder), os.environ, folder / "log")
    try:
        until(lambda: is_ready(server, folder / "log"), state=(folder / "log").read_text)
        yield server
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(PATIENCE) in (0, -signal.SIGTERM)
    finally:
        kill_all(server.process)


@needs_namespaces
@pytest.mark.slow
@pytest.mark.parametrize("room", ["tmpfs", "none"])
def test_the_composed_service_becomes_ready_and_segments(
    room: str, tmp_path: Path, picture: bytes
) -> None:
    """With a tmpfs as the compose file has it, and without any writable folder."""
    container = composed(tmp_path, "--port", "0")
    write_tiny(Path(container.volumes["/models"]), NAME, tiny_card("segmentation"))
    # compiled in a hurry, as the cache is empty
    small = {"CAPS_MED_PRELOAD": f'["{NAME}"]', "OMP_NUM_THREADS": "1", "NUMBA_OPT": "0",
             "HOME": "/root"}  # fmt: skip
    container = replace(container, environment={**container.environment, **small})
    if room == "none":
        container = replace(container, tmpfs=[])
    with contained(container, tmp_path) as server:
        answer = http.post(
            f"{server.address}/v1/models/{NAME}/segment", files={"image": picture}, timeout=60
        )
    assert answer.status_code == 200, answer.text
    said = (tmp_path / "log").read_text()
    assert said.count("compiled routing kernels") == (0 if room == "tmpfs" else 1), said
