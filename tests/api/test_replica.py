"""A replica infers, and says where everything else belongs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from api.cluster.command import with_absolute_paths
from api.commands import serve
from api.settings import Settings
from caps_med import extras
from caps_med.client import Client
from caps_med.errors import MissingExtra


@pytest.fixture(scope="module")
def replica(models: Path) -> Iterator[TestClient]:
    settings = Settings(models=models, preload=("tiny-segmentation",), inference_only=True)
    with TestClient(create_app(settings)) as client:
        yield client


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
@pytest.mark.parametrize("path", ["training-jobs", "training-jobs/a/events", "projects",
                                  "projects/a/images", "inference-jobs/a"])  # fmt: skip
def test_what_the_head_has_is_misdirected(replica: TestClient, method: str, path: str) -> None:
    answer = replica.request(method, f"/v1/{path}")
    assert answer.status_code == 421
    assert answer.headers["Content-Type"] == "application/problem+json"
    problem = answer.json()
    assert problem["code"] == "misdirected"
    assert f"/v1/{path.partition('/')[0]} there" in problem["detail"]


def test_other_paths_are_not_misdirected(replica: TestClient) -> None:
    assert replica.get("/v1/projectsx").status_code == 404
    assert replica.get("/v1/models").status_code == 200


def test_an_answer_in_the_background_comes_at_once(replica: TestClient, picture: bytes) -> None:
    url = "/v1/models/tiny-segmentation/segment"
    plain = replica.post(url, files={"image": picture})
    for query, headers in (("", {"Prefer": "respond-async"}), ("?async=1", {})):
        answer = replica.post(url + query, files={"image": picture}, headers=headers)
        assert answer.status_code == 200
        assert "Preference-Applied" not in answer.headers
        assert answer.content == plain.content


def test_the_client_that_waits_gets_its_answer(replica: TestClient, picture: bytes) -> None:
    with Client("http://testserver", transport=replica._transport) as client:
        assert client.segment("tiny-segmentation", picture, wait=True) == client.segment(
            "tiny-segmentation", picture
        )


def test_replicas_get_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They run in other folders than the command that deploys them."""
    monkeypatch.chdir(tmp_path)
    archive = {"url": "https://pacs", "user": "ai", "password_file": "secret", "ca_file": "ca.pem"}
    given = {"models": "models", "audit_log": "audit.jsonl", "archives": {"pacs": archive}}
    settings = with_absolute_paths(Settings.model_validate(given))
    pacs = settings.archives["pacs"]
    found = [settings.models, settings.audit_log, pacs.password_file, pacs.ca_file]
    assert found == [tmp_path / name for name in ("models", "audit.jsonl", "secret", "ca.pem")]
    assert (settings.jobs_folder, pacs.token_file) == (None, None)
    assert "trusted_proxies" not in settings.model_fields_set  # which a replica has its own of


def test_monai_label_needs_one_process() -> None:
    with pytest.raises(
        ValueError, match="MONAI Label keeps sessions, for which one process is needed"
    ):
        Settings(inference_only=True, monai_label=True)


def test_without_ray_the_command_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "has_extra", lambda extra: extra != "scale")
    with pytest.raises(MissingExtra, match=r"serve --cluster needs more .*'caps-med\[scale\]'"):
        serve(cluster=True)
