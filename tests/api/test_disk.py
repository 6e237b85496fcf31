"""A disk that is full, read-only or damaged: inference goes on, jobs and audit say so."""

from __future__ import annotations

import errno
import io
import json
import re
import shutil
import sqlite3
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from pydantic import ValidationError

from api import logs
from api.app import create_app
from api.database import Database
from api.jobs.archive import ArchiveLimits, unpack
from api.jobs.job import Options
from api.jobs.store import JobStore
from api.jobs.supervisor import Supervisor
from api.settings import Settings
from caps_med.bundles import ModelRepository
from caps_med.errors import InvalidInput, InvalidParameter
from tests.api.jobs import zipped
from tests.conftest import tiny_card, write_tiny

NAME = "tiny-segmentation"
SEGMENT = f"/v1/models/{NAME}/segment"
JOBS = "/v1/training-jobs"
PROJECTS = "/v1/projects"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_tiny(tmp_path / "models", NAME, tiny_card("segmentation"))
    return tmp_path / "models"


def damaged(folder: Path) -> None:
    (folder / "jobs.sqlite3").write_bytes(b"no database" * 1000)


def damaged_inside(folder: Path) -> None:
    """The header is right, a page is not."""
    store = JobStore(folder / "jobs.sqlite3")
    with store._database.connection() as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    content = bytearray((folder / "jobs.sqlite3").read_bytes())
    content[4096:8192] = b"x" * 4096
    (folder / "jobs.sqlite3").write_bytes(content)


def of_the_future(folder: Path) -> None:
    with sqlite3.connect(folder / "jobs.sqlite3") as connection:
        connection.execute("PRAGMA user_version = 99")


def a_file(folder: Path) -> None:
    folder.rmdir()
    folder.write_bytes(b"")


@pytest.mark.parametrize("breaks", [damaged, damaged_inside, of_the_future, a_file])
def test_jobs_that_cannot_be_stored_leave_inference_alone(
    breaks: Callable[[Path], None], root: Path, picture: bytes, discs: Path
) -> None:
    (root / ".jobs").mkdir()
    breaks(root / ".jobs")
    with TestClient(create_app(Settings(models=root, preload=()))) as client:
        assert client.post(SEGMENT, files={"image": picture}).status_code == 200
        for answer in (
            client.get(JOBS),
            client.post(
                JOBS,
                data={"task": "segmentation", "name": "x"},
                files={"archive": zipped(discs)},
            ),
        ):
            assert (answer.status_code, answer.json()["code"]) == (503, "storage_unavailable")
            assert str(root) not in answer.text


def test_a_file_of_jobs_that_is_damaged_later_is_a_503(root: Path, picture: bytes) -> None:
    app = create_app(Settings(models=root, preload=()))
    with TestClient(app, raise_server_exceptions=False) as client:
        assert client.get(JOBS).status_code == 200
        for path in (root / ".jobs").glob("jobs.sqlite3*"):
            path.write_bytes(b"no database" * 1000)
        answer = client.get(JOBS)
        assert (answer.status_code, answer.json()["code"]) == (503, "storage_unavailable")
        assert client.post(SEGMENT, files={"image": picture}).status_code == 200


@pytest.mark.parametrize(
    ("number", "status", "code"),
    [
        (errno.ENOSPC, 507, "disk_full"),
        (errno.EDQUOT, 507, "disk_full"),
        (errno.EROFS, 503, "storage_unavailable"),
        (errno.EIO, 503, "storage_unavailable"),
    ],
)
def test_what_the_disk_refuses_during_an_upload_is_a_problem(
    number: int,
    status: int,
    code: str,
    root: Path,
    discs: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, "no", str(root / "secret"))

    monkeypatch.setattr("api.jobs.archive._Writer.write", refuse)
    app = create_app(Settings(models=root, preload=()))
    with TestClient(app, raise_server_exceptions=False) as client:
        answer = client.post(
            JOBS, data={"task": "segmentation", "name": "x"}, files={"archive": zipped(discs)}
        )
        assert (answer.status_code, answer.json()["code"]) == (status, code)
        assert "secret" not in answer.text
        assert re.search(r"the disk refuses: \w+: no, on the disk at /", caplog.text)
        assert "secret" not in caplog.text  # the name of a file in an archive may be a patient's
        assert client.get(JOBS).json()["jobs"] == []
    assert [path.name for path in (root / ".jobs").iterdir() if path.is_dir()] == []


