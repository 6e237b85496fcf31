"""The MONAI Label protocol, as 3D Slicer's module and OHIF speak it: off unless the settings ask.

Clients take nothing but 200 for a success, and follow no redirect, so paths end as they expect it.
https://github.com/Project-MONAI/MONAILabel
"""

from __future__ import annotations

from fastapi import FastAPI

from api.monai_label import auth, infer, info, session
from api.monai_label.sessions import Sessions
from api.settings import Settings


def install(app: FastAPI, settings: Settings) -> None:
    """Add the routes of the protocol."""
    app.state.sessions = Sessions(
        settings.max_sessions, settings.sessions_max_bytes, settings.session_seconds
    )
    for each in (auth, info, session, infer):
        app.include_router(each.router)
