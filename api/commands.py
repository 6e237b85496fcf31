"""``caps-med serve``, a plugin command of the entry-point group ``caps_med.commands``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from api.access.commands import keys_app
from caps_med.cli.options import Models
from caps_med.errors import InvalidParameter
from caps_med.extras import require_extra

if TYPE_CHECKING:
    from api.settings import Settings


def register(app: typer.Typer) -> None:
    """Add ``serve`` and ``keys`` to the command line."""
    app.command("serve")(serve)
    app.add_typer(keys_app, name="keys")


def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="Port to listen on; 0 chooses a free one.", min=0, max=65535)
    ] = 8000,
    models: Models = None,
    without_keys: Annotated[
        bool,
        typer.Option("--without-keys", help="Allow requests without keys from other machines."),
    ] = False,
    monai_label: Annotated[
        bool,
        typer.Option(
            "--monai-label", help="Also serve the MONAI Label protocol, for 3D Slicer and OHIF."
        ),
    ] = False,
    monai_label_project: Annotated[
        str | None,
        typer.Option(
            help="Project that is the data store of MONAI Label, by name or id.", metavar="PROJECT"
        ),
    ] = None,
    monai_label_model: Annotated[
        str | None,
        typer.Option(help="Model that a new project of that name starts with.", metavar="MODEL"),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(help="PEM file of the certificate chain.", exists=True)
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(help="PEM file of the certificate's private key.", exists=True)
    ] = None,
    cluster: Annotated[
        bool,
        typer.Option(
            "--cluster",
            help="Run replicas on a Ray cluster: the one in RAY_ADDRESS, or a new one on this "
            "machine.",
        ),
    ] = False,
    min_replicas: Annotated[
        int | None,
        typer.Option(help="With --cluster: smallest number of replicas; by default 1.", min=1),
    ] = None,
    max_replicas: Annotated[
        int | None,
        typer.Option(
            help="With --cluster: largest number of replicas, under load; by default as "
            "--min-replicas.",
            min=1,
        ),
    ] = None,
) -> None:
    """Serve the models over HTTP, together with the web page.

    Example: caps-med serve --port 8000, then open http://127.0.0.1:8000/

    On many machines: RAY_ADDRESS=head:6379 caps-med serve --cluster --host 0.0.0.0 --max-replicas 8

    To change a running service, give the command again with other options: the replicas are
    updated one by one while the others keep answering.
    """
    if sys.platform == "win32":
        raise InvalidParameter(
            "serve: needs Linux or macOS; on Windows run it in WSL 2 or in a container"
        )
    from api.server import configured, run
    from api.startup import prepared, read_settings

    if (tls_cert is None) != (tls_key is None):
        raise InvalidParameter("--tls-cert and --tls-key must be given together")
    given = {
        "models": models,
        "monai_label": monai_label or None,
        "monai_label_project": monai_label_project,
        "monai_label_model": monai_label_model,
    }
    settings = read_settings({name: value for name, value in given.items() if value is not None})
    if not cluster and (min_replicas or max_replicas):
        raise InvalidParameter("--min-replicas and --max-replicas: only used with --cluster")
    if not settings.monai_label and (monai_label_project or monai_label_model):
        raise InvalidParameter(
            "--monai-label-project and --monai-label-model: only used with --monai-label"
        )
    if cluster:
        _on_cluster(settings, host, port, without_keys, tls_cert, min_replicas, max_replicas)
        return
    from api.access.listening import listening, url_of
    from api.app import create_app

    settings = prepared(settings, host, without_keys)
    listener = listening(host, port)
    app = create_app(settings)
    config = configured(app, settings, (tls_cert, tls_key) if tls_cert and tls_key else None)
    address = url_of("https" if tls_cert else "http", host, listener.getsockname()[1])
    typer.echo(f"caps_med on {address}", err=True)
    run(config, app.state.engine, listener)


def _on_cluster(
    settings: Settings,
    host: str,
    port: int,
    without_keys: bool,
    tls_cert: Path | None,
    min_replicas: int | None,
    max_replicas: int | None,
) -> None:
    require_extra("scale", "serve --cluster")
    from api.cluster.command import serve_on_cluster
    from api.cluster.size import read_size

    if tls_cert is not None:
        raise InvalidParameter(
            "--tls-cert: cannot be combined with --cluster; terminate TLS in a proxy in front of "
            "the cluster"
        )
    if settings.monai_label:
        raise InvalidParameter(
            "--monai-label: keeps sessions, which replicas cannot share; leave out --cluster"
        )
    given = {"min_replicas": min_replicas, "max_replicas": max_replicas}
    size = read_size({name: value for name, value in given.items() if value is not None})
    serve_on_cluster(settings, host, port, without_keys, size)
