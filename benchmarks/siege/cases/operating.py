"""What the service stands on: its container, files, disk and clock."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import httpx
import psutil

from benchmarks.load import TINY, write_tiny
from benchmarks.processes import runs
from benchmarks.serving import Server, start_command
from benchmarks.siege.case import Skip, case
from benchmarks.siege.container import composed, run_command, why_not
from benchmarks.siege.files import black_nifti
from benchmarks.siege.service import MIB, Siege, expect
from benchmarks.waiting import until


@case("the compose file's container: a read-only file system, first with and then without a tmpfs")
def read_only_container(siege: Siege) -> str:
    if reason := why_not():
        raise Skip(reason)
    for room in ("tmpfs", "none"):
        command = _composed(siege.folder / room, room)
        with siege.started(partial(_start, command)):
            pass
    return "ready and right, both times"


@case("a file of jobs that is damaged before the start, and an audit log on a full disk")
def damaged_jobs_full_disk(siege: Siege) -> str:
    folder = siege.models / ".jobs"
    folder.mkdir()
    (folder / "jobs.sqlite3").write_bytes(b"no database" * 1000)
    with siege.serving(training="true", audit_log="/dev/full") as service:
        answer = service.ask("GET", "/v1/training-jobs")
    return f"inference goes on, jobs {expect([answer], '503 storage_unavailable')}"


@case("a disk that refuses the answer's audit record, which is required")
def required_audit(siege: Siege) -> str:
    full = siege.folder / "audit.jsonl"
    with siege.serving(audit_log=full, audit_required="true") as service:
        full.unlink()
        full.symlink_to("/dev/full")
        answer = service.ask("GET", "/v1/models")
        full.unlink()
    return expect([answer], "503 storage_unavailable")


@case("sixteen archives to train on at once, each of one small picture that inflates")
def archives_at_once(siege: Siege) -> str:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for kind in ("images", "labels"):
            archive.writestr(f"{kind}/a.nii.gz", black_nifti(512, 512, 200))

    def send(number: int) -> httpx.Response:
        form = {"task": "segmentation", "name": f"mine-{number}"}
        files = {"archive": file.getvalue()}
        return service.ask("POST", "/v1/training-jobs", data=form, files=files)

    with siege.serving(training="true", job_check_memory_bytes=64 * MIB) as service:
        answers = service.at_once(16, send)
    return expect(answers, "422 data_not_fit", "503 overloaded", "504 deadline_exceeded")


@case("decoders killed by somebody else, again and again", quick=True)
def killed_decoders(siege: Siege) -> str:
    with siege.serving() as service:
        for _ in range(5):
            _kill(psutil.Process(service.server.process.pid).children(recursive=True))
            service.check()
    return "replaced each time"


def _kill(processes: list[psutil.Process]) -> None:
    """Return when they have ended: one that is being killed may still be given a file."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    until(lambda: not any(map(runs, processes)))


def _composed(folder: Path, room: str) -> list[str]:
    """The command of a container with small models, with the tmpfs of the compose file or none."""
    folder.mkdir()
    container = composed(folder, "--port", "0")
    write_tiny(Path(container.volumes["/models"]))
    small = {"CAPS_MED_PRELOAD": f'["{TINY[0]}"]', "OMP_NUM_THREADS": "1", "HOME": "/root"}
    container = replace(container, environment={**container.environment, **small})
    return run_command(replace(container, tmpfs=[]) if room == "none" else container, folder)


def _start(command: list[str], log: Path, hold: Callable[[int], None]) -> Server:
    return start_command(command, os.environ, log, hold)
