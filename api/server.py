"""The server process: one event loop that ends gracefully."""

from __future__ import annotations

import socket
from types import FrameType

import uvicorn
from fastapi import FastAPI

from api.engine import Engine


class Server(uvicorn.Server):
    """Uvicorn, which tells the engine when it is asked to end.

    On SIGTERM or SIGINT it takes no new connection, ``/readyz`` says 503, streams of events close,
    and requests that are being answered are finished.
    """

    def __init__(self, config: uvicorn.Config, engine: Engine) -> None:
        super().__init__(config)
        self._engine = engine

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain, then end."""
        self._engine.drain()
        super().handle_exit(sig, frame)


def run(app: FastAPI, listener: socket.socket, drain_seconds: int) -> None:
    """Serve until SIGTERM or SIGINT; what is then being answered may take `drain_seconds`."""
    config = uvicorn.Config(
        app, log_config=None, access_log=False, timeout_graceful_shutdown=drain_seconds
    )
    Server(config, app.state.engine).run(sockets=[listener])
