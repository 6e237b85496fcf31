"""The subcommand ``caps-med keys``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from caps_med.cli.options import AsJson, console, say_json
from caps_med.cli.tables import print_table

keys_app = typer.Typer(
    no_args_is_help=True, help="Create, list and revoke API keys of the service."
)

Keys = Annotated[
    Path | None,
    typer.Option(
        "--keys", envvar="CAPS_MED_KEYS", help="File of the keys, which contains only their hashes."
    ),
]


@keys_app.command("create")
def create(
    name: Annotated[str, typer.Option(help="Who uses the key, such as a gateway or a person.")],
    scope: Annotated[
        list[str],
        typer.Option(help="What the key allows: infer, archive, train or admin. May be repeated."),
    ],
    per_minute: Annotated[
        int | None,
        typer.Option(help="Requests allowed per minute; by default the service's setting.", min=1),
    ] = None,
    keys: Keys = None,
) -> None:
    """Create a key and show it once.

    Example: caps-med keys create --name gateway --scope infer
    """
    from api.access.keys import KeyStore, default_path

    key, text = KeyStore(keys or default_path()).create(name, scope, per_minute)  # type: ignore[arg-type]  # scopes are checked there
    typer.echo(f"key {key.id} of {key.name}: {', '.join(key.scopes)}", err=True)
    typer.echo("store it now; it cannot be shown again:", err=True)
    typer.echo(text)


@keys_app.command("list")
def list_keys(as_json: AsJson = False, keys: Keys = None) -> None:
    """List all keys, without their secrets.

    Example: caps-med keys list
    """
    from dataclasses import asdict

    from api.access.keys import KeyStore, default_path

    listed = KeyStore(keys or default_path()).list()
    if as_json:
        say_json([asdict(key) for key in listed])
        return
    rows = [
        (key.id, key.name, " ".join(key.scopes), str(key.per_minute or ""), key.created,
         key.revoked or "")
        for key in listed
    ]  # fmt: skip
    headings = ("id", "name", "scopes", "per minute", "created", "revoked")
    print_table(console, headings, rows)


@keys_app.command("revoke")
def revoke(
    identity: Annotated[
        str, typer.Argument(metavar="ID", help="Id of the key, as shown by `caps-med keys list`.")
    ],
    keys: Keys = None,
) -> None:
    """Revoke a key; a running service rejects it from the next request on.

    Example: caps-med keys revoke 3f1c9a0b7d42
    """
    from api.access.keys import KeyStore, default_path

    revoked = KeyStore(keys or default_path()).revoke(identity)
    typer.echo(f"key {revoked.id} of {revoked.name} was revoked on {revoked.revoked}")
