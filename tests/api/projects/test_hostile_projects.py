"""What projects refuse, and what they survive."""

from __future__ import annotations

import gzip
import os
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest
from fastapi.testclient import TestClient

from api.access.gate import scope_of
from api.access.keys import KeyStore
from api.app import create_app
from api.jobs.names import ModelNames
from api.jobs.store import JobStore
from api.problems import Refusal
from api.projects import files as files_module
from api.projects.choice import FREE, Choice
from api.projects.files import ProjectFiles, sweep
from api.projects.records import Image, Project, Round
from api.projects.store import ProjectStore
from api.settings import MIB, Settings
from caps_med.bundles import ModelRepository
from tests.api.hostile import header
from tests.api.projects.conftest import SIZE, Create, add, code, discs, png, upload
from tests.api.running import Running
from tests.api.test_access import new
from tests.images.picture_files import chunk
from tests.images.picture_files import png as picture
from tests.waiting import until
from tests.zips import zip_of

FIRST = {"If-None-Match": "*"}


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("../../../etc/passwd.png", "passwd.png"),
        ("C:\\scans\\..\\a.png", "a.png"),
        ("/absolute.png", "absolute.png"),
        ("..", ".."),
        ("é" * 500, "é" * 200),
    ],
)
def test_no_name_becomes_a_path(
    client: httpx.Client, create: Create, own_models: Path, name: str, shown: str
) -> None:
    project = create()
    (view,) = upload(client, project, {name: discs(1)[0][0]}).json()["images"]
    assert view["name"] == shown
    (file,) = (own_models / ".projects" / project.rpartition("/")[2]).iterdir()
    assert file.suffix == ".png" and len(file.stem) == 32


@pytest.mark.parametrize(
    ("labels", "status", "reason"),
    [
        (np.zeros((SIZE + 8, SIZE), np.uint8), 422, "resample it"),
        (np.zeros((4096, 4096), np.uint8), 422, "resample it"),
        (np.full((SIZE, SIZE), 9, np.uint8), 422, "the ids 9"),
        (b"", 422, "the body is empty"),
        (b"no label map", 415, "no known format"),
        (gzip.compress(header((32767, 32767, 32767))), 422, "cannot hold them"),
    ],
    ids=["larger", "much larger", "unknown", "empty", "garbage", "huge"],
)
def test_what_is_no_label_map_of_the_image(
    client: httpx.Client, create: Create, labels: np.ndarray | bytes, status: int, reason: str
) -> None:
    """It is refused, and the image stays as it is."""
    (image,) = add(client, create(), {"a.png": discs(1)[0][0]})
    content = labels if isinstance(labels, bytes) else png(labels, "labels")
    answer = client.put(f"{image}/labels", content=content, headers=FIRST)
    assert answer.status_code == status, answer.text
    assert reason in answer.json()["detail"]
    assert client.get(image, params={"format": "json"}).json()["state"] == "unlabelled"
    assert client.get(f"{image}/labels/versions").json()["versions"] == []


def test_a_bad_file_among_good_ones_adds_none(
    client: httpx.Client, create: Create, own_models: Path
) -> None:
    project = create()
    bomb = gzip.compress(header((512, 512, 512)) + bytes(2**22))
    answer = upload(client, project, {"a.png": discs(1)[0][0], "b.nii.gz": bomb})
    assert answer.status_code in (413, 422)
    assert "b.nii.gz" in answer.json()["detail"]
    assert client.get(f"{project}/images").json()["images"] == []
    assert not (own_models / ".projects" / project.rpartition("/")[2]).exists()