def test_a_full_disk_under_the_file_of_jobs_is_a_507(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    app = create_app(Settings(models=root, preload=()))
    with TestClient(app, raise_server_exceptions=False) as client:
        monkeypatch.setattr(JobStore, "newest", full)
        answer = client.get(JOBS)
        assert (answer.status_code, answer.json()["code"]) == (507, "disk_full")


def test_routes_that_write_say_that_the_disk_may_be_full(
    root: Path, picture: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that delete, and one that only reserves an image."""

    def full(_: Database) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    app = create_app(Settings(models=root, preload=(), monai_label=True))
    with TestClient(app) as client:
        monkeypatch.setattr(Supervisor, "tick", lambda _: None)
        job = app.state.jobs.store.add("a" * 32, "segmentation", "x", "d", False, Options()).id
        form = {"name": "monai-label", "model": NAME}
        project = f"{PROJECTS}/{client.post(PROJECTS, data=form).json()['id']}"
        added = client.post(f"{project}/images", files={"images": ("a.png", picture)}).json()
        image = added["images"][0]["id"]
        monkeypatch.setattr(Database, "transaction", full)
        document = app.openapi()["paths"]
        for method, url, path in (
            ("DELETE", project, "/v1/projects/{project}"),
            ("GET", f"{project}/next", "/v1/projects/{project}/next"),
            ("DELETE", f"{project}/images/{image}", "/v1/projects/{project}/images/{image}"),
            ("DELETE", f"{JOBS}/{job}", "/v1/training-jobs/{job}"),
            ("DELETE", f"/datastore/?id={image}", "/datastore/"),
            ("DELETE", f"/datastore/image?id={image}", "/datastore/image"),
            ("POST", "/activelearning/random", "/activelearning/{strategy}"),
        ):
            answer = client.request(method, url)
            assert (answer.status_code, answer.json()["code"]) == (507, "disk_full"), url
            assert "507" in document[path][method.lower()]["responses"], url


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of its own, of 8 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("only root may mount a disk")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Take all that is left of a disk."""
    file = folder / "filled"
    with file.open("wb", buffering=0) as opened, suppress(OSError):
        while True:
            opened.write(bytes(4096))
    return file


def test_a_disk_that_fills_up_is_a_507_until_there_is_room(root: Path, small_disk: Path) -> None:
    settings = Settings(models=root, preload=(), projects_folder=small_disk / "projects")
    app = create_app(settings)
    with TestClient(app, raise_server_exceptions=False) as client:
        made = {"name": "liver", "model": NAME}
        assert client.post(PROJECTS, data=made).status_code == 201
        filled = fill(small_disk)
        for answer in (client.get(PROJECTS), client.post(PROJECTS, data=made | {"name": "two"})):
            assert (answer.status_code, answer.json()["code"]) == (507, "disk_full")
        filled.unlink()
        assert [one["name"] for one in client.get(PROJECTS).json()["projects"]] == ["liver"]
        assert client.post(PROJECTS, data=made | {"name": "two"}).status_code == 201


def test_damage_inside_an_archive_is_not_the_disks(tmp_path: Path) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a", b"x" * 1000)
    broken = io.BytesIO(file.getvalue().replace(b"x" * 1000, b"y" * 1000))
    with pytest.raises(InvalidInput, match=r"the archive is corrupt \(BadZipFile\)"):
        unpack(broken, tmp_path / "out", ArchiveLimits(10**6, 10))
    with pytest.raises(InvalidInput, match=r"the archive is corrupt \(BadGzipFile\)"):
        unpack(io.BytesIO(b"\x1f\x8b" * 99), tmp_path / "other", ArchiveLimits(10**6, 10))


def test_a_promotion_that_cannot_be_written_is_a_503(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(root))

    monkeypatch.setattr(ModelRepository, "promote", read_only)
    app = create_app(Settings(models=root, preload=()))
    with TestClient(app, raise_server_exceptions=False) as client:
        answer = client.put(f"/v1/models/{NAME}@1/promoted")
    assert (answer.status_code, answer.json()["code"]) == (503, "storage_unavailable")
    assert str(root) not in answer.text


@pytest.mark.usefixtures("fresh_logging")
class TestAudit:
    def test_a_lost_record_is_said(
        self, root: Path, picture: bytes, capfd: pytest.CaptureFixture[str]
    ) -> None:
        logs.configure(Path("/dev/full"))
        with TestClient(create_app(Settings(models=root, preload=()))) as client:
            assert client.post(SEGMENT, files={"image": picture}).status_code == 200
        assert "an audit record cannot be written" in capfd.readouterr().err

    def test_a_required_record_comes_before_the_answer(self, root: Path, picture: bytes) -> None:
        full = Path("/dev/full")
        logs.configure(full)
        settings = Settings(models=root, preload=(), audit_log=full, audit_required=True)
        with TestClient(create_app(settings)) as client:
            answer = client.post(SEGMENT, files={"image": picture})
            assert (answer.status_code, answer.json()["code"]) == (503, "storage_unavailable")
            assert answer.headers["content-type"] == "application/problem+json"
            assert client.get("/healthz").status_code == 200

    def test_a_disk_that_has_room_again_gets_the_next_record(
        self, root: Path, tmp_path: Path
    ) -> None:
        path = tmp_path / "audit.jsonl"
        path.symlink_to("/dev/full")
        logs.configure(path)
        settings = Settings(models=root, preload=(), audit_log=path, audit_required=True)
        with TestClient(create_app(settings)) as client:
            assert client.get("/v1/models").status_code == 503
            path.unlink()
            assert client.get("/v1/models").status_code == 200
            path.unlink()
            path.mkdir()
            assert client.get("/v1/models").status_code == 503
            path.rmdir()
            assert client.get("/v1/models").status_code == 200
        assert len(path.read_text().splitlines()) == 1

    def test_a_required_record_is_written_once(
        self, root: Path, picture: bytes, tmp_path: Path
    ) -> None:
        path = tmp_path / "audit.jsonl"
        logs.configure(path)
        settings = Settings(models=root, preload=(), audit_log=path, audit_required=True)
        with TestClient(create_app(settings)) as client:
            assert client.post(SEGMENT, files={"image": picture}).status_code == 200
            assert client.get("/v1/models/none").status_code == 404
            assert client.head("/v1/models").status_code == 200
        records = [json.loads(line) for line in path.read_text().splitlines()]
        assert [record["outcome"] for record in records] == ["200", "404", "200"]
        assert records[2]["action"] == "HEAD /v1/models"
        assert records[0]["model"] == NAME
        assert records[0]["input_sha256"]

    def test_a_requirement_needs_a_file(self) -> None:
        with pytest.raises(ValidationError, match="AUDIT_REQUIRED needs CAPS_MED_AUDIT_LOG"):
            Settings(audit_required=True)

    def test_a_file_that_cannot_be_opened_is_said_in_one_line(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidParameter, match=r"CAPS_MED_AUDIT_LOG=.*: Is a directory"):
            logs.configure(tmp_path)


def test_a_repository_that_is_gone_leaves_the_loaded_models(root: Path, picture: bytes) -> None:
    with TestClient(create_app(Settings(models=root, preload=(NAME,)))) as client:
        assert client.post(SEGMENT, files={"image": picture}).status_code == 200
        shutil.move(root / ".jobs", root.parent / "moved")
        assert client.post(SEGMENT, files={"image": picture}).status_code == 200
        answer = client.get(JOBS)
        assert (answer.status_code, answer.json()["code"]) == (503, "storage_unavailable")
