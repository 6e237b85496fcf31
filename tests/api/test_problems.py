"""A caller's mistake is a problem document with a stable code."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from api.app import MAX_FIELDS, create_app
from api.settings import Settings
from caps_med.images import MedicalImage, encode_image

SEGMENT = "/v1/models/tiny-segmentation/segment"
SYNTHESIZE = "/v1/models/tiny-synthesis/synthesize"


def post(client: TestClient, path: str, status: int, code: str, **request: Any) -> str:  # noqa: ANN401
    """Post, check the problem document, return its detail."""
    answer = client.post(path, **request)
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert (answer.status_code, body["status"], body["code"]) == (status, status, code)
    return str(body["detail"])


def test_unknown_model(client: TestClient, picture: bytes) -> None:
    files = {"image": picture}
    detail = post(client, "/v1/models/nope/segment", 404, "model_not_found", files=files)
    assert "available are axon-segmentation" in detail
    path = "/v1/models/tiny-segmentation@9/segment"
    assert "available are 1" in post(client, path, 404, "model_not_found", files=files)
    post(client, "/v1/models/..%2f..%2fetc/segment", 404, "not_found", files=files)
    for name in ("a" * 300, "%00"):
        post(client, f"/v1/models/{name}/segment", 404, "model_not_found", files=files)
        assert client.get(f"/v1/models/{name}").json()["code"] == "model_not_found"


def test_wrong_task(client: TestClient, picture: bytes) -> None:
    path = "/v1/models/tiny-synthesis/segment"
    post(client, path, 422, "wrong_task", files={"image": picture})


def test_what_is_given_twice(client: TestClient, picture: bytes, labels: bytes) -> None:
    """One of them would be left out; an image may have several parts."""
    path, part = "/v1/models/tiny-synthesis/synthesize", ("labels", labels)
    for twice in ([part, part], [part, ("seed", (None, "1")), ("seed", (None, "2"))]):
        detail = post(client, path, 422, "invalid_parameter", files=twice)
        assert detail == f"{twice[-1][0]}: given 2 times, but only one is allowed"
    asked = f"{path}?format=png&format=json"
    detail = post(client, asked, 422, "invalid_parameter", files=[part])
    assert detail == "format: given 2 times, but only one is allowed"
    path, channels = "/v1/models/tiny-segmentation/segment", [("image", picture)] * 2
    assert "channel" in client.post(path, files=channels).json()["detail"]


def test_a_misspelt_parameter(client: TestClient, picture: bytes, labels: bytes) -> None:
    path, files = "/v1/models/tiny-synthesis/synthesize", {"labels": labels}
    detail = post(client, path, 422, "invalid_parameter", files=files, data={"sed": 7})
    assert detail == "there is no part 'sed': known are labels, seed, count"
    detail = post(client, f"{path}?seed=7", 422, "invalid_parameter", files=files)
    assert "no query parameter 'seed': known are format" in detail
    assert detail.endswith("; 'seed' is a part")
    data = {"format": "json"}
    detail = post(client, path, 422, "invalid_parameter", files=files, data=data)
    assert detail.endswith("; 'format' is a query parameter")
    files = {"image": picture, "labels": labels}
    post(client, "/v1/models/tiny-segmentation/segment", 422, "invalid_parameter", files=files)


def test_unknown_layer_and_slice(client: TestClient, picture: bytes) -> None:
    path, files = "/v1/models/tiny-segmentation/features", {"image": picture}
    post(client, path, 404, "layer_not_found", files=files, data={"layer": "x"})
    post(client, path, 422, "invalid_parameter", files=files, data={"slice": 5})


def test_unknown_label(client: TestClient) -> None:
    ids = MedicalImage(np.full((1, 16, 16), 3, np.uint8), format="png", kind="labels")
    files = {"labels": encode_image(ids, "png")}
    assert "the model knows 0, 2, 7" in post(client, SYNTHESIZE, 422, "unknown_label", files=files)


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b"", 422, "invalid_input"),
        (b"hello, this is no image", 415, "unsupported_format"),
        (b"GIF89a" + bytes(100), 415, "unsupported_format"),
        (bytes(600_000), 413, "input_too_large"),
    ],
)
def test_bad_files(client: TestClient, content: bytes, status: int, code: str) -> None:
    post(client, SEGMENT, status, code, files={"image": content})


def test_a_cut_file_is_refused(client: TestClient, volume: bytes, picture: bytes) -> None:
    for content in (volume[: len(volume) // 2], picture[: len(picture) // 2]):
        post(client, SEGMENT, 422, "invalid_input", files={"image": content})


def test_a_body_without_a_length_is_bounded_while_it_streams(client: TestClient) -> None:
    def endless() -> Any:  # noqa: ANN401
        yield b'--x\r\nContent-Disposition: form-data; name="image"; filename="a"\r\n\r\n'
        for _ in range(100):
            yield bytes(10_000)

    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    post(client, SEGMENT, 413, "input_too_large", content=endless(), headers=headers)


@pytest.mark.parametrize("data", [{"seed": -1}, {"seed": "x"}, {"count": 0}, {"count": 65}])
def test_bad_numbers(client: TestClient, labels: bytes, data: dict[str, Any]) -> None:
    post(client, SYNTHESIZE, 422, "invalid_parameter", files={"labels": labels}, data=data)


def test_a_missing_part_is_named(client: TestClient) -> None:
    assert "image: Field required" in post(client, SEGMENT, 422, "invalid_parameter")


def test_text_in_place_of_a_file_is_told(client: TestClient) -> None:
    detail = post(client, SEGMENT, 422, "invalid_parameter", files={"image": (None, "t1.nii.gz")})
    assert detail == "image: must be a file, got text: send it with `-F image=@FILE`"


def test_a_bare_file_that_claims_to_be_a_form_is_told(client: TestClient, volume: bytes) -> None:
    """As ``curl --data-binary @FILE`` sends it, and clients that set Content-Type themselves."""
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    content = b"&".join(b"a%d" % k for k in range(MAX_FIELDS + 1)) + volume
    detail = post(client, SEGMENT, 400, "malformed_request", content=content, headers=headers)
    assert detail.endswith("parts of a multipart form: curl -F (not --data-binary).")
    headers = {"Content-Type": "multipart/form-data"}
    detail = post(client, SEGMENT, 400, "malformed_request", content=volume, headers=headers)
    assert detail.endswith("Let the HTTP client write the header Content-Type.")


def test_a_form_that_is_cut_is_refused(client: TestClient, labels: bytes) -> None:
    """A field that was left out in silence would make another image."""
    files = {"labels": ("a.png", labels), "seed": (None, b"7")}
    request = client.build_request("POST", SYNTHESIZE, files=files)
    whole, headers = request.read(), {"Content-Type": request.headers["Content-Type"]}
    for content in (whole, whole.rstrip(), whole + b"epilogue"):
        assert client.post(SYNTHESIZE, content=content, headers=headers).status_code == 200
    for size in (0, 9, whole.index(labels) + 9, whole.index(b"seed"), len(whole) - len(b"-\r\n")):
        cut = {"content": whole[:size], "headers": headers}
        detail = post(client, SYNTHESIZE, 400, "malformed_request", **cut)
        assert detail == "The form is incomplete: it ends before its last boundary."
    empty = {"content": b"--x--", "headers": {"Content-Type": "multipart/form-data; boundary=x"}}
    assert "Field required" in post(client, SYNTHESIZE, 422, "invalid_parameter", **empty)


def test_a_compressed_body_is_told(client: TestClient, picture: bytes) -> None:
    headers = {"Content-Encoding": "gzip"}
    answer = client.post(SEGMENT, files={"image": picture}, headers=headers)
    assert (answer.status_code, answer.headers["Accept-Encoding"]) == (415, "identity")
    assert answer.json()["code"] == "unsupported_format"
    assert "Content-Encoding: gzip: send the request's body as it is" in answer.json()["detail"]
    headers = {"Content-Encoding": "identity"}
    assert client.post(SEGMENT, files={"image": picture}, headers=headers).status_code == 200


def test_a_form_that_is_not_there(client: TestClient, volume: bytes) -> None:
    files = {"image": volume}
    detail = post(client, SEGMENT, 406, "not_acceptable", files=files, params={"format": "png"})
    assert "must be one of nifti" in detail
    headers = {"Accept": "video/mp4"}
    post(client, SEGMENT, 406, "not_acceptable", files=files, headers=headers)


def predictions(client: TestClient) -> float:
    """How often a network ran for an answer."""
    lines = client.get("/metrics").text.splitlines()
    name = 'caps_med_stage_seconds_count{stage="predict"} '
    return sum(float(line.removeprefix(name)) for line in lines if line.startswith(name))


def test_a_form_that_is_not_there_costs_no_work(
    client: TestClient, volume: bytes, labels: bytes
) -> None:
    before = predictions(client)
    params = {"format": "jpeg"}
    post(client, SEGMENT, 406, "not_acceptable", files={"image": volume}, params=params)
    post(client, SYNTHESIZE, 406, "not_acceptable", files={"labels": labels}, params=params)
    features = "/v1/models/tiny-segmentation/features"
    post(client, features, 406, "not_acceptable", files={"image": volume}, params=params)
    assert predictions(client) == before


def test_a_header_of_huge_pixels_costs_no_work(client: TestClient) -> None:
    array = np.zeros((1, 20, 20, 1), np.float32)
    image = MedicalImage(array, np.diag([400.0, 400, 1, 1]), format="nifti")
    files = {"image": encode_image(image, "nifti")}
    assert "check the spacing" in post(client, SEGMENT, 422, "invalid_input", files=files)


def test_a_problem_is_one_of_rfc_9457(client: TestClient) -> None:
    body = client.get("/v1/models/nope").json()
    assert set(body) == {"type", "title", "status", "code", "detail"}
    assert body["type"] == "urn:caps-med:problem:model-not-found"
    assert body["title"] == "model not found"


def test_unknown_paths_and_methods(client: TestClient) -> None:
    assert client.get("/nope").json()["code"] == "not_found"
    assert client.get(SEGMENT).json()["code"] == "method_not_allowed"


def test_the_unexpected_is_a_bare_500(
    models: Path, picture: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    values = "Jane Doe, /secret/path"

    def fail(*_: object) -> None:
        raise RuntimeError(values)

    monkeypatch.setattr("caps_med.inference.segmenter.Segmenter.__call__", fail)
    app = create_app(Settings(models=models, preload=()))
    with (
        caplog.at_level(logging.INFO, logger="caps_med.api"),
        TestClient(app, raise_server_exceptions=False) as client,
    ):
        files = {"image": ("jane_doe.png", picture)}
        detail = post(client, SEGMENT, 500, "internal_error", files=files)
    assert "Jane" not in detail
    assert "RuntimeError" in caplog.text
    assert "jane" not in caplog.text.lower()
