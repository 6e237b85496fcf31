"""The subcommand ``caps-med keys``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

keys_app = typer.Typer(no_args_is_help=True, help="Create, list and revoke keys of the service.")

Keys = Annotated[
    Path | None,
    typer.Option("--keys", envvar="CAPS_MED_KEYS", help="File of the keys; it holds only hashes."),
]


@keys_app.command("create")
def create(
    name: Annotated[str, typer.Option(help="Who uses the key: a gateway, a person.")],
    scope: Annotated[list[str], typer.Option(help="infer, train or admin; may be repeated.")],
    per_minute: Annotated[
        int | None, typer.Option(help="Requests per minute; default: the service's setting.", min=1)
    ] = None,
    keys: Keys = None,
) -> None:
    """Create a key and show it once.

    Example: caps-med keys create --name gateway --scope infer
    """
    from api.access.keys import KeyStore, default_path

    key, text = KeyStore(keys or default_path()).create(name, scope, per_minute)  # type: ignore[arg-type]
    typer.echo(f"key {key.id} of {key.name}: {', '.join(key.scopes)}", err=True)
    typer.echo("store it now, it cannot be shown again:", err=True)
    typer.echo(text)


@keys_app.command("list")
def list_keys(keys: Keys = None) -> None:
    """List all keys, without their secrets."""
    from rich.console import Console
    from rich.table import Table

    from api.access.keys import KeyStore, default_path

    table = Table("id", "name", "scopes", "per minute", "created", "revoked")
    for key in KeyStore(keys or default_path()).list():
        per_minute = str(key.per_minute or "")
        table.add_row(
            key.id, key.name, " ".join(key.scopes), per_minute, key.created, key.revoked or ""
        )
    Console().print(table)


@keys_app.command("revoke")
def revoke(
    identity: Annotated[str, typer.Argument(metavar="ID", help="As shown by `keys list`.")],
    keys: Keys = None,
) -> None:
    """Revoke a key; a running service refuses it from the next request on.

    Example: caps-med keys revoke 3f1c9a0b7d42
    """
    from api.access.keys import KeyStore, default_path

    revoked = KeyStore(keys or default_path()).revoke(identity)
    typer.echo(f"key {revoked.id} of {revoked.name} was revoked on {revoked.revoked}")
