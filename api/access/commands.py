"""The subcommand ``caps-med keys``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

keys_app = typer.Typer(no_args_is_help=True, help="Keys to the service: make, list, revoke.")

Keys = Annotated[
    Path | None,
    typer.Option("--keys", envvar="CAPS_MED_KEYS", help="The file of keys; only hashes are in it."),
]


@keys_app.command("create")
def create(
    name: Annotated[str, typer.Option(help="Who will hold it: a gateway, a person.")],
    scope: Annotated[list[str], typer.Option(help="infer, train or admin; may be repeated.")],
    per_minute: Annotated[
        int | None, typer.Option(help="Requests a minute; else the service's setting.", min=1)
    ] = None,
    keys: Keys = None,
) -> None:
    """Make a key and show it, once.

    Example: caps-med keys create --name gateway --scope infer
    """
    from api.access.keys import KeyStore, default_path

    made, text = KeyStore(keys or default_path()).create(name, scope, per_minute)  # type: ignore[arg-type]
    typer.echo(f"key {made.id} of {made.name}: {', '.join(made.scopes)}", err=True)
    typer.echo("keep it now, it cannot be shown again:", err=True)
    typer.echo(text)


@keys_app.command("list")
def list_keys(keys: Keys = None) -> None:
    """All keys, without the keys themselves."""
    from rich.console import Console
    from rich.table import Table

    from api.access.keys import KeyStore, default_path

    table = Table("id", "name", "scopes", "a minute", "made", "revoked")
    for key in KeyStore(keys or default_path()).list():
        per_minute = str(key.per_minute or "")
        table.add_row(
            key.id, key.name, " ".join(key.scopes), per_minute, key.created, key.revoked or ""
        )
    Console().print(table)


@keys_app.command("revoke")
def revoke(
    identity: Annotated[str, typer.Argument(metavar="ID", help="As `keys list` shows it.")],
    keys: Keys = None,
) -> None:
    """End a key's life; a running service refuses it from the next request on.

    Example: caps-med keys revoke 3f1c9a0b7d42
    """
    from api.access.keys import KeyStore, default_path

    revoked = KeyStore(keys or default_path()).revoke(identity)
    typer.echo(f"key {revoked.id} of {revoked.name} was revoked on {revoked.revoked}")
