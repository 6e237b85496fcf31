"""``python -m api.jobs.worker FOLDER``: one job's process, from its spec to its result.

It holds the folder's lock as long as it lives, so that no job ever runs twice at once. What it
prints goes to the job's log; what became of it goes into ``result.json``, whole or not at all. A
model that has landed before a kill is recognized and not landed again.
"""

from __future__ import annotations

import os
import resource
import shutil
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from api.jobs.files import JobFiles, read_json, write_json
from api.jobs.job import Job, Options
from api.jobs.locks import FileLock
from caps_med.allocator import keep_freed_memory

#: Exit status of a worker that found another at work.
BUSY = 75
#: Seconds that it waits for another to let go of the folder: its upload is being finished, say.
PATIENCE = 10.0
#: Writing a version takes seconds; a draft this many seconds old is nobody's.
OLD_DRAFT = 3600.0


def main(folder: Path) -> int:
    """Do the job in `folder`, or find it done."""
    files = JobFiles(folder)
    lock = FileLock(files.lock)
    end = time.monotonic() + PATIENCE
    while not lock.take():
        if time.monotonic() > end:
            return BUSY
        time.sleep(0.05)
    spec = read_json(files.spec)
    if spec is None or files.result.exists():
        return 0
    _limit(spec)
    keep_freed_memory()
    job = Job(**{**spec["job"], "options": Options(**spec["job"]["options"])})
    os.chdir(folder)
    write_json(files.result, _outcome(job, Path(spec["models"]), files))
    return 0


def _limit(spec: dict[str, Any]) -> None:
    """Be polite and bounded: low priority, capped memory, no core file with a scan in it."""
    os.nice(spec["nice"])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory := spec["memory_bytes"]:
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))


def _outcome(job: Job, models: Path, files: JobFiles) -> dict[str, Any]:
    from caps_med.errors import CapsMedError

    try:
        return {"version": landed(job, models) or _train(job, models)}
    except CapsMedError as error:
        return {"code": error.code, "error": str(error)}
    except MemoryError:
        return {"code": "out_of_memory", "error": "over the memory of a job: use smaller crops"}
    except OSError as error:  # without the file's name: it is a path of the server's
        return {"code": "file", "error": str(error.strerror)}
    except Exception as error:
        files.trace.write_text(traceback.format_exc())
        return {"code": "unexpected", "error": type(error).__name__}


def _train(job: Job, models: Path) -> int | None:
    """Run the training command; the version that it landed."""
    import click

    from caps_med.cli import app
    from caps_med.plugins import add_plugins

    _clear_drafts(models / job.name)
    checkpoint = Path(job.run_folder) / "checkpoint.pt"
    arguments = job.command(resume=checkpoint.exists())
    sys.argv = ["caps-med", *arguments]  # the bundle records the command
    add_plugins(app)
    try:
        app(args=arguments, standalone_mode=False)
    except click.ClickException as error:
        from caps_med.errors import InvalidParameter

        raise InvalidParameter(error.format_message()) from error
    version = landed(job, models)
    if version is None:
        raise RuntimeError("the command ended without a model")
    return version


def _clear_drafts(home: Path) -> None:
    """Remove versions that were being written when a writer was killed, long ago."""
    for draft in home.glob(".draft-*"):
        if time.time() - draft.stat().st_mtime > OLD_DRAFT:
            shutil.rmtree(draft, ignore_errors=True)


def landed(job: Job, models: Path) -> int | None:
    """The version that this job has landed in the repository, if it has."""
    from caps_med.bundles import ModelRepository
    from caps_med.errors import InvalidBundle

    repository, marker = ModelRepository(models), " ".join(job.marker)
    for version in reversed(repository.versions(job.name)):
        try:
            card = repository.find(f"{job.name}@{version}").card
        except InvalidBundle:
            continue
        if marker in card.provenance.command:
            return version
    return None


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
