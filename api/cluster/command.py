"""``caps-med serve --cluster``: start or join a Ray cluster, and deploy the service on it."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from pathlib import Path

import typer
from pydantic import BaseModel

from api.access.keys import default_path
from api.cluster.serve import check_host, environment, private_files
from api.cluster.size import Size
from api.settings import Settings
from api.startup import checked
from caps_med.ray_connection import LOCAL, connected


def serve_on_cluster(
    settings: Settings, host: str, port: int, without_keys: bool, size: Size
) -> None:
    """Deploy the service, or update the one that runs, replica by replica.

    On a cluster that was there (``RAY_ADDRESS``) this returns when all replicas answer; otherwise
    Ray runs on this machine until SIGTERM or SIGINT.

    Raises:
        InvalidParameter: see `api.startup.checked` and `check_host`; or Serve runs on another
            address already.
        MissingExtra, ClusterError: see `connected`.
    """
    settings = checked(settings, host, without_keys)
    check_host(host)
    settings = settings.model_copy(update={"keys": settings.keys or default_path()})
    settings = with_absolute_paths(settings)
    address = os.environ.get("RAY_ADDRESS", LOCAL)
    with tempfile.TemporaryDirectory(prefix="caps-") as folder:  # its owner's alone
        given = environment(settings)
        if address == LOCAL:
            given |= private_files(Path(folder))
        with connected(address, "serve --cluster", environment=given):
            from api.cluster.deployment import check_nodes, deploy, end

            check_nodes(host)
            listening = deploy(settings, host, port, without_keys, size)
            typer.echo(f"caps_med on {listening}", err=True)
            if address == LOCAL:
                _until_asked_to_stop()
                end()


def with_absolute_paths(settings: Settings) -> Settings:
    """The settings with absolute paths, those of archives too: replicas run in other folders."""
    archives = {
        name: archive.model_copy(update=_absolute(archive))
        for name, archive in settings.archives.items()
    }
    return settings.model_copy(update={**_absolute(settings), "archives": archives})


def _absolute(model: BaseModel) -> dict[str, Path]:
    return {name: value.absolute() for name, value in model if isinstance(value, Path)}


def _until_asked_to_stop() -> None:
    asked = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: asked.set())
    asked.wait()