def test_what_a_zip_inflates_to_needs_room_as_all_else(own_models: Path, tmp_path: Path) -> None:
    """Of a small picture with much beside its pixels, only these were counted."""
    plain, much = bytes((SIZE + 1) * SIZE), chunk(b"noTe", bytes(40 * MIB))
    zips = [zip_of(("a.png", picture(SIZE, SIZE, plain, extra=e))) for e in (b"", much)]
    folder = tmp_path / "projects"
    settings = Settings(
        models=own_models, preload=(), projects_folder=folder, memory_bytes=64 * MIB
    )
    with TestClient(create_app(settings)) as client:
        project = client.post("/v1/projects", data={"name": "x", "model": "discs"}).json()["id"]
        path = f"/v1/projects/{project}/images"
        answers = [client.post(path, files=[("images", ("a.zip", each))]) for each in zips]
    assert [answer.status_code for answer in answers] == [201, 413], answers[1].text
    assert answers[1].json()["detail"].startswith("a.zip: this request would need about 8")
    assert len([*(folder / project).iterdir()]) == 1


@pytest.mark.parametrize(
    ("form", "status", "problem"),
    [
        ({"name": "x", "model": "no-such-model"}, 404, "model_not_found"),
        ({"name": "x", "model": "brain-t1-synthesis"}, 422, "wrong_task"),
        ({"name": "x\n", "model": "discs"}, 422, "invalid_parameter"),
        ({"name": "x", "model": "discs", "labels": "5=other"}, 422, "invalid_parameter"),
        ({"name": "x", "model": "discs", "labels": "1=a\nb"}, 422, "invalid_parameter"),
        ({"name": "x", "model": "../discs"}, 404, "model_not_found"),
        ({"name": "x", "model": "a" * 300}, 404, "model_not_found"),
    ],
)
def test_projects_that_cannot_be(
    client: httpx.Client, form: dict[str, str], status: int, problem: str
) -> None:
    assert code(client.post("/v1/projects", data=form)) == (status, problem)


def test_of_many_annotators_at_once_one_is_first(client: httpx.Client, create: Create) -> None:
    (image,) = add(client, create(), {"a.png": discs(1)[0][0]})
    masks = [mask for _, mask in discs(6)]

    def save(number: int) -> int:
        path = f"{image}/labels?author=annotator-{number}"
        return client.put(path, content=masks[number], headers=FIRST).status_code

    with ThreadPoolExecutor(6) as pool:
        statuses = sorted(pool.map(save, range(6)))
    assert statuses == [201, *[412] * 5]
    assert len(client.get(f"{image}/labels/versions").json()["versions"]) == 1


def test_of_many_predictions_at_once_all_get_the_first(
    server: Running, client: httpx.Client, create: Create
) -> None:
    """They were told to bring their corrections into it; where a person was first, they are told
    that.
    """
    image, other = add(client, create(), {f"{n}.png": pair[0] for n, pair in enumerate(discs(2))})

    def predict(path: str) -> httpx.Response:
        return client.post(f"{path}/predict")

    with ThreadPoolExecutor(4) as pool:
        with server.held("discs"):
            answers = [pool.submit(predict, path) for path in (image, image, image, other)]
            until(lambda: server.waiting() == 4)
            assert client.put(f"{other}/labels", content=discs(1)[0][1], headers=FIRST).is_success
        *same, late = [answer.result() for answer in answers]
    assert sorted(answer.status_code for answer in same) == [200, 200, 201]
    assert [answer.json()["version"] for answer in same] == [1] * 3
    assert code(late) == (409, "already_corrected")
    assert len(client.get(f"{image}/labels/versions").json()["versions"]) == 1


@pytest.fixture
def guarded(own_models: Path, tmp_path: Path) -> Iterator[tuple[TestClient, KeyStore]]:
    """A service with keys and little room."""
    keys = KeyStore(tmp_path / "keys.db")
    settings = Settings(
        models=own_models, preload=(), keys=keys.path, projects_folder=tmp_path / "projects",
        projects_max_bytes=24_000, max_project_images=3,
    )  # fmt: skip
    with TestClient(create_app(settings), raise_server_exceptions=False) as client:
        yield client, keys


