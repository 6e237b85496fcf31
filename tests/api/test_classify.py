"""POST .../classify, and what else the service does with a classification model."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from fastapi.testclient import TestClient
from numpy.typing import NDArray

import caps_med
from api.app import create_app
from api.settings import Settings
from caps_med.client import Client, ServiceError
from caps_med.images import MedicalImage, encode_image
from tests.classifiers import CLASSES, write_classifiers
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


def test_an_empty_picture_is_told(service: TestClient) -> None:
    empty = encode_image(MedicalImage(np.zeros((1, 21, 30), np.uint8), format="png"), "png")
    answer = service.post("/v1/models/tiny-efficient/classify", files={"image": empty})
    told = "the image is empty: all of it has one intensity"
    assert answer.json()["warnings"] == [told] and answer.headers["Caps-Med-Warnings"] == told
    for what, form in (("classify", "npz"), ("features", "npz"), ("manipulate", "png")):
        path = f"/v1/models/tiny-efficient/{what}?format={form}"
        answer = service.post(path, files={"image": empty})
        assert answer.headers["Caps-Med-Warnings"] == told


def test_the_client_asks_the_same(service: TestClient, picture: bytes) -> None:
    def forwarded(request: httpx.Request) -> httpx.Response:
        path = request.url.raw_path.decode()
        content, headers = request.read(), dict(request.headers)
        answer = service.request(request.method, path, content=content, headers=headers)
        return httpx.Response(answer.status_code, content=answer.content)

    path = "/v1/models/tiny-efficient"
    with Client("http://testserver", transport=httpx.MockTransport(forwarded)) as client:
        found = client.classify("tiny-efficient", picture, region=(2, 3, 9, 8))
        strip = client.manipulate("tiny-efficient", picture, "png", capsule=1, deltas="0,0.2")
        with pytest.raises(ServiceError, match=r"422 invalid_parameter: slice=4: must be"):
            client.classify("tiny-efficient", picture, slice=4)
    sent, form = {"image": picture}, {"region": "2,3,9,8"}
    assert found == service.post(f"{path}/classify", files=sent, data=form).json()
    moved = {"capsule": 1, "deltas": "0,0.2"}
    assert strip == service.post(f"{path}/manipulate?format=png", files=sent, data=moved).content


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


def test_the_way_to_the_classes_as_npz(
    service: TestClient, repository: Path, picture: bytes
) -> None:
    expected = caps_med.load_model("tiny-capsnet", repository).inspect(picture).arrays()
    answer = service.post("/v1/models/tiny-capsnet/classify?format=npz", files={"image": picture})
    assert answer.status_code == 200, answer.text
    found = np.load(io.BytesIO(answer.content))
    assert set(found) == set(expected)
    np.testing.assert_allclose(
        found["couplings/primarycaps"], expected["couplings/primarycaps"], atol=1e-6
    )


def test_a_region_is_a_picture_of_its_own(
    service: TestClient, repository: Path, picture: bytes
) -> None:
    model = caps_med.load_model("tiny-efficient", repository)
    pixels = caps_med.read_image(picture).array
    part = MedicalImage(np.ascontiguousarray(pixels[:, 2:14, 5:25]), format="png")
    sent = {"files": {"image": picture}, "data": {"region": "2,5,12,20"}}
    found = service.post("/v1/models/tiny-efficient/classify", **sent).json()
    assert found["classes"] == model.classify(part).numbers()["classes"]
    layers = service.post("/v1/models/tiny-efficient/features?format=npz", **sent)
    wanted = model.features(part).layers["classcaps"]
    np.testing.assert_allclose(np.load(io.BytesIO(layers.content))["classcaps"], wanted, atol=1e-6)
    moved = service.post("/v1/models/tiny-efficient/manipulate?format=npz", **sent)
    original = model.manipulator(part)(None, 0, [0.0]).original
    np.testing.assert_allclose(np.load(io.BytesIO(moved.content))["original"], original, atol=1e-6)
    for region in ("2,5,12,200", "2,5", "-1,0,2,2", "0,0,0,0", "9" * 50, "1e9,0,1,1"):
        sent["data"] = {"region": region}
        refused = service.post("/v1/models/tiny-efficient/classify", **sent)
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid_parameter"), region


@pytest.mark.parametrize("axis", [0, 2])
def test_a_region_of_an_array_of_one_slice_is_of_the_picture_that_it_holds(
    service: TestClient, axis: int
) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (20, 30), np.uint8)

    def npy(array: NDArray[np.uint8]) -> bytes:
        np.save(stored := io.BytesIO(), array)
        return stored.getvalue()

    def classes(array: NDArray[np.uint8], **form: str) -> object:
        files = {"image": ("a.npy", npy(array))}
        answer = service.post("/v1/models/tiny-efficient/classify", files=files, data=form)
        return answer.json()["classes"]

    whole = np.expand_dims(pixels, axis)
    assert classes(whole, region="0,20,5,9") == classes(pixels[:5, 20:29])
    shown = service.post("/v1/images?format=png", files={"image": ("a.npy", npy(whole))})
    np.testing.assert_allclose(caps_med.read_image(shown.content).array[0], pixels, atol=3)


def test_poses_are_drawn_without_an_image(service: TestClient, repository: Path) -> None:
    url = "/v1/models/tiny-efficient/manipulate"
    poses = np.random.default_rng(0).uniform(-0.3, 0.3, (3, 16))
    text = ";".join(",".join(f"{atom:.6f}" for atom in pose) for pose in poses)
    answer = service.post(url, data={"capsule": "1", "poses": text})
    assert answer.status_code == 200, answer.text
    found = np.load(io.BytesIO(answer.content))["reconstructions"]
    expected = caps_med.load_model("tiny-efficient", repository).draw(1, poses.round(6).tolist())
    np.testing.assert_allclose(found, expected.reconstructions, atol=1e-6)
    named = service.post(url, data={"capsule": CLASSES[1].upper(), "poses": text})
    np.testing.assert_array_equal(np.load(io.BytesIO(named.content))["reconstructions"], found)
    strip = service.post(f"{url}?format=png", data={"capsule": "1", "poses": text})
    assert caps_med.read_image(strip.content).array.shape == (1, 20, 84)


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"poses": "0"}, "give 'capsule' as well"),
        ({"poses": "0", "capsule": "0"}, "a pose of 1 atoms: the capsules have 16"),
        ({"poses": "nan" + 15 * ",0", "capsule": "0"}, "each atom must be from -1000 to 1000"),
        ({"poses": "inf" + 15 * ",0", "capsule": "0"}, "each atom must be from -1000 to 1000"),
        ({"poses": "a;b", "capsule": "0"}, "give comma-separated numbers"),
        ({"poses": "0,", "capsule": "0"}, "give comma-separated numbers"),
        ({"poses": "0;0,0", "capsule": "0"}, "the same number of atoms"),
        ({"poses": "0" + 15 * ",0", "capsule": "7"}, "capsule=7: must be from 0 to 2"),
        ({"poses": "0" + 15 * ",0", "capsule": "-1"}, "capsule=-1: must be from 0 to 2"),
        ({"poses": "0" + 15 * ",0", "capsule": "a"}, "label 'a' is not one of the model's class"),
        ({"poses": ";".join(["0" + 15 * ",0"] * 257), "capsule": "0"}, "257 poses: must be 1"),
        ({"poses": "0", "capsule": "0", "atom": "0"}, "poses: take no atom"),
        ({"poses": "0", "capsule": "0", "deltas": "0"}, "poses: take no deltas"),
        (
            {"poses": "0", "capsule": "0", "slice": "1", "region": "0,0,5,5"},
            "take no slice and no region",
        ),
        ({}, "send the part 'image'"),
    ],
)
def test_poses_that_cannot_be_drawn(service: TestClient, form: dict[str, str], said: str) -> None:
    answer = service.post("/v1/models/tiny-efficient/manipulate", data=form)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_parameter")
    assert said in answer.json()["detail"]


def test_only_classifiers_with_a_decoder_draw_poses(service: TestClient) -> None:
    form = {"poses": "0", "capsule": "0"}
    for model, code in (("tiny-segmentation", "wrong_task"), ("tiny-cnn", "invalid_parameter")):
        answer = service.post(f"/v1/models/{model}/manipulate", data=form)
        assert (answer.status_code, answer.json()["code"]) == (422, code)
    wrong = service.post("/v1/models/tiny-efficient/manipulate?format=json", data=form)
    assert wrong.status_code == 406
    endless = {**form, "poses": 60_000 * "0,"}
    assert service.post("/v1/models/tiny-efficient/manipulate", data=endless).status_code == 400


def test_the_model_is_described(service: TestClient) -> None:
    detail = service.get("/v1/models/tiny-efficient").json()
    assert detail["task"] == "classification"
    assert detail["labels"] == {"0": "benign", "1": "malignant", "2": "normal tissue"}
    assert detail["preprocessing"] == "intensity 0..255; grey 20x28 pixels, pad"
    assert detail["reconstructs"]
    assert not service.get("/v1/models/tiny-cnn").json()["reconstructs"]


def test_a_picture_keeps_its_colours_for_a_model_that_takes_them(service: TestClient) -> None:
    pixels = np.random.default_rng(3).integers(0, 255, (3, 8, 9), dtype=np.uint8)
    sent = {"files": {"image": encode_image(MedicalImage(pixels, format="png"), "png")}}
    for model, channels in (("tiny-colours", 3), ("tiny-efficient", 1)):
        shown = service.post("/v1/images?format=png", data={"model": model}, **sent)
        assert caps_med.read_image(shown.content).array.shape == (channels, 8, 9)
