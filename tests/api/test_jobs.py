"""Training jobs over HTTP: a real run, data that are not fit, cancelling, the queue."""

from __future__ import annotations

import inspect
import io
import json
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, get_args

import pytest

import caps_med
import training.cli.train
from api.jobs.files import JobFiles
from api.jobs.job import Job, Options
from api.jobs.locks import holder
from api.jobs.progress import progress_of
from api.jobs.service import Jobs
from api.jobs.store import JobStore
from api.jobs.supervisor import Supervisor
from api.jobs.tasks import TASKS as OPTIONS
from api.settings import Settings
from caps_med.bundles import ModelRepository
from caps_med.client import Client, ServiceError
from caps_med.errors import InvalidParameter
from caps_med.images import encode_image
from tests.api import http
from tests.api.jobs import PATIENCE, TINY, zipped
from tests.api.running import Running, running
from tests.conftest import tiny_card, write_tiny
from tests.waiting import until
from training.tasks.registry import TASKS

LONG = {**TINY, "epochs": "10000"}
#: How far the priority of jobs is below the service's here.
NICE = 3


@pytest.fixture
def server(tmp_path: Path, discs: Path) -> Iterator[Running]:
    settings = Settings(
        models=tmp_path / "models", preload=(), datasets={"discs": discs}, max_jobs_waiting=2,
        job_nice=NICE,
    )  # fmt: skip
    with running(settings) as found:
        yield found


@pytest.fixture
def client(server: Running) -> Iterator[Client]:
    with Client(server.address) as found:
        yield found


def jobs_folder(tmp_path: Path) -> Path:
    return tmp_path / "models" / ".jobs"


def refused(call: object, status: int, code: str) -> ServiceError:
    with pytest.raises(ServiceError) as raised:
        call()  # type: ignore[operator]
    assert (raised.value.status, raised.value.code) == (status, code)
    return raised.value


def test_two_requests_with_one_key_that_come_at_once(
    client: Client, discs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither finds the job of the other before its own data have been checked."""
    monkeypatch.setattr(JobStore, "by_token", lambda *_: None)
    archive, once = zipped(discs, "discs/"), "asked once"
    first, again = (
        client.train("segmentation", "one", archive, token=once, **TINY) for _ in range(2)
    )
    assert first["id"] == again["id"]
    with pytest.raises(ServiceError, match="Idempotency-Key"):
        client.train("segmentation", "another", archive, token=once, **TINY)
    with pytest.raises(ServiceError, match="Idempotency-Key"):
        client.train("segmentation", "one", data="discs", token=once, **TINY)
    with pytest.raises(ServiceError, match="Idempotency-Key"):
        client.train("segmentation", "one", zipped(discs, "others/"), token=once, **TINY)
    client.cancel(first["id"])


def test_uploads_that_come_at_once_do_not_pass_the_bound_on_waiting_jobs(
    client: Client, server: Running, discs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them is counted when it is added, too, not only before its data are checked."""
    monkeypatch.setattr(Supervisor, "tick", lambda _: None)
    checked, archive = threading.Barrier(4), zipped(discs, "discs/")
    check = Jobs._check_room

    def all_at_once(self: Jobs) -> None:
        check(self)
        checked.wait(PATIENCE)

    monkeypatch.setattr(Jobs, "_check_room", all_at_once)

    def status(number: int) -> int:
        try:
            client.train("segmentation", f"one-{number}", archive, **TINY)
        except ServiceError as error:
            assert error.code == "overloaded" and error.retry_after
            return error.status
        return 202

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(status, range(4))) == [202, 202, 503, 503]
    assert len(client.jobs()) == 2


