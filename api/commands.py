"""The subcommand ``caps-med serve``; found through the entry-point group ``caps_med.commands``."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add ``serve`` to the command line."""
    app.command("serve")(serve)


def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.", min=0, max=65535)] = 8000,
    models: Annotated[
        Path | None, typer.Option(envvar="CAPS_MED_MODELS", help="Model repository.")
    ] = None,
) -> None:
    """Serve segmentation, synthesis and features over HTTP.

    Example: caps-med serve --port 8000, then open http://127.0.0.1:8000/
    """
    from api import logs, tracing
    from api.app import create_app
    from api.server import run
    from api.settings import Settings

    settings = Settings() if models is None else Settings(models=models)
    logs.configure(settings.audit_log)
    tracing.export_if_asked()
    listener = socket.create_server((host, port))
    typer.echo(f"caps_med on http://{host}:{listener.getsockname()[1]}", err=True)
    run(create_app(settings), listener, settings.drain_seconds)
