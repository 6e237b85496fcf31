"""When the service calls itself ready, and that one bad model does not stop it."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from api.settings import Settings
from caps_med.bundles import ModelRepository, NetworkSpec
from tests.conftest import BUILT_IN_NAMES, tiny_card, write_tiny
from tests.waiting import until


@contextmanager
def service(models: Path, *preload: str) -> Iterator[TestClient]:
    app = create_app(Settings(models=models, preload=preload))
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


def wait(client: TestClient) -> int:
    """The last status of /readyz: 200 as soon as there is one."""
    until(lambda: client.get("/readyz").status_code != 503)
    return int(client.get("/readyz").status_code)


@pytest.mark.parametrize(
    ("task", "arguments"),
    [
        ("segmentation", {}),
        ("segmentation", {"in_channels": 3}),
        ("segmentation", {"spatial_dims": 3}),
        ("synthesis", {}),
        ("synthesis", {"spatial_dims": 3}),
        ("synthesis", {"noise_source": "input", "image_size": [16, 24]}),
    ],
)
def test_every_kind_of_model_warms_up(
    tmp_path: Path, task: str, arguments: dict[str, object]
) -> None:
    card = tiny_card(task)
    spec = NetworkSpec(name=card.network.name, arguments={**card.network.arguments, **arguments})
    write_tiny(tmp_path, "mine", card.model_copy(update={"network": spec}))
    with service(tmp_path, "mine") as client:
        assert wait(client) == 200
        assert 'stage_seconds_count{stage="warm-up"} 1.0' in client.get("/metrics").text


def test_a_service_whose_model_is_missing_lives_and_is_not_ready(
    models: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with service(models, "nope") as client:
        for _ in range(3):
            answer = client.get("/readyz")
            assert (answer.status_code, answer.json()["code"]) == (503, "not_ready")
        until(lambda: "failed to start: see the" in client.get("/readyz").json()["detail"])
        assert client.get("/healthz").status_code == 200
        assert client.get("/v1/models/tiny-synthesis").status_code == 200
    assert "a preloaded model failed: ModelNotFound: no model 'nope'" in caplog.text


def test_a_damaged_model_does_not_stop_the_others(
    models: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = shutil.copytree(models, tmp_path / "models")
    (ModelRepository(root).find("tiny-segmentation").path / "configs/metadata.json").write_text("x")
    with service(root) as client, caplog.at_level(logging.INFO):
        names = [model["name"] for model in client.get("/v1/models").json()["models"]]
        assert names == [*BUILT_IN_NAMES, "tiny-synthesis"]
        assert client.get("/").status_code == 200
        answer = client.get("/v1/models/tiny-segmentation")
        assert (answer.status_code, answer.json()["code"]) == (500, "internal_error")
        assert "metadata" not in answer.json()["detail"]
    assert "failed: tiny-segmentation@1: metadata.json" in caplog.text
