"""POST .../classify, and what else the service does with a classification model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient

import caps_med
from api.app import create_app
from api.settings import Settings
from caps_med.images import MedicalImage, encode_image
from tests.classifiers import write_classifiers
from tests.conftest import tiny_card, write_tiny


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = write_classifiers(tmp_path_factory.mktemp("classifiers"))
    write_tiny(root, "tiny-synthesis", tiny_card("synthesis"))
    write_tiny(root, "tiny-segmentation", tiny_card("segmentation"))
    return root


@pytest.fixture(scope="module")
def service(repository: Path) -> Iterator[TestClient]:
    settings = Settings(models=repository, preload=("tiny-efficient",), max_upload_bytes=500_000)
    with TestClient(create_app(settings), raise_server_exceptions=False) as client:
        yield client


@pytest.fixture(scope="module")
def picture() -> bytes:
    pixels = np.random.default_rng(3).integers(0, 255, (1, 21, 30), dtype=np.uint8)
    return encode_image(MedicalImage(pixels, format="png"), "png")


def test_the_answer_is_that_of_the_library(
    service: TestClient, repository: Path, picture: bytes
) -> None:
    answer = service.post("/v1/models/tiny-efficient/classify", files={"image": picture})
    assert answer.status_code == 200, answer.text
    assert answer.headers["Caps-Med-Model"] == "tiny-efficient"
    expected = caps_med.load_model("tiny-efficient", repository).classify(picture).numbers()
    found = answer.json()
    assert found["classes"] == expected["classes"] and found["label"] == expected["label"]


@pytest.mark.parametrize("model", ["tiny-segmentation", "tiny-synthesis"])
def test_a_model_of_another_task_is_refused(
    service: TestClient, picture: bytes, model: str
) -> None:
    answer = service.post(f"/v1/models/{model}/classify", files={"image": picture})
    assert answer.status_code == 422 and answer.json()["code"] == "wrong_task"
    answer = service.post("/v1/models/tiny-efficient/segment", files={"image": picture})
    assert answer.status_code == 422 and answer.json()["code"] == "wrong_task"


def test_only_json_is_offered(service: TestClient, picture: bytes) -> None:
    files = {"image": picture}
    answer = service.post("/v1/models/tiny-efficient/classify?format=png", files=files)
    assert answer.status_code == 406


@pytest.mark.parametrize("content", [b"", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"\0" * 500])
def test_damaged_images_are_problems(service: TestClient, content: bytes) -> None:
    answer = service.post("/v1/models/tiny-efficient/classify", files={"image": content})
    assert 400 <= answer.status_code < 500
    assert answer.json()["code"]


def test_a_slice_that_is_not_there(service: TestClient, picture: bytes) -> None:
    answer = service.post(
        "/v1/models/tiny-efficient/classify", files={"image": picture}, data={"slice": "4"}
    )
    assert answer.status_code == 422
    assert "slice=4: must be from 0 to 0" in answer.json()["detail"]


def test_features_point_and_manipulation(service: TestClient, picture: bytes) -> None:
    files = {"image": picture}
    at = {"layer": "primarycaps", "row": "2", "column": "4"}
    point = service.post("/v1/models/tiny-capsnet/features", files=files, data=at)
    assert point.status_code == 200, point.text
    assert np.allclose(np.sum(point.json()["couplings"], 1), 1, atol=1e-4)
    layers = service.post("/v1/models/tiny-matrix/features?format=json", files=files)
    assert list(layers.json()["layers"]) == [
        "conv1", "primarycaps", "convcaps1", "convcaps2", "classcaps",
    ]  # fmt: skip
    moved = service.post(
        "/v1/models/tiny-efficient/manipulate?format=json",
        files=files,
        data={"atom": "3", "deltas": "0,0.25"},
    )
    assert moved.json()["mean_change"][0] == 0 < moved.json()["mean_change"][1]
    refused = service.post("/v1/models/tiny-cnn/manipulate", files=files)
    assert refused.json()["code"] == "invalid_parameter"


def test_the_model_is_described(service: TestClient) -> None:
    detail = service.get("/v1/models/tiny-efficient").json()
    assert detail["task"] == "classification"
    assert detail["labels"] == {"0": "benign", "1": "malignant", "2": "normal tissue"}
    assert detail["preprocessing"] == "intensity 0..255; grey 20x28 pixels, pad"
