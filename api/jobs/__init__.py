"""Training jobs: submitted over HTTP, kept in SQLite, each run in its own process."""

from __future__ import annotations

import logging
import sqlite3
from importlib.util import find_spec
from typing import TYPE_CHECKING

from caps_med.extras import has_extra

if TYPE_CHECKING:
    from fastapi import FastAPI

    from api.engine import Engine
    from api.jobs.service import Jobs

log = logging.getLogger("caps_med.jobs")


def install(app: FastAPI, engine: Engine) -> Jobs | None:
    """Add the routes of training jobs, unless the settings or the system rule them out.

    Jobs need the extra ``train`` and POSIX process groups. Without a folder that can be written, or
    with a damaged file of jobs, the routes answer 503, and everything else works.
    """
    if engine.settings.inference_only or not engine.settings.training:
        return None
    if not has_extra("train") or find_spec("fcntl") is None:
        log.info("no training jobs: they need the extra 'train' and a POSIX system")
        return None
    from api.database import UnknownVersion
    from api.jobs.events import Snapshots
    from api.jobs.service import Jobs
    from api.routes import training_jobs

    app.include_router(training_jobs.router)
    jobs = None
    try:
        jobs = Jobs(engine.settings, engine.metrics, engine.model_published)
    except (OSError, sqlite3.Error, UnknownVersion) as error:
        log.error("no training jobs until the service is started again: %s", error)
    app.state.jobs = jobs
    app.state.job_snapshots = jobs and Snapshots(jobs)
    return jobs