@pytest.mark.slow
def test_an_archive_becomes_a_model_that_is_served_at_once(
    client: Client, server: Running, discs: Path, tmp_path: Path
) -> None:
    archive, once = zipped(discs, "my discs/"), "asked once"
    stated = {"license": "CC-BY-4.0", "input_description": "--grey discs, 1 µm"}
    chosen = {**TINY, "loss": "margin", "foreground": "0.25", "patience": "5"}
    asked = client.train("segmentation", "mine", archive, token=once, **stated, **chosen)
    again = client.train("segmentation", "mine", archive, token=once, **stated, **chosen)
    assert again["id"] == asked["id"]
    with pytest.raises(ServiceError, match="Idempotency-Key"):
        client.train("segmentation", "another", archive, token=once, **stated, **chosen)
    events = list(client.follow(asked["id"]))
    job = client.job(asked["id"])
    assert (job["state"], job["model"]) == ("succeeded", "mine@1"), job
    assert [s["epoch"] for s in job["scores"]] == [1, 2]
    assert [events[0][0], events[-1][0]] == ["job", "end"]
    states = [data["state"] for name, data in events if name == "job"]
    assert states[-1] == "succeeded"
    recipe = json.loads(next(jobs_folder(tmp_path).rglob("recipe.json")).read_text())
    assert (recipe["loss"], recipe["foreground"], recipe["patience"]) == ("margin", 0.25, 5)
    lines = [line for name, data in events if name == "log" for line in data["lines"]]
    assert any("mine@1" in line for line in lines)
    assert str(tmp_path) not in str(lines) + str(client.job_log(job["id"])) + str(job)

    picture = next(discs.glob("images/*")).read_bytes()
    model = client.model("mine")
    assert str(tmp_path) not in str(model)
    assert {name: model[name] for name in stated} == stated
    assert client.segment("mine", picture)[:4] == b"\x89PNG"

    left = {path.name for path in (jobs_folder(tmp_path) / job["id"]).rglob("*") if path.is_file()}
    ours = {"lock", "log.txt", "spec.json", "result.json"}
    kept = {"recipe.json", "scores.jsonl", "progress.jsonl", "report.html"}
    assert left <= ours | kept | {*job["pictures"]}
    assert job["pictures"] and job["report"]
    address = f"{server.address}/v1/training-jobs/{job['id']}"
    report = http.get(f"{address}/report")
    assert "<h2>Training</h2>" in report.text and str(tmp_path) not in report.text
    assert report.headers["Content-Security-Policy"].startswith("sandbox; default-src 'none'")
    assert http.get(f"{address}/pictures/{job['pictures'][-1]}").content[:4] == b"\x89PNG"

    # A kill between landing and telling: the model is found again, not landed twice.
    files = JobFiles(jobs_folder(tmp_path) / job["id"])
    before = files.result.read_bytes()
    files.result.unlink()
    assert run_worker(files) == 0
    assert files.result.read_bytes() == before
    assert ModelRepository(tmp_path / "models").versions("mine") == [1]

    assert client.cancel(job["id"]) is None
    refused(lambda: client.job(job["id"]), 404, "job_not_found")
    assert not files.folder.exists()


def run_worker(files: JobFiles) -> int:
    """The worker in a process of its own, as it limits itself."""
    command = [sys.executable, "-m", "api.jobs.worker", str(files.folder)]
    return subprocess.run(command, check=False, timeout=PATIENCE).returncode


def test_what_is_wrong_with_the_data_comes_back(
    client: Client, discs: Path, tmp_path: Path
) -> None:
    label = next(discs.glob("labels/*"))
    bad = tmp_path / "bad"
    for kind in ("images", "labels"):
        (bad / kind).mkdir(parents=True)
    (bad / "images" / "a.png").write_bytes(next(discs.glob("images/*")).read_bytes())
    (bad / "labels" / "a.png").write_bytes(label.read_bytes()[:-60])
    error = refused(lambda: client.train("segmentation", "mine", zipped(bad)), 422, "data_not_fit")
    assert any(found["file"] == "labels/a.png" for found in error.problem["findings"])
    assert client.jobs() == []
    assert [p for p in jobs_folder(tmp_path).iterdir() if p.is_dir()] == []


def test_what_to_look_at_in_data_that_are_trained_on_comes_with_the_job(
    client: Client, discs: Path, tmp_path: Path
) -> None:
    images = sorted(discs.glob("images/*"))[:4]
    for name in ("benign", "malignant"):
        (tmp_path / "data" / name).mkdir(parents=True)
        for image in images if name == "benign" else images[:1]:
            (tmp_path / "data" / name / image.name).write_bytes(image.read_bytes())
    (tmp_path / "data" / "rare").mkdir()
    archive = zipped(tmp_path / "data")
    job = client.train("classification", "mine", archive, epochs="10000")
    found = {one["code"]: one for one in client.job(job["id"])["findings"]}
    assert found["class_conflict"]["file"] == f"malignant/{images[0].name}"
    assert found["class_conflict"]["severity"] == "warning"
    assert "the class malignant has only 1 image" in found["rare_class"]["what"]
    assert str(tmp_path) not in str(found)
    client.cancel(job["id"])
    until(lambda: client.job(job["id"])["state"] == "cancelled")
    assert client.job(job["id"])["findings"] == []


def test_a_description_that_leads_outside_is_refused(client: Client, discs: Path) -> None:
    image, label = (str(next(discs.glob(f"{kind}/*"))) for kind in ("images", "labels"))
    description = {
        "name": "x", "labels": {"0": "background", "1": "a"}, "modality": {"0": "x"},
        "numTraining": 1, "training": [{"image": image, "label": label}], "test": [],
    }  # fmt: skip
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("dataset.json", json.dumps(description))
        archive.writestr("imagesTr/.keep", "")
        archive.writestr("labelsTr/.keep", "")
    error = refused(
        lambda: client.train("segmentation", "mine", buffer.getvalue()), 422, "data_not_fit"
    )
    assert error.problem["findings"][0]["code"] == "outside"


