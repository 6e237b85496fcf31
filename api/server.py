"""The server process, which shuts down gracefully."""

from __future__ import annotations

import socket
from pathlib import Path
from types import FrameType

import uvicorn
from fastapi import FastAPI

from api.engine import Engine
from api.protocol import MAX_HEAD_BYTES, bounded
from api.settings import Settings
from caps_med.collector import set_aside_for_good


class Server(uvicorn.Server):
    """Uvicorn, which notifies the engine when it is asked to stop.

    On SIGTERM or SIGINT it accepts no new connection, ``/readyz`` answers 503, event streams close,
    and the requests in progress are finished.
    """

    def __init__(self, config: uvicorn.Config, engine: Engine) -> None:
        super().__init__(config)
        self._engine = engine

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain, then stop."""
        self._engine.drain()
        super().handle_exit(sig, frame)


def configured(
    app: FastAPI, settings: Settings, tls: tuple[Path, Path] | None = None
) -> uvicorn.Config:
    """Uvicorn's configuration: bounded headers, no WebSockets, no request in its logs.

    Args:
        tls: files of the certificate and its key; None for plain HTTP.
    """
    certificate, key = tls or (None, None)
    return uvicorn.Config(
        app,
        http=bounded(settings.header_seconds, settings.body_seconds, settings.min_body_rate),
        ws="none",
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # see api.forwarded
        timeout_graceful_shutdown=settings.drain_seconds,
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )


def run(
    app: FastAPI, listener: socket.socket, settings: Settings, tls: tuple[Path, Path] | None
) -> None:
    """Serve until SIGTERM or SIGINT, then finish the requests in progress."""
    set_aside_for_good()
    config = configured(app, settings, tls)
    Server(config, app.state.engine).run(sockets=[listener])