def test_a_project_is_its_key_s(guarded: tuple[TestClient, KeyStore]) -> None:
    client, keys = guarded
    mine, theirs, admin = new(keys, "infer"), new(keys, "infer", "train"), new(keys, "admin")
    form = {"name": "x", "model": "discs"}
    project = client.post("/v1/projects", data=form, headers=mine).headers["Location"]
    for path in ("", "/images", "/next", "/rounds", "/export"):
        assert code(client.get(project + path, headers=theirs)) == (404, "project_not_found")
    assert code(client.post(f"{project}/learn", headers=theirs)) == (404, "project_not_found")
    assert code(client.delete(project, headers=theirs)) == (404, "project_not_found")
    assert client.get("/v1/projects", headers=theirs).json()["projects"] == []
    assert client.get(project, headers=admin).status_code == 200
    assert code(client.post(f"{project}/learn", headers=mine)) == (403, "forbidden")
    assert client.delete(project, headers=mine).status_code == 204


def test_quotas(guarded: tuple[TestClient, KeyStore], tmp_path: Path) -> None:
    """One key gets half of the room; what does not fit leaves no file."""
    client, keys = guarded
    headers = new(keys, "infer")
    form = {"name": "x", "model": "discs"}
    project = client.post("/v1/projects", data=form, headers=headers).headers["Location"]
    image = discs(1)[0][0]
    assert 4_000 < 2 * len(image) < 12_000 < 4 * len(image)

    def send(count: int) -> tuple[int, str]:
        parts = [("images", (f"{i}.png", image)) for i in range(count)]
        return code(client.post(f"{project}/images", files=parts, headers=headers))

    assert send(4) == (507, "quota_exceeded")
    folder = tmp_path / "projects" / project.rpartition("/")[2]
    assert list(folder.iterdir()) == []
    assert send(2) == (201, "")
    assert len(list(folder.iterdir())) == 2
    assert send(2) == (507, "quota_exceeded")
    assert client.get(project, headers=headers).json()["bytes"] == 2 * len(image)


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("GET", "/v1/projects", "infer"),
        ("PUT", "/v1/projects/x/images/y/labels", "infer"),
        ("DELETE", "/v1/projects/x", "infer"),
        ("POST", "/v1/projects/x/learn", "train"),
        ("POST", "/v1/Projects/x/LEARN/", "train"),
    ],
)
def test_scopes(method: str, path: str, scope: str) -> None:
    assert scope_of(method, path) == scope


def image_of(project: Project) -> Image:
    return Image(
        number=0, id="c" * 32, project=project.id, name="x", file="a.png", format="png",
        channels=1, shape=(8, 8), affine=None, bytes=1, created=0.0,
    )  # fmt: skip


def stored(tmp_path: Path) -> tuple[ProjectStore, Project]:
    store = ProjectStore(tmp_path / "projects.sqlite3", 10**9, 10**7)
    project = Project(
        number=0, id="a" * 32, name="x", owner=None, start_model="m@1", model="m@1",
        trained_name="x-aaaaaaaa", labels={0: "background", 1: "disc"}, seed=0, held_out=0.2,
        created=0.0,
    )  # fmt: skip
    return store, store.add_project(project)


def test_a_million_images_are_listed_page_by_page(tmp_path: Path) -> None:
    """No query goes through all of them: each follows an index, and none sorts."""
    store, project = stored(tmp_path)
    with store.database.transaction() as connection:
        connection.execute(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50000) "
            "INSERT INTO images (id, project, name, file, format, channels, shape, bytes, created, "
            "state, scored, uncertainty, draw) SELECT printf('%032x', i), ?, 'x', i, 'png', 1, "
            "'[8, 8]', 1, 0, iif(i % 2, 'corrected', 'unlabelled'), 1, (i % 97) / 97.0, "
            "(i % 89) / 89.0 FROM n",
            (project.id,),
        )
    page = store.images(project.id, None, 49_000, 200)
    assert [image.number for image in page] == list(range(49_001, 49_201))
    corrected = store.images(project.id, "corrected", 0, 200)
    assert {image.state for image in corrected} == {"corrected"} and len(corrected) == 200
    assert store.counts(project.id)["corrected"] == 25_000
    chosen = Choice(store.database).next(project.id, "uncertainty", "a")
    assert chosen is not None and chosen[0].uncertainty == max(i % 97 for i in range(97)) / 97.0
    queries = [
        "images WHERE project = :project AND number > 5 ORDER BY number LIMIT 5",
        "images WHERE project = :project AND state = 'corrected' AND number > 5 "
        "ORDER BY number LIMIT 5",
        "images WHERE project = :project AND scored = 0 ORDER BY number LIMIT 1",
        f"images WHERE {FREE} ORDER BY draw LIMIT 1",
        f"images WHERE {FREE} AND uncertainty IS NOT NULL ORDER BY uncertainty DESC LIMIT 1",
    ]
    free = {"project": project.id, "author": "a", "now": 5, "lease": 600, "skip": "[]"}
    with store.database.connection() as connection:
        for query in queries:
            rows = connection.execute(f"EXPLAIN QUERY PLAN SELECT id FROM {query}", free).fetchall()  # noqa: S608 - ours
            plan = " ".join(row[3] for row in rows)
            assert "SEARCH images USING" in plan and "TEMP B-TREE" not in plan, (query, plan)