def test_the_networks_offered_are_those_of_the_recipes(server: Running) -> None:
    fields = {task: TASKS[task].recipe.model_fields["network"] for task in OPTIONS}
    offered = http.get(f"{server.address}/v1/training-jobs").json()["networks"]
    assert {task: set(names) for task, names in offered.items()} == {
        task: set(get_args(field.annotation)) for task, field in fields.items()
    }
    assert {task: names[0] for task, names in offered.items()} == {
        task: field.default for task, field in fields.items()
    }


def test_the_network_and_a_rate_to_be_found_reach_the_command() -> None:
    options = Options.model_validate({"network": "unet", "learning_rate": "auto"})
    job = Job("a" * 32, 1, "queued", "segmentation", "x", "mni152", False, options, None, 0.0)
    assert {"--network=unet", "--learning-rate=auto"} <= set(job.command(resume=False))


#: Options of the command that are not for clients: places and processes of the server, other files,
#: and what a job asks for in its own way.
SERVERS = {
    "data", "name", "models", "runs", "resume", "candidate", "recipe_file", "settings", "workers",
    "folds", "tune", "cluster",
    "binary",  # short for instances=binary
}  # fmt: skip


@pytest.mark.parametrize("task", OPTIONS)
def test_jobs_take_the_options_of_the_command(task: str) -> None:
    """Under the same names and with the same values; what the command adds is added here."""
    command = getattr(training.cli.train, task)
    wanted = set(inspect.signature(command).parameters) - SERVERS
    others = {name for other in OPTIONS.values() for name in other.names}
    ours = OPTIONS[task].names
    assert set(Options.model_fields) - (others - ours) == wanted
    recipe = TASKS[task].recipe.model_fields
    for name, choices in OPTIONS[task].choices.items():
        if allowed := get_args(recipe[name].annotation) if name in recipe else ():
            assert choices == allowed, name
        for value in choices:
            Options.model_validate({name: value}).check(task)


@pytest.mark.parametrize(
    ("task", "option", "named"),
    [
        ("segmentation", {"noise_size": 8}, "noise_size: segmentation has no such option"),
        ("synthesis", {"loss": "dice"}, "loss: synthesis has no such option"),
        ("segmentation", {"loss": "nonsense"}, "must be one of dice_ce, dice"),
        ("segmentation", {"dims": "4d"}, "must be one of 2d, 2.5d, 3d"),
        ("segmentation", {"image_size": 32}, "image_size: segmentation has no such option"),
        ("classification", {"crop": 64}, "crop: classification has no such option"),
        ("classification", {"loss": "dice"}, "must be one of margin, spread, cross_entropy"),
    ],
)
def test_options_of_another_task_are_refused(task: str, option: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidParameter, match=named):
        Options.model_validate(option).check(task)


def test_bad_requests(client: Client, discs: Path) -> None:
    train = client.train
    refused(lambda: train("segmentation", "../x", data="discs"), 422, "invalid_parameter")
    wrong = {"data": "mni152", "network": "pix2pix"}
    error = refused(lambda: train("segmentation", "x", **wrong), 422, "invalid_parameter")
    assert "convcaps, convcaps-plain, ucaps" in str(error)
    wrong = {"data": "mni152", "noise_size": "8"}
    error = refused(lambda: train("segmentation", "x", **wrong), 422, "invalid_parameter")
    assert "segmentation has no such option" in str(error)
    wrong = {"data": "mni152"}  # it has label maps, not classes
    error = refused(lambda: train("classification", "x", **wrong), 422, "invalid_parameter")
    assert "no such data set for classification; available are discs" in str(error)
    bound = {"data": "discs", "noise_size": "1000000000"}
    refused(lambda: train("synthesis", "x", **bound), 422, "invalid_parameter")
    refused(lambda: train("segmentation", "x", data="nope"), 422, "invalid_parameter")
    refused(lambda: train("segmentation", "x"), 422, "invalid_parameter")
    error = refused(lambda: train("x", "x", data="discs"), 422, "invalid_parameter")
    assert "task: must be one of segmentation" in str(error)
    rate = {"data": "discs", "learning_rate": "fast"}
    error = refused(lambda: train("segmentation", "x", **rate), 422, "invalid_parameter")
    assert "auto" in str(error)
    refused(lambda: train("segmentation", "x", data="discs", crop=65), 422, "invalid_parameter")
    refused(lambda: train("segmentation", "x", b"no archive"), 415, "unsupported_format")
    start = {"start_from": "../../x"}
    refused(lambda: train("segmentation", "x", data="discs", **start), 422, "invalid_parameter")
    every = dict.fromkeys(Options.model_fields, "x")  # wrong, and not too many fields
    refused(lambda: train("segmentation", "x", b"", **every), 422, "invalid_parameter")
    refused(lambda: client.job("0" * 32), 404, "job_not_found")
    refused(lambda: client.job("nope"), 422, "invalid_parameter")


