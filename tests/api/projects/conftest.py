"""A service with a tiny binary model, and a project of noisy discs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from api.settings import Settings
from caps_med.images import MedicalImage, encode_image
from tests.api.running import Running, running
from tests.conftest import disc, tiny_binary, write_tiny

SIZE = 64
#: Options of a round that ends within seconds.
TINY = {"epochs": "1", "steps": "2", "batch_size": "1", "crop": "64"}
#: Makes a project with these fields of the form, and returns its path.
Create = Callable[..., str]


def png(array: np.ndarray, kind: Any = "image") -> bytes:  # noqa: ANN401
    return encode_image(MedicalImage(array[None], format="png", kind=kind), "png")


def discs(count: int, seed: int = 0) -> list[tuple[bytes, bytes]]:
    """Pictures of discs and their masks."""
    rng = np.random.default_rng(seed)
    found = [disc(rng, SIZE) for _ in range(count)]
    return [(png(image), png(mask, "labels")) for image, mask in found]


@pytest.fixture(scope="package")
def own_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository for the tests of projects, which train models."""
    root = tmp_path_factory.mktemp("projects")
    write_tiny(root, "discs", tiny_binary("SegCaps", "disc"))
    return root


@pytest.fixture(scope="package")
def server(own_models: Path) -> Iterator[Running]:
    """One service for all; each test has projects of its own."""
    with running(Settings(models=own_models, preload=())) as found:
        yield found


@pytest.fixture
def client(server: Running) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.address, timeout=300) as found:
        yield found


@pytest.fixture
def create(client: httpx.Client) -> Create:
    """Make a project, and return its path."""

    def make(**form: str) -> str:
        answer = client.post("/v1/projects", data={"name": "discs", "model": "discs", **form})
        assert answer.status_code == 201, answer.text
        return answer.headers["Location"]

    return make


def upload(
    client: httpx.Client,
    project: str,
    images: dict[str, bytes],
    labels: dict[str, bytes] | None = None,
) -> httpx.Response:
    parts = [("images", (name, content)) for name, content in images.items()]
    parts += [("labels", (name, content)) for name, content in (labels or {}).items()]
    return client.post(f"{project}/images", files=parts)


def code(answer: httpx.Response) -> tuple[int, str]:
    """Status and code of a problem."""
    return answer.status_code, answer.json().get("code", "")


def add(client: httpx.Client, project: str, images: dict[str, bytes]) -> list[str]:
    """Add images and return their paths."""
    answer = upload(client, project, images)
    assert answer.status_code == 201, answer.text
    return [f"{project}/images/{image['id']}" for image in answer.json()["images"]]


def last_round(client: httpx.Client, project: str) -> dict[str, Any]:
    found: dict[str, Any] = client.get(f"{project}/rounds").json()["rounds"][-1]
    return found


def finished(client: httpx.Client, project: str) -> bool:
    return last_round(client, project)["state"] in ("finished", "failed")
