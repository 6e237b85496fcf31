"""The server process, which shuts down gracefully."""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path
from types import FrameType

import uvicorn
from fastapi import FastAPI

from api.engine import Engine
from api.protocol import MAX_HEAD_BYTES, bounded
from api.settings import Settings
from caps_med.collector import set_aside_for_good
from caps_med.errors import InvalidParameter


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

    Raises:
        InvalidParameter: these are no certificate with its private key.
    """
    certificate, key = tls or (None, None)
    config = uvicorn.Config(
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
    try:
        config.load()
    except OSError as error:  # which names no file
        if key is not None and _is_encrypted(key):
            raise InvalidParameter(
                f"--tls-key {key}: is encrypted, and no passphrase was given that decrypts it: use "
                f"a file without one, that only the service's user can read: openssl pkey -in {key}"
            ) from error
        raise InvalidParameter(
            f"--tls-cert {certificate} and --tls-key {key}: must be PEM files of a certificate "
            f"chain and of its private key ({error})"
        ) from error
    return config


def _is_encrypted(key: Path) -> bool:
    """Whether a private key in PEM needs a passphrase; false if it cannot be read."""
    with suppress(OSError):
        return b"ENCRYPTED" in key.read_bytes()
    return False


def run(config: uvicorn.Config, engine: Engine, listener: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT, then finish the requests in progress."""
    set_aside_for_good()
    Server(config, engine).run(sockets=[listener])
