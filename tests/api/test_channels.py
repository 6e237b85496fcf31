"""A model of several channels over HTTP: one part that holds them all, or a part for each."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient

import caps_med
from api.app import create_app
from api.settings import Settings
from caps_med.bundles import NetworkSpec
from caps_med.images import MedicalImage, encode_image, read_image
from tests.conftest import tiny_card, write_tiny

AFFINE = np.diag([-1.0, 1.2, 2.0, 1.0])
LARGEST = 200_000


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`two`: a SegCaps of FLAIR and T1, and `grey`, of one channel."""
    root = tmp_path_factory.mktemp("models")
    spec = NetworkSpec(name="SegCaps", arguments={"atoms": 4, "in_channels": 2, "out_channels": 3})
    card = tiny_card("segmentation", (1.2, 1.0), spec)
    write_tiny(root, "two", card.model_copy(update={"channel_names": ("FLAIR", "T1")}))
    write_tiny(root, "grey", tiny_card("segmentation"))
    return root


@pytest.fixture(scope="module")
def service(models: Path) -> Iterator[TestClient]:
    settings = Settings(models=models, preload=(), max_upload_bytes=LARGEST)
    with TestClient(create_app(settings), raise_server_exceptions=False) as client:
        yield client


@pytest.fixture(scope="module")
def parts() -> list[bytes]:
    rng = np.random.default_rng(0)
    return [encode_image(volume(rng, (20, 28, 3)), "nifti") for _ in range(2)]


def volume(rng: np.random.Generator, shape: tuple[int, ...]) -> MedicalImage:
    return MedicalImage(rng.integers(0, 255, (1, *shape), np.uint8), AFFINE, "nifti")


def images(parts: list[bytes]) -> list[tuple[str, tuple[str, bytes]]]:
    return [("image", ("file", part)) for part in parts]


@pytest.mark.parametrize("call", ["segment", "features", "manipulate"])
def test_parts_and_one_file_give_the_answer_of_the_library(
    call: str, service: TestClient, models: Path, parts: list[bytes]
) -> None:
    both = encode_image(caps_med.read_channels(parts), "nifti")
    answers = []
    for given in (parts, [both]):
        answer = service.post(f"/v1/models/two/{call}?format=npz", files=images(given))
        assert answer.status_code == 200, answer.text
        answers.append(dict(np.load(io.BytesIO(answer.content))))
    first, second = answers
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])
    if call == "segment":
        expected = caps_med.load_model("two", models).segment(parts)
        np.testing.assert_array_equal(first["probabilities"], expected.probabilities.array)


def test_the_answer_has_the_geometry_of_the_first_part(
    service: TestClient, parts: list[bytes]
) -> None:
    answer = service.post("/v1/models/two/segment", files=images(parts))
    label = read_image(answer.content, kind="labels")
    assert label.array.shape == (1, 20, 28, 3)
    np.testing.assert_allclose(label.affine, AFFINE)


def test_the_channels_are_listed(service: TestClient) -> None:
    listed = {one["name"]: one["channels"] for one in service.get("/v1/models").json()["models"]}
    assert listed["two"] == ["FLAIR", "T1"] and listed["grey"] == ["image"]
    assert listed["axon-synthesis"] == []
    assert service.get("/v1/models/two").json()["channels"] == ["FLAIR", "T1"]


@pytest.mark.parametrize(
    ("model", "count", "detail"),
    [
        ("two", 1, "two takes 2 channels: FLAIR, T1; got 1: give one image for each"),
        ("two", 3, "two takes 2 channels: FLAIR, T1; got 3"),
        ("grey", 2, "grey takes 1 channel; got 2"),
    ],
)
def test_a_wrong_number_of_parts_is_refused(
    model: str, count: int, detail: str, service: TestClient, parts: list[bytes]
) -> None:
    answer = service.post(f"/v1/models/{model}/segment", files=images([*parts, *parts][:count]))
    assert answer.status_code == 422 and detail in answer.json()["detail"]


def test_parts_of_different_size_are_refused(service: TestClient, parts: list[bytes]) -> None:
    other = encode_image(volume(np.random.default_rng(1), (20, 28, 4)), "nifti")
    answer = service.post("/v1/models/two/segment", files=images([parts[0], other]))
    assert answer.status_code == 422
    assert "image 2 has the size 20 x 28 x 4, image 1 20 x 28 x 3" in answer.json()["detail"]


def test_all_parts_together_are_bounded_like_one_upload(service: TestClient) -> None:
    large = encode_image(volume(np.random.default_rng(2), (40, 60, 60)), "nifti")
    assert len(large) < LARGEST < 2 * len(large)
    answer = service.post("/v1/models/two/segment", files=images([large, large]))
    assert (answer.status_code, answer.json()["code"]) == (413, "input_too_large")


def test_decoded_parts_together_are_bounded_like_one_image(
    models: Path, parts: list[bytes]
) -> None:
    settings = Settings(models=models, preload=(), max_inflated_bytes=2 * 20 * 28 * 3 - 1)
    with TestClient(create_app(settings)) as service:
        answer = service.post("/v1/models/two/segment", files=images(parts))
    assert answer.status_code == 413 and "max_inflated_bytes" in answer.json()["detail"]


def test_the_viewer_gets_one_channel(service: TestClient, parts: list[bytes]) -> None:
    both = encode_image(caps_med.read_channels(parts), "nifti")
    for chosen, part in (({}, parts[0]), ({"channel": "1"}, parts[1])):
        answer = service.post("/v1/images?format=nifti", files=images([both]), data=chosen)
        np.testing.assert_array_equal(read_image(answer.content).array, read_image(part).array)
        assert answer.headers["Caps-Med-Channels"] == "2"
        assert answer.headers["Caps-Med-Colour"] == "no"
    for channel in (-1, 2):
        data = {"channel": str(channel)}
        answer = service.post("/v1/images", files=images([both]), data=data)
        told = f"channel={channel}: the image has channels 0 to 1"
        assert answer.status_code == 422 and told in answer.json()["detail"]


def test_the_viewer_gets_colours(service: TestClient) -> None:
    """Those of 8 bits as they are, and none of a grey picture that was saved in colour."""
    pixels = np.random.default_rng(0).integers(90, 140, (3, 5, 7)).astype(np.uint8)
    for array, count, colour in ((pixels, "3", "yes"), (pixels[[0, 0, 0]], "1", "no")):
        picture = images([encode_image(MedicalImage(array), "png")])
        answer = service.post("/v1/images?format=png", files=picture, data={"colour": "true"})
        np.testing.assert_array_equal(read_image(answer.content).array, array)
        assert answer.headers["Caps-Med-Channels"] == count
        assert answer.headers["Caps-Med-Colour"] == colour