def test_what_a_kill_leaves_is_swept(tmp_path: Path) -> None:
    """But not what may still get its record."""
    store, project = stored(tmp_path)
    files = ProjectFiles(tmp_path, project.id)
    orphan = files.path(files.write(b"x", "png"))
    partial = files.folder / "half.png.partial"
    partial.write_bytes(b"x")
    gone = ProjectFiles(tmp_path, "b" * 32)
    gone.write(b"x", "png")
    sweep(tmp_path, store)
    assert orphan.exists() and partial.exists() and gone.folder.exists()
    past = time.time() - files_module.FRESH - 1
    for path in (orphan, partial, gone.folder, files.folder):
        os.utime(path, (past, past))
    sweep(tmp_path, store)
    assert list(files.folder.iterdir()) == []
    assert not gone.folder.exists()
    assert (tmp_path / "projects.sqlite3").exists()


def test_a_failed_write_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, project = stored(tmp_path)
    files = ProjectFiles(tmp_path, project.id)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("api.projects.files.os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        files.write(b"x", "png")
    assert list(files.folder.iterdir()) == []


def test_a_deleted_project_takes_no_images(tmp_path: Path) -> None:
    """One that is deleted while images arrive."""
    store, project = stored(tmp_path)
    for _ in range(2):
        assert store.delete_project(project.id) is None
    with pytest.raises(Refusal, match="there is no project"):
        store.add_images([(image_of(project), 0.5)])


def test_no_round_of_a_deleted_project_is_kept(tmp_path: Path) -> None:
    store, project = stored(tmp_path)
    one = Round(
        project=project.id, round=1, job="j", state="training", created=0.0, base="m@1",
        corrected=2, trained_on=1, held_out=1,
    )  # fmt: skip
    store.add_round(one, [], [])
    with pytest.raises(Refusal, match="has not finished"):  # another service was first
        store.add_round(one, [], [])
    store.delete_project(project.id)
    assert store.open_rounds() == []
    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
        store.add_round(one, [], [])


def test_an_image_is_deleted_once(tmp_path: Path) -> None:
    store, project = stored(tmp_path)
    (image,) = store.add_images([(image_of(project), 0.5)])
    assert store.delete_image(image) == ["a.png"]
    assert store.delete_image(image) == []
    assert store.project(project.id) == project


def test_the_name_of_a_project_s_models_is_nobody_else_s(tmp_path: Path) -> None:
    names = ModelNames(JobStore(tmp_path / "jobs.sqlite3"), ModelRepository(tmp_path / "models"))
    names.reserve("x-aaaaaaaa", "project:" + "a" * 32)
    assert names.is_foreign("x-aaaaaaaa", None)
    for owner in (None, "key 0123456789ab"):
        with pytest.raises(Refusal, match="choose another name"):
            names.check("x-aaaaaaaa", owner, admin=False)
    names.take("mine", "key 0123456789ab")
    assert not names.is_foreign("mine", "key 0123456789ab")
