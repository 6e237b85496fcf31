"""The folder of a job: its files, how they are written and removed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from caps_med.drafts import write_durably

if TYPE_CHECKING:
    from api.jobs.job import Job

#: Files of a finished run that are kept; prepared data and weights are not.
_KEPT = (
    "recipe.json", "scores.jsonl", "progress.jsonl", "learning-rate.csv", "learning-rate.png",
    "pictures", "report.html",
)  # fmt: skip


class JobFiles:
    """The files of one job.

    Attributes:
        spec: the worker's input.
        lock: held by the worker as long as it runs.
        result: the outcome, written once at the end.
        log: the output of the training.
        findings: of the check of the data; they contain file names.
        stop: while it is there, a worker that the service cannot signal ends by itself.
        to_adapt: images of the data that the model takes otherwise, see `api.jobs.adapting`.
        trace: traceback of an unexpected failure, for the operator only.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spec, self.lock = folder / "spec.json", folder / "lock"
        self.result, self.log = folder / "result.json", folder / "log.txt"
        self.trace, self.findings = folder / "trace.txt", folder / "findings.json"
        self.to_adapt, self.stop = folder / "to-adapt.json", folder / "stop"

    def run(self, job: Job) -> Path:
        """The folder that the training writes into."""
        return self.folder / job.run_folder

    def pictures(self, job: Job) -> list[str]:
        """Names of the validation pictures, in order."""
        return sorted(path.name for path in (self.run(job) / "pictures").glob("epoch-*.png"))

    def report(self, job: Job) -> Path:
        """The report that the training writes at its end."""
        return self.run(job) / "report.html"

    def clear(self, job: Job) -> None:
        """Remove the data, their names and the weights of a finished job."""
        for names in (self.findings, self.to_adapt):
            names.unlink(missing_ok=True)
        if job.uploaded:
            shutil.rmtree(self.folder / Path(job.data).parts[0], ignore_errors=True)
        run = self.run(job)
        for path in run.iterdir() if run.is_dir() else ():
            if path.name in _KEPT:
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Replace a file atomically; it is on disk when this returns."""
    write_durably(path, json.dumps(content).encode())


def read_json(path: Path) -> dict[str, Any] | None:
    """What `write_json` wrote; None if there is nothing yet."""
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return content


def size_of(folder: Path) -> int:
    """Bytes of all files below a folder; links are not followed."""
    return sum(_sizes(folder))


def _sizes(folder: Path) -> Iterator[int]:
    for directory, _, names in os.walk(folder):
        for name in names:
            try:
                yield (Path(directory) / name).lstat().st_size
            except FileNotFoundError:  # a file that was replaced meanwhile
                continue
