"""Uploads to train on are unpacked and checked within bounds, and the answer tells no path."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import threading
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

import httpx
import nibabel as nib
import numpy as np
import pytest
from fastapi import FastAPI

from api.jobs import service, supervisor
from api.jobs.archive import ArchiveLimits, unpack
from api.jobs.check import findings, inspect, leads_outside
from api.jobs.job import Options
from api.settings import MIB, Settings
from tests.api import http
from tests.api.jobs import zipped
from tests.api.running import Running, run_async, running
from tests.waiting import PATIENCE, until

JOBS = "/v1/training-jobs"
pytestmark = pytest.mark.usefixtures("started_jobs")  # as what they have imported counts


def checked(folder: Path, result: Path, memory: int) -> dict[str, Any]:
    return run_async(findings(folder, "segmentation", Options(), result, 100, memory, 0))


def test_little_memory_is_enough_for_small_images(discs: Path, tmp_path: Path) -> None:
    """Neither the libraries nor the largest file that could be read count."""
    assert checked(discs, tmp_path / "result.json", 64 * MIB)["errors"] == 0


def test_a_file_that_inflates_is_refused_with_advice(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    for kind in ("images", "labels"):
        (folder / kind).mkdir(parents=True)
        header = nib.Nifti1Image(np.zeros((1, 1, 1), np.uint8), np.eye(4)).header
        header.set_data_shape((1000, 1000, 400))
        header.set_slope_inter(1, 0)
        content = header.binaryblock + bytes(4 + 400 * 10**6)
        (folder / kind / "a.nii.gz").write_bytes(gzip.compress(content, 1))
    found = checked(folder, tmp_path / "result.json", 200 * MIB)
    assert found["errors"]
    said = json.dumps(found)
    assert "crop or downsample" in said
    assert "save it again" not in said


@pytest.mark.parametrize(
    "name", ["/etc/{}", "../{}", "images/../../{}", "..\\{}", "images\\..\\..\\{}"]
)
@pytest.mark.parametrize("kind", ["json", "csv", "dataset.json", "nnU-Net's dataset.json"])
def test_files_outside_are_refused_whether_they_exist_or_not(
    name: str, kind: str, tmp_path: Path
) -> None:
    answers = []
    for file in ("passwd", "no-such-file"):
        folder = tmp_path / file / "data"
        (folder / "imagesTr").mkdir(parents=True)
        (tmp_path / file / "passwd").write_text("x")
        entry = {"image": name.format(file), "label": "here.png"}
        if kind == "csv":
            (folder / "list.csv").write_text(f"image,label\n{entry['image']},here.png\n")
        elif kind == "json":
            (folder / "list.json").write_text(json.dumps([entry]))
        elif kind.startswith("nnU-Net"):
            (folder / "dataset.json").write_text(
                json.dumps({"dataset": {"a": entry}, "labels": {}})
            )
        else:
            (folder / "dataset.json").write_text(json.dumps({"training": [entry], "labels": {}}))
        answers.append(inspect(folder, "segmentation", Options()))
    assert answers[0] == answers[1]
    assert [found["code"] for found in answers[0]["findings"]] == ["outside"]


def test_classified_images_are_checked_as_such(discs: Path, tmp_path: Path) -> None:
    picture = next(discs.glob("images/*")).read_bytes()
    folder = tmp_path / "data"
    for name in ("benign", "malignant"):
        (folder / name).mkdir(parents=True)
        (folder / name / "a.png").write_bytes(picture)
    found = inspect(folder, "classification", Options())
    assert {one["code"] for one in found["findings"]} >= {"class_conflict"}
    assert str(tmp_path) not in json.dumps(found)
    (folder / "list.csv").write_text("image,class\n../passwd,benign\n")
    found = inspect(folder, "classification", Options())
    assert [one["code"] for one in found["findings"]] == ["outside"]


@pytest.mark.parametrize(("delimiter", "other"), [(",", ";"), (";", ","), (",", "\t")])
def test_no_other_delimiter_hides_the_name_of_a_file(
    delimiter: str, other: str, tmp_path: Path
) -> None:
    """A table was searched with the delimiter of all its rows, and read with that of its header."""
    rows = [["note", "image", "class"], [other * 20, "/etc/passwd", "benign"]]
    (tmp_path / "list.csv").write_text("\n".join(map(delimiter.join, rows)))
    found = inspect(tmp_path, "classification", Options())
    assert [one["code"] for one in found["findings"]] == ["outside"]


@pytest.mark.parametrize("depth", [500, 990, 3_000, 20_000])
def test_no_depth_hides_the_name_of_a_file(depth: int, tmp_path: Path) -> None:
    """Newer versions of Python parse what is nested deeper than functions may call each other."""
    deep = "[" * depth + "]" * depth
    (tmp_path / "dataset.json").write_text(
        f'{{"deep": {deep}, "training": [{{"image": "../a.png", "label": "a.png"}}]}}'
    )
    (found,) = inspect(tmp_path, "segmentation", Options())["findings"]
    assert found["code"] == "outside" or "too deeply nested" in found["what"]


def test_what_is_no_list_ends_no_check(discs: Path, tmp_path: Path) -> None:
    """A folder that is called like a table, and a table whose quotation mark is not closed."""
    picture = next(discs.glob("images/*")).read_bytes()
    for name in ("benign.csv", "malignant"):
        (tmp_path / "folders" / name).mkdir(parents=True)
        (tmp_path / "folders" / name / "a.png").write_bytes(picture)
    found = inspect(tmp_path / "folders", "classification", Options())
    assert "class_conflict" in {one["code"] for one in found["findings"]}
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "list.csv").write_text('image,class\n"a.png,b\n' + "c.png,d\n" * 20_000)
    found = inspect(tmp_path / "open", "classification", Options())
    assert "is a quotation mark not closed?" in json.dumps(found)


def test_a_description_without_outside_files_is_none_that_leads_outside(tmp_path: Path) -> None:
    description = {
        "training": [{"image": "./imagesTr/a.png", "label": "labelsTr/../labelsTr/a.png"}],
        "reference": "/a/b or ../c",
        "release": "1.0",
    }
    (tmp_path / "dataset.json").write_text(json.dumps(description))
    (tmp_path / "broken.json").write_text("{")
    assert not leads_outside(tmp_path)


@pytest.mark.parametrize("content", ["[]", "{", '{"training": 5}', '[{"image": 1}]'])
@pytest.mark.parametrize("name", ["dataset.json", "list.json"])
def test_findings_name_no_path_of_the_server(content: str, name: str, tmp_path: Path) -> None:
    folder = tmp_path / ".jobs" / "data"
    folder.mkdir(parents=True)
    (folder / name).write_text(content)
    found = inspect(folder, "segmentation", Options())
    assert found["errors"]
    assert str(tmp_path) not in json.dumps(found)
    assert ".jobs" not in json.dumps(found)


@pytest.fixture
def server(models: Path, tmp_path: Path) -> Iterator[Running]:
    settings = Settings(
        models=models, preload=(), jobs_folder=tmp_path / "jobs", jobs_max_bytes=400_000,
        max_jobs_waiting=100,
    )  # fmt: skip
    with running(settings) as found:
        yield found


def send(server: Running, archive: bytes, number: int) -> httpx.Response:
    form = {"task": "segmentation", "name": f"model-{number}"}
    return http.post(server.address + JOBS, data=form, files={"archive": archive}, timeout=120)


def test_many_uploads_are_checked_one_at_a_time_and_the_rest_is_refused(
    server: Running, discs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running_now, most = 0, 0
    release = asyncio.Event()

    async def slow(*_: object) -> dict[str, Any]:
        nonlocal running_now, most
        running_now += 1
        most = max(most, running_now)
        await release.wait()
        running_now -= 1
        error = {"severity": "error", "code": "x", "file": "", "what": "", "fix": ""}
        return {"errors": 1, "count": 1, "findings": [error]}

    monkeypatch.setattr(service, "findings", slow)
    archive = zipped(discs)
    with ThreadPoolExecutor(16) as pool:
        answers = [pool.submit(send, server, archive, number) for number in range(16)]
        until(lambda: sum(a.done() for a in answers) == 16 - service.MOST_ARRIVALS)
        server.loops[0].call_soon_threadsafe(release.set)
        codes = [(a.result().status_code, a.result().json()["code"]) for a in answers]
    assert most == 1
    assert codes.count((503, "overloaded")) == 16 - service.MOST_ARRIVALS
    assert codes.count((422, "data_not_fit")) == service.MOST_ARRIVALS


def test_uploads_at_once_do_not_pass_the_quota(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fine(*_: object) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"errors": 0, "count": 0, "findings": []}

    monkeypatch.setattr(service, "findings", fine)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("images/a.png", bytes(150_000))
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda n: send(server, file.getvalue(), n), range(6)))
    codes = [answer.status_code for answer in answers]
    assert codes.count(202) == 2
    assert {answer.json()["code"] for answer in answers if answer.status_code != 202} == {
        "quota_exceeded"
    }


def test_a_client_that_leaves_leaves_nothing_of_its_archive(
    models: Path, tmp_path: Path, discs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that unpacked it went on in the folder that was being removed."""
    begun, left, ended = threading.Event(), threading.Event(), threading.Event()

    def slow(file: BinaryIO, target: Path, limits: ArchiveLimits) -> int:
        begun.set()
        assert left.wait(PATIENCE)
        try:
            return unpack(file, target, limits)
        finally:
            ended.set()

    monkeypatch.setattr(service, "unpack", slow)
    monkeypatch.setattr(supervisor, "FRESH", 1e9)  # nor is it left to be found and removed later
    settings = Settings(models=models, preload=(), jobs_folder=tmp_path / "jobs")
    form, content = {"task": "segmentation", "name": "x"}, zipped(discs)
    with running(settings) as server, ThreadPoolExecutor(1) as pool:
        with httpx.Client(timeout=PATIENCE) as client:
            files, address = {"archive": content}, f"{server.address}{JOBS}"
            sending = pool.submit(lambda: client.post(address, data=form, files=files))
            assert begun.wait(PATIENCE)
            (connection,) = server.server.server_state.connections
            server.loops[0].call_soon_threadsafe(connection.transport.abort)
            assert isinstance(sending.exception(), httpx.TransportError)
        until(lambda: server.count(route=JOBS, outcome="gone") == 1)
        server.do(asyncio.sleep(0)).result(PATIENCE)
        app = server.server.config.app
        assert isinstance(app, FastAPI) and app.state.jobs._unpacking.locked()
        (folder,) = (path for path in (tmp_path / "jobs").iterdir() if path.is_dir())
        left.set()
        assert ended.wait(PATIENCE)
        until(lambda: not folder.exists())
