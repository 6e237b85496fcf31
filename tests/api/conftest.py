from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient

from api import processes
from api.app import create_app
from api.audit import AUDIT
from api.settings import Settings
from caps_med.images import MedicalImage, encode_image
from tests.api.lasting import LastingDecoders
from tests.preloaded import module_command


@pytest.fixture(scope="session", autouse=True)
def _lasting_decoders() -> Iterator[None]:
    """Services in this process take over the decoders of those before them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("api.engine.engine.DecodePool", LastingDecoders)
        yield
    LastingDecoders.end()


@pytest.fixture(scope="session", autouse=True)
def _preloaded_jobs(preloaded: Path) -> Iterator[None]:
    """Jobs of services in this process, and checks of their data, have nothing to import."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("check", "executor"):
            command = partial(module_command, preloaded)
            patch.setattr(f"api.jobs.{module}.module_command", command)
        yield


@pytest.fixture
def started_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs of services in this process, and checks of their data, are started, not forked."""
    for module in ("check", "executor"):
        monkeypatch.setattr(f"api.jobs.{module}.module_command", processes.module_command)


@pytest.fixture
def fresh_logging() -> Iterator[None]:
    """Logging as it was, whatever `configure` does to it."""
    root, audit = logging.getLogger(), logging.getLogger(AUDIT)
    before = root.handlers[:], root.level, audit.handlers[:], audit.propagate
    yield
    root.handlers[:], audit.handlers[:], audit.propagate = before[0], before[2], before[3]
    root.setLevel(before[1])


@pytest.fixture(scope="session")
def client(models: Path) -> Iterator[TestClient]:
    """The service over the tiny models; a body of half a megabyte is too large for it."""
    settings = Settings(models=models, preload=("tiny-segmentation",), max_upload_bytes=500_000)
    with TestClient(create_app(settings), raise_server_exceptions=False) as client:
        yield client


@pytest.fixture(scope="session")
def volume() -> bytes:
    """An oblique NIfTI volume."""
    affine = np.array([[0.8, -0.6, 0, 3], [0.6, 0.8, 0, -5], [0, 0, 2.5, 7], [0, 0, 0, 1.0]])
    array = np.random.default_rng(2).uniform(0, 90, (1, 20, 28, 3)).astype(np.float32)
    return encode_image(MedicalImage(array, affine, format="nifti"), "nifti")


@pytest.fixture(scope="session")
def picture() -> bytes:
    """A grey PNG."""
    pixels = np.random.default_rng(3).integers(0, 255, (1, 21, 30), dtype=np.uint8)
    return encode_image(MedicalImage(pixels, format="png"), "png")


@pytest.fixture(scope="session")
def labels() -> bytes:
    """A palette PNG with the ids 0, 2 and 7."""
    ids = np.zeros((1, 21, 30), np.uint8)
    ids[0, 4:12, 6:20] = 2
    ids[0, 8:10, 8:12] = 7
    return encode_image(MedicalImage(ids, format="png", kind="labels"), "png")
