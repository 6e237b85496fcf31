"""``caps-med serve``, a plugin command of the entry-point group ``caps_med.commands``."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from api.access.commands import keys_app
from caps_med.cli.options import Models
from caps_med.errors import InvalidParameter

if TYPE_CHECKING:
    from api.settings import Settings


def register(app: typer.Typer) -> None:
    """Add ``serve`` and ``keys`` to the command line."""
    app.command("serve")(serve)
    app.add_typer(keys_app, name="keys")


def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 for a free one.", min=0, max=65535)] = 8000,
    models: Models = None,
    without_keys: Annotated[
        bool,
        typer.Option("--without-keys", help="Allow other machines to call without keys."),
    ] = False,
    monai_label: Annotated[
        bool,
        typer.Option("--monai-label", help="Also speak the MONAI Label protocol: 3D Slicer, OHIF."),
    ] = False,
    monai_label_project: Annotated[
        str | None,
        typer.Option(help="Project that is its data store, by name or id.", metavar="PROJECT"),
    ] = None,
    monai_label_model: Annotated[
        str | None,
        typer.Option(help="Model with which a new project of that name starts.", metavar="MODEL"),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(help="PEM file of the certificate chain.", exists=True)
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(help="PEM file of its private key.", exists=True)
    ] = None,
) -> None:
    """Serve segmentation, synthesis and features over HTTP.

    Example: caps-med serve --port 8000, then open http://127.0.0.1:8000/
    """
    from api import logs, tracing
    from api.access.keys import KeyStore, default_path
    from api.access.listening import check_exposure
    from api.app import create_app
    from api.server import run

    if (tls_cert is None) != (tls_key is None):
        raise InvalidParameter("--tls-cert and --tls-key belong together: give both or neither")
    given = {
        "models": models,
        "monai_label": monai_label or None,
        "monai_label_project": monai_label_project,
        "monai_label_model": monai_label_model,
    }
    settings = _settings({name: value for name, value in given.items() if value is not None})
    keys = KeyStore(settings.keys or default_path()).holds_any() or settings.require_keys
    check_exposure(host, keys, without_keys, settings.allowed_hosts)
    settings = settings.model_copy(update=_access(host, settings, keys))
    logs.configure(settings.audit_log)
    tracing.export_if_asked()
    listener = socket.create_server((host, port))
    scheme = "https" if tls_cert else "http"
    typer.echo(f"caps_med on {scheme}://{host}:{listener.getsockname()[1]}", err=True)
    tls = (tls_cert, tls_key) if tls_cert and tls_key else None
    run(create_app(settings), listener, settings, tls)


def _settings(given: dict[str, Any]) -> Settings:
    from pydantic import ValidationError
    from pydantic_settings import SettingsError

    from api.settings import Settings

    try:
        return Settings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        name = "_".join(str(part) for part in first["loc"]).upper()
        raise InvalidParameter(f"CAPS_MED_{name}: {first['msg']}") from error
    except SettingsError as error:
        field = re.search(r'field "(\w+)"', str(error))
        name = field[1].upper() if field else "..."
        raise InvalidParameter(f'CAPS_MED_{name}: give a JSON list, as ["one", "two"]') from error


def _access(host: str, settings: Settings, keys: bool) -> dict[str, object]:
    """The settings that follow from the address: required keys, accepted host names."""
    from api.access.listening import LOOPBACK_NAMES, is_loopback

    hosts = settings.allowed_hosts
    if not hosts and not keys and is_loopback(host):
        hosts = (*LOOPBACK_NAMES, host)
    return {"require_keys": keys, "allowed_hosts": hosts}
