"""The MONAI Label protocol, as 3D Slicer's module and OHIF speak it: off unless the settings ask.

Clients take nothing but 200 for a success, and follow no redirect, so paths end as they expect it.
https://github.com/Project-MONAI/MONAILabel
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import FastAPI

from api.monai_label import auth, infer, info, session
from api.monai_label.sessions import Sessions

if TYPE_CHECKING:
    from api.engine import Engine
    from api.jobs.service import Jobs
    from api.projects.service import Projects


def install(app: FastAPI, engine: Engine, projects: Projects | None, jobs: Jobs | None) -> None:
    """Add the routes of the protocol.

    Args:
        projects: of which one is the data store; None if this service has none. Then there is none
            to correct.
        jobs: train the project's models; None if this service trains none.
    """
    settings = engine.settings
    app.state.sessions = Sessions(
        settings.max_sessions, settings.sessions_max_bytes, settings.session_seconds
    )
    app.state.datastore = None
    for each in (auth, info, session, infer):
        app.include_router(each.router)
    if projects is None:
        return
    from api.monai_label import data, samples, train
    from api.monai_label.datastore import Datastore

    app.state.datastore = Datastore(projects, engine, jobs)
    for each in (data, samples, train):
        app.include_router(each.router)