def test_jobs_wait_in_line_are_cancelled_and_bounded(
    client: Client, server: Running, tmp_path: Path
) -> None:
    jobs = [client.train("segmentation", "mine", data="discs", **LONG) for _ in range(1)]
    until(lambda: client.job(jobs[0]["id"])["state"] == "running")
    jobs += [client.train("segmentation", "mine", data="discs", **LONG) for _ in range(2)]
    assert [client.job(job["id"])["position"] for job in jobs] == [None, 1, 2]
    full = refused(lambda: client.train("segmentation", "x", data="discs"), 503, "overloaded")
    assert (full.retry_after, full.problem["queue_length"]) == (300, 2)
    assert 'caps_med_jobs{state="queued"}' in server.engine.metrics.text().decode()

    cancelled = client.cancel(jobs[1]["id"])
    assert cancelled is not None and cancelled["state"] == "cancelled" and cancelled["finished"]
    picture_route = f"{server.address}/v1/training-jobs/{jobs[0]['id']}/pictures"
    for name in ("..%2f..%2fspec.json", "epoch-0000.png", "x"):
        assert http.get(f"{picture_route}/{name}").status_code == 404

    for job in (jobs[0], jobs[2]):
        until(lambda j=job: client.job(j["id"])["state"] == "running")  # type: ignore[misc]
        client.cancel(job["id"])
        assert client.wait(job["id"], PATIENCE)["state"] == "cancelled"
    assert ModelRepository(tmp_path / "models").versions("mine") == []


@pytest.mark.usefixtures("started_jobs")
def test_inference_answers_while_a_job_runs(
    client: Client, server: Running, discs: Path, tmp_path: Path
) -> None:
    write_tiny(tmp_path / "models", "tiny-segmentation", tiny_card("segmentation"))
    job = client.train("segmentation", "mine", data="discs", **LONG)
    until(lambda: client.job(job["id"])["state"] == "running")
    lock = jobs_folder(tmp_path) / job["id"] / "lock"
    others = (None, 0, os.getpid())  # nobody, a worker that has not written its id, the server
    until(lambda: holder(lock) not in others)
    level = os.getpriority(os.PRIO_PROCESS, holder(lock) or 0)
    assert level == os.getpriority(os.PRIO_PROCESS, 0) + NICE
    picture = next(discs.glob("images/*")).read_bytes()
    wanted = caps_med.load_model("tiny-segmentation", tmp_path / "models").segment(picture)
    for _ in range(5):
        assert client.segment("tiny-segmentation", picture) == encode_image(wanted, "png")
    assert client.job(job["id"])["state"] == "running"


@pytest.mark.slow
def test_a_server_that_ends_takes_its_jobs_up_again(tmp_path: Path, discs: Path) -> None:
    settings = Settings(models=tmp_path / "models", preload=(), datasets={"discs": discs})
    with running(settings) as server, Client(server.address) as client:
        job = client.train("segmentation", "mine", data="discs", **LONG)
        until(lambda: bool(client.job(job["id"])["scores"]))
    with running(settings) as server, Client(server.address) as client:
        done = len(client.job(job["id"])["scores"])
        until(lambda: len(client.job(job["id"])["scores"]) > done)
        epochs = [s["epoch"] for s in client.job(job["id"])["scores"]]
        assert epochs == sorted(set(epochs)), "it began again instead of going on"
        client.cancel(job["id"])
        assert client.wait(job["id"], PATIENCE)["state"] == "cancelled"


def test_a_phase_after_the_last_epoch_keeps_what_is_known_of_the_epochs(tmp_path: Path) -> None:
    """MONAI Label's clients draw a bar of the epochs."""
    lines: list[dict[str, Any]] = [
        {"phase": "checking the data", "step": 2, "steps": 6},
        {"epoch": 3, "epochs": 3, "step": 6, "steps": 6, "loss": 0.2, "score": 0.8},
        {"phase": "evaluating", "step": 1, "steps": 2},
    ]
    found = []
    for line in lines:
        with (tmp_path / "progress.jsonl").open("a") as file:
            file.write(json.dumps({"time": 1.0, **line}) + "\n")
        found.append(progress_of(tmp_path).now)
    assert found[:2] == lines[:2]
    assert found[2] == {**lines[2], "epoch": 3, "epochs": 3, "score": 0.8}
