"""What a service that infers only leaves to the head service: 421."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from api.problems import MISDIRECTED, problem

#: Paths whose state one process has, and what they are.
OF_THE_HEAD = {
    "/v1/training-jobs": "training jobs",
    "/v1/projects": "projects",
    "/v1/inference-jobs": "inference jobs",
}


class Misdirected:
    """ASGI app that says where the requests of a path belong."""

    def __init__(self, path: str, what: str) -> None:
        self._detail = (
            f"this service only infers; {what} belong to the head service: its operator must make "
            f"the proxy send {path} there"
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 421."""
        await problem(MISDIRECTED, self._detail)(scope, receive, send)


def install(app: FastAPI) -> None:
    """Answer the paths of the head service, in place of routes."""
    for path, what in OF_THE_HEAD.items():
        for route in (path, path + "/{rest:path}"):
            app.router.routes.append(Route(route, Misdirected(path, what)))
