"""Projects: data sets on the service that are annotated with the help of a model, which learns."""

from __future__ import annotations

import logging
import sqlite3
from importlib.util import find_spec
from typing import TYPE_CHECKING

from fastapi import FastAPI

from caps_med.extras import has_extra

if TYPE_CHECKING:
    from api.engine import Engine
    from api.jobs.service import Jobs
    from api.projects.service import Projects

log = logging.getLogger("caps_med.projects")


def install(app: FastAPI, engine: Engine, jobs: Jobs | None) -> Projects | None:
    """Add the routes of projects, unless the settings rule them out.

    Without a folder that can be written, or with a damaged file of projects, the routes answer 503,
    and everything else works.

    Args:
        jobs: trains the models of projects; None if this service does not.
    """
    app.state.projects = None
    if engine.settings.inference_only or not engine.settings.projects:
        return None
    if not has_extra("train") or find_spec("fcntl") is None:
        log.info("no projects: they need the extra 'train' and a POSIX system")
        return None
    from api.database import UnknownVersion
    from api.projects.service import Projects
    from api.routes import project_images, project_labels, project_learning, projects

    for router in (projects, project_images, project_labels, project_learning):
        app.include_router(router.router)
    try:
        app.state.projects = Projects(engine, jobs)
    except (OSError, sqlite3.Error, UnknownVersion) as error:
        log.error("no projects until the service is started again: %s", error)
    found: Projects | None = app.state.projects
    return found
