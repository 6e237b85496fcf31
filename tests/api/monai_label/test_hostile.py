"""What a hostile or broken client of the protocol may send, and the service's answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from api.monai_label.session import one_content
from api.settings import Settings

INFER = "/infer/tiny-segmentation"


@pytest.fixture(scope="module")
def small(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A service with small bounds."""
    settings = Settings(
        models=models, preload=(), training=False, decoders=1, monai_label=True,
        projects_folder=tmp_path_factory.mktemp("projects"), max_upload_bytes=12_000_000,
        max_sessions=8, sessions_max_bytes=400_000,
    )  # fmt: skip
    with TestClient(create_app(settings), raise_server_exceptions=False) as client:
        yield client


def code(answer: object) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("params", "wanted"),
    [
        ("{" + '"a": 1,' * 1_500_000 + '"b": 2}', (400, "malformed_request")),  # 10 MB
        ("[" * 60_000, (422, "invalid_parameter")),
        ("[]", (422, "invalid_parameter")),
        ("{", (422, "invalid_parameter")),
        ('{"result_extension": "/../../x"}', (422, "invalid_parameter")),
        ('{"result_dtype": "object"}', (422, "invalid_parameter")),
        ('{"result_compress": "\\ud800"}', (422, "invalid_parameter")),
    ],
    ids=["10 MB", "deep", "a list", "cut", "a path", "dtype", "surrogate"],
)
def test_params(small: TestClient, volume: bytes, params: str, wanted: tuple[int, str]) -> None:
    answer = small.post(INFER, files={"file": volume, "params": (None, params)})
    assert code(answer) == wanted


@pytest.mark.parametrize("image", ["../../etc/passwd", "/etc/passwd", "..", "a\0b", "x" * 256, ""])
def test_ids_that_are_paths(small: TestClient, image: str) -> None:
    answer = small.post(INFER, params={"image": image}, files={"params": (None, "{}")})
    assert code(answer) == (404, "image_not_found")


def test_names_of_models_that_are_too_long(small: TestClient, volume: bytes) -> None:
    answer = small.post(f"/infer/{'a' * 300}", files={"file": volume, "params": (None, "{}")})
    assert code(answer) == (404, "model_not_found")


@pytest.mark.parametrize("path", ["/activelearning/random", "/train/", "/train/x"])
def test_bodies_of_json(small: TestClient, path: str) -> None:
    headers = {"Content-Type": "application/json"}
    for content, wanted in (
        (b'{"a": "' + b"x" * 10_000_000 + b'"}', (413, "input_too_large")),
        (b"[" * 60_000, (422, "invalid_parameter")),
        (b"\xff", (422, "invalid_parameter")),
        (b'{"client_id": 7, "epochs": "many"}', (422, "invalid_parameter")),
    ):
        assert code(small.post(path, content=content, headers=headers)) == wanted


def test_strategies_and_outputs_that_there_are_not(small: TestClient) -> None:
    assert code(small.post("/activelearning/best", json={})) == (422, "invalid_parameter")
    assert code(small.get("/datastore/", params={"output": "train"})) == (422, "invalid_parameter")
    assert code(small.delete("/datastore/label", params={"id": "x"})) == (405, "method_not_allowed")


def test_ids_of_sessions(small: TestClient) -> None:
    for session in ("0" * 32, "x", "..%5c", "'; --"):
        assert small.get(f"/session/{session}").json() == {}
        assert small.delete(f"/session/{session}").json() == {}
        query = {"session_id": session}
        answer = small.post(INFER, params=query, files={"params": (None, "{}")})
        assert code(answer) == (404, "session_not_found")


def test_sessions_that_pile_up(small: TestClient, volume: bytes) -> None:
    made = [small.put("/session/", files={"files": volume}) for _ in range(40)]
    assert {answer.status_code for answer in made} == {200}
    there = [small.get(f"/session/{answer.json()['session_id']}").json() for answer in made]
    assert [bool(each) for each in there] == [False] * 36 + [True] * 4
    answer = small.put("/session/", files={"files": bytes(300_000)})
    assert code(answer) == (413, "input_too_large")


def test_slices_are_packed_beside_the_event_loop(
    small: TestClient, volume: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def packed(contents: Sequence[bytes]) -> bytes:
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        return one_content(contents)

    monkeypatch.setattr("api.monai_label.session.one_content", packed)
    answer = small.put("/session/", files=[("files", volume), ("files", volume)])
    assert answer.status_code == 200, answer.text


def test_the_names_of_files_do_not_matter(small: TestClient, volume: bytes) -> None:
    files = {"file": ("../../../etc/cron.d/x", volume), "params": (None, "{}")}
    assert small.post(INFER, files=files).status_code == 200


def test_what_is_no_image(small: TestClient) -> None:
    for content, wanted in ((b"", "invalid_input"), (b"MZ" * 99, "unsupported_format")):
        files = {"file": ("x.nii.gz", content), "params": (None, "{}")}
        assert small.post(INFER, files=files).json()["code"] == wanted
        session = small.put("/session/", files={"files": ("x", content)})
        if content:  # decoded when it is used
            query = {"session_id": session.json()["session_id"]}
            answer = small.post(INFER, params=query, files={"params": (None, "{}")})
            assert answer.json()["code"] == wanted
        else:
            assert code(session) == (422, wanted)


def test_unknown_parts_and_parameters(small: TestClient, volume: bytes) -> None:
    files = {"file": volume, "label": volume, "params": (None, "{}")}
    assert code(small.post(INFER, files=files)) == (422, "invalid_parameter")
    answer = small.post(INFER, params={"url": "http://10.0.0.1"}, files={"params": (None, "{}")})
    assert code(answer) == (422, "invalid_parameter")


def test_dicom_seg_of_what_is_not_dicom(small: TestClient, volume: bytes) -> None:
    files = {"file": volume, "params": (None, "{}")}
    answer = small.post(INFER, params={"output": "dicom_seg"}, files=files)
    assert code(answer) == (415, "unsupported_format")


def test_off_unless_asked_for(models: Path) -> None:
    with TestClient(create_app(Settings(models=models, preload=(), training=False))) as plain:
        for path in ("/info/", "/auth/", "/datastore/", "/train/"):
            assert plain.get(path).status_code == 404
