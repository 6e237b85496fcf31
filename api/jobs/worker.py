"""The process of one job: ``python -m api.jobs.worker FOLDER``.

It holds the lock of the folder as long as it runs, so that no job runs twice at once; a server that
starts it here has taken the lock for it (`LOCK`). Its output goes to the job's log, its outcome to
``result.json``, which is written atomically. A model that was published before a kill is recognized
and not published again.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from api.jobs.files import JobFiles, read_json, write_json
from api.jobs.locks import FileLock
from caps_med.allocator import keep_freed_memory

if TYPE_CHECKING:
    from api.jobs.job import Job

#: Environment variable with the descriptor of the folder's lock, if it is handed over.
LOCK = "CAPS_MED_JOB_LOCK"
#: Exit status of a worker that found the folder locked.
BUSY = 75
#: Seconds that it waits for the lock, which the server may still hold after the upload.
PATIENCE = 10.0
#: Seconds between two looks for `JobFiles.stop`: a shared disk tells nobody what others write.
TOLD_PAUSE = 1.0
#: Seconds from then on in which it may end by itself before it is killed.
TOLD_GRACE = 10.0


def main(folder: Path) -> int:
    """Run the job in `folder`, unless it has a result already."""
    files = JobFiles(folder)
    lock = FileLock(files.lock)
    own_group = LOCK in os.environ
    if not locked(lock):
        return BUSY
    if own_group:
        end_when_told(files)
    from api.jobs.job import Job, Options

    spec = read_json(files.spec)
    if spec is None or files.result.exists():
        return 0
    _limit(spec)
    keep_freed_memory()
    job = Job(**{**spec["job"], "options": Options(**spec["job"]["options"])})
    os.chdir(folder)
    outcome = _outcome(job, Path(spec["models"]), files, spec)
    write_json(files.result, outcome)
    return 0


def locked(lock: FileLock) -> bool:
    """Hold the lock of the job's folder: the one that was handed over, or take it."""
    if handed := os.environ.pop(LOCK, None):
        lock.adopt(int(handed))
        return True
    end = time.monotonic() + PATIENCE
    while not lock.take():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)  # the kernel waits for such a lock for ever or not at all
    return True


def end_when_told(files: JobFiles) -> None:
    """From now on, end this process and its group once `JobFiles.stop` is there.

    So the service of another machine or container, which shares the jobs' folder but cannot signal
    this process, cancels the job.
    """

    def watch() -> None:
        while not files.stop.exists():
            time.sleep(TOLD_PAUSE)
        os.killpg(0, signal.SIGTERM)
        time.sleep(TOLD_GRACE)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def _limit(spec: dict[str, Any]) -> None:
    """Set low priority, unless this process has it already, and bounded memory.

    Write no core file, which could hold a scan.
    """
    os.nice(spec["nice"])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory := spec["memory_bytes"]:
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))


def _outcome(job: Job, models: Path, files: JobFiles, spec: dict[str, Any]) -> dict[str, Any]:
    from caps_med.errors import CapsMedError
    from training.cluster.processes import Refused

    try:
        return {"version": published_version(job, models) or _train(job, models, files, spec)}
    except Refused as error:
        return {"code": error.reason, "error": str(error)}
    except CapsMedError as error:
        return {"code": error.code, "error": str(error)}
    except MemoryError:
        return {
            "code": "out_of_memory",
            "error": "the job exceeded its memory limit: use smaller crops",
        }
    except OSError as error:  # without the file name, which is a path of the server
        return {"code": "file", "error": str(error.strerror)}
    except Exception as error:
        files.trace.write_text(traceback.format_exc(), encoding="utf-8", errors="backslashreplace")
        return {"code": "unexpected", "error": type(error).__name__}


def _train(job: Job, models: Path, files: JobFiles, spec: dict[str, Any]) -> int | None:
    """Run the training command, here or in several processes; return the version it published."""
    from api.jobs.adapting import adapt_images
    from training.cluster.processes import Processes, run_command, run_here

    adapt_images(job, models, files)
    checkpoint = Path(job.run_folder) / "checkpoint.pt"
    candidate, share = spec.get("candidate", False), spec.get("share") or {}
    if share.get("processes", 1) > 1:
        processes = Processes(share["processes"], share["cpus"], share["gpus"])
        run_command(job.command(False, candidate), checkpoint, Path.cwd(), processes, "auto")
    else:
        command = job.command(checkpoint.exists(), candidate)
        run_here(command, command)
    version = published_version(job, models)
    if version is None:
        raise RuntimeError("the command ended without publishing a model")
    return version


def published_version(job: Job, models: Path) -> int | None:
    """The version that this job has published in the repository, if any."""
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
