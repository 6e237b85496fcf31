"""Backup and restore, as docs/runbook.md and docs/service.md have it."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from benchmarks.cluster.jobs import TINY, service
from benchmarks.cluster.nodes import cluster
from benchmarks.cluster.pictures import pictures
from tests.api.jobs import zipped
from tests.waiting import PATIENCE

COMMAND = (sys.executable, "-c", "from caps_med.cli import main; main()")


def back_up(database: Path, file: Path) -> None:
    """What ``sqlite3 DATABASE ".backup FILE"`` does."""
    file.parent.mkdir(parents=True)
    with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(file)) as target:
        source.backup(target)


def test_a_backup_of_the_running_service_is_restored_elsewhere(discs: Path, tmp_path: Path) -> None:
    first, backup, second = (tmp_path / name for name in ("first", "backup", "second"))
    first.mkdir()
    (picture,) = pictures(1, 64)
    with cluster([0, 1], dashboard=True) as nodes:
        with service(first, nodes) as found:
            chosen = {**TINY, "epochs": "1"}
            job = found.client.train("segmentation", "organ", zipped(discs), **chosen)
            done = found.client.wait(job["id"], PATIENCE)
            assert done["state"] == "succeeded", done
            answer = found.client.segment("organ", picture)
            drafts = shutil.ignore_patterns(".draft-*", ".jobs", ".projects")
            shutil.copytree(found.models, backup / "models", ignore=drafts)
            back_up(first / "local" / "jobs.sqlite3", backup / "local" / "jobs.sqlite3")
        shutil.rmtree(first)
        shutil.copytree(backup, second)
        verified = subprocess.run(
            [*COMMAND, "models", "verify", "organ", "--models", str(second / "models")],
            env={**os.environ}, capture_output=True, text=True, timeout=PATIENCE,
        )  # fmt: skip
        assert verified.returncode == 0, verified.stderr
        with service(second, nodes) as found:
            assert found.client.segment("organ", picture) == answer
            restored = found.client.job(job["id"])
            assert (restored["state"], restored["model"]) == ("succeeded", "organ@1")
            again = found.client.train("segmentation", "organ", zipped(discs), **chosen)
            assert found.client.wait(again["id"], PATIENCE)["model"] == "organ@2"
