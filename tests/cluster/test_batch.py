"""A batch on a cluster, from and to a real S3 server; what ends on the way loses nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from benchmarks.cluster.batch_driver import computed
from benchmarks.cluster.nodes import Cluster, cluster
from benchmarks.cluster.s3 import s3_server
from caps_med.batch import find_cases
from tests.images.dicom_files import slice_file
from tests.waiting import until

COMMAND = (sys.executable, "-c", "from caps_med.cli import main; main()")
DRIVER = (sys.executable, "-m", "benchmarks.cluster.batch_driver")
PATIENCE = 120.0


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, str]]:
    with s3_server() as environment:
        yield environment


@pytest.fixture(scope="module")
def nodes(s3: dict[str, str]) -> Iterator[Cluster]:
    with cluster([0, 1, 1], environment=s3) as started:
        yield started


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    """Twelve pictures in two folders, one that is cut, and a text."""
    folder = tmp_path / "scans"
    rng = np.random.default_rng(0)
    for number in range(12):
        path = folder / f"sub{number % 2}" / f"a{number:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (20, 28), dtype=np.uint8)).save(path)
    (folder / "broken.png").write_bytes((folder / "sub0/a00.png").read_bytes()[:60])
    (folder / "readme.txt").write_text("no image")
    return folder


def call(command: tuple[str, ...], environment: Mapping[str, str], *more: str | Path) -> str:
    """A program to its end, which finds that something failed; what it prints."""
    done = subprocess.run(
        [*command, *map(str, more)], env={**os.environ, **environment}, capture_output=True,
        text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout + done.stderr


def entries(text: str) -> dict[str, dict[str, Any]]:
    """Case -> entry of a table, without what differs from store to store."""
    differ = ("seconds", "fingerprint")
    cases = json.loads(text)["cases"]
    return {one["case"]: {k: v for k, v in one.items() if k not in differ} for one in cases}


def finished(out: Path) -> set[str]:
    """The cases that have a result in the table, or a record of their own."""
    files = (out / ".cases").glob("*.json")  # beside what a killed process has half written
    records = (json.loads(one.read_text())["case"]["case"] for one in files)
    return {*entries((out / "cases.json").read_text()), *records}


def test_s3_on_a_cluster_as_a_folder_on_one_machine(
    models: Path, scans: Path, tmp_path: Path, s3: dict[str, str], nodes: Cluster
) -> None:
    import s3fs

    store = s3fs.S3FileSystem(
        key=s3["AWS_ACCESS_KEY_ID"], secret=s3["AWS_SECRET_ACCESS_KEY"],
        endpoint_url=s3["AWS_ENDPOINT_URL"],
    )  # fmt: skip
    store.mkdir("scans")
    store.put(str(scans), "scans/in", recursive=True)
    store.pipe_file("scans/in/../up.png", b"\x89PNG\r\n\x1a\n")
    segment = ("segment", "--model", "tiny-segmentation", "--models", models)
    here = tmp_path / "out"
    call(COMMAND, {}, *segment, "-i", scans, "-o", here)
    on_cluster = ("-i", "s3://scans/in", "-o", "s3://scans/out", "--cluster", nodes.address)
    printed = call(COMMAND, s3 | nodes.environment, *segment, *on_cluster)
    assert "12 cases done; 1 failed -> s3://scans/out/cases.csv" in printed
    assert "failed: broken.png: invalid_input: PNG" in printed
    assert "1 file skipped: a name that leads out of the folder" in printed
    assert not [value for value in s3.values() if value in printed and value != "us-east-1"]
    table = store.cat_file("scans/out/cases.json").decode()
    assert entries(table) == entries((here / "cases.json").read_text())
    local = {path.relative_to(here).as_posix() for path in here.rglob("*") if path.is_file()}
    assert {name.removeprefix("scans/out/") for name in store.find("scans/out")} == local
    for name in local - {"cases.csv", "cases.json"}:
        assert store.cat_file(f"scans/out/{name}") == (here / name).read_bytes()
    again = ("-i", "s3://scans/in", "-o", "s3://scans/out", "--resume")  # on this machine
    assert "12 cases done, 12 of them before; 1 failed" in call(COMMAND, s3, *segment, *again)


def test_the_files_of_series_in_a_store_cost_a_request_each(
    s3: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import s3fs

    for name, value in s3.items():
        monkeypatch.setenv(name, value)
    store, calls = s3fs.S3FileSystem(), Counter[str]()
    store.mkdir("studies")
    for series, suffix in (("1.2", ""), ("1.3", ".dcm")):
        for number in range(8):
            file = slice_file(SeriesInstanceUID=series, ImagePositionPatient=[0, 0, number])
            store.pipe_file(f"studies/in/{series}/IM{number}{suffix}", file)
    ask = s3fs.S3FileSystem._call_s3

    async def counted(self: Any, method: str, *given: Any, **named: Any) -> Any:  # noqa: ANN401
        calls[method] += 1
        return await ask(self, method, *given, **named)

    monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", counted)
    s3fs.S3FileSystem.clear_instance_cache()
    found = find_cases(["s3://studies/in"])
    assert [len(case.files) for case in found.cases] == [8, 8]
    assert calls["get_object"] == 16 and calls.total() < 24


def test_a_batch_that_is_interrupted_killed_and_loses_a_node(
    models: Path, scans: Path, tmp_path: Path, nodes: Cluster
) -> None:
    out, log = tmp_path / "out", tmp_path / "log"
    log.mkdir()
    command = [
        *DRIVER, scans, out, "tiny-segmentation", models, log, "--cluster", nodes.address,
        "--resume", "--seconds", "0.5", "--deadly", "sub1/a11",
    ]  # fmt: skip

    def begin(cases: int) -> subprocess.Popen[bytes]:
        """The batch, until so many cases are begun."""
        batch = subprocess.Popen(
            list(map(str, command)), env={**os.environ, **nodes.environment}, stderr=subprocess.PIPE
        )
        until(lambda: len(list(log.iterdir())) >= cases or batch.poll() is not None)
        assert batch.poll() is None, batch.communicate()[1]
        return batch

    interrupted = begin(5)
    interrupted.send_signal(signal.SIGINT)
    assert b"KeyboardInterrupt" in interrupted.communicate(timeout=PATIENCE)[1]
    assert len(finished(out)) >= 3  # all but one of each worker
    killed = begin(8)
    killed.kill()
    killed.communicate()
    last = begin(11)
    nodes.workers[0].kill()
    with suppress(subprocess.TimeoutExpired):
        last.communicate(timeout=PATIENCE)
    assert last.returncode == 1
    table = entries((out / "cases.json").read_text())
    failed = {name: one["error"] for name, one in table.items() if one["error"]}
    assert len(table) == 13 and set(failed) == {"broken", "sub1/a11"}
    assert failed["sub1/a11"] == "the process ended: out of memory?"
    begun = Counter(computed(log))
    again = sum(begun[name] - 1 for name in table if name not in failed)
    assert again <= 6  # of each of two workers a case at a time, ended three times
    assert not (out / ".cases").exists()


def test_a_cluster_that_does_not_answer(models: Path, scans: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "segment", "--model", "tiny-segmentation", "--models", str(models), "-i",
         str(scans), "-o", str(tmp_path / "out"), "--cluster", "-j", "2"],
        env={**os.environ, "RAY_ADDRESS": "", "RAY_TMPDIR": str(tmp_path)}, capture_output=True,
        text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 2, done.stdout
    assert "no Ray cluster answers at 'auto': start one with `ray start --head`" in done.stderr


def test_a_store_that_does_not_answer(models: Path, tmp_path: Path) -> None:
    environment = {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_ACCESS_KEY_ID": "somebody",
        "AWS_SECRET_ACCESS_KEY": "secret", "AWS_MAX_ATTEMPTS": "1",
    }  # fmt: skip
    done = subprocess.run(
        [*COMMAND, "segment", "--model", "tiny-segmentation", "--models", str(models), "-i",
         "s3://scans/in", "-o", str(tmp_path / "out")],
        env={**os.environ, **environment}, capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    printed = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 2 and "the store does not answer" in printed, printed
    assert not [value for value in environment.values() if len(value) > 1 and value in printed]
