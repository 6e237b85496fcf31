"""``caps-med models``: list the models of the repository, show one, verify it."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer
from rich.markup import escape

import caps_med
from caps_med.cli.options import Models, console, say

models_app = typer.Typer(no_args_is_help=True, help="List, show and verify models.")

Name: TypeAlias = Annotated[str, typer.Argument(help="Model, or one version of it: name@3.")]


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.add_typer(models_app, name="models")


@models_app.command("list")
def list_models(models: Models = None) -> None:
    """List the latest version of every model."""
    from rich.table import Table

    from caps_med.bundles import ModelRepository

    table = Table()
    for heading in ("model", "version", "task", "labels", "scores"):
        table.add_column(heading, no_wrap=heading == "model", overflow="fold")
    for bundle in ModelRepository(models).list():
        card = bundle.card
        scores = ", ".join(f"{name} {value:g}" for name, value in card.scores.items())
        labels = ", ".join(card.labels.values())
        table.add_row(bundle.name, str(bundle.version), card.task, escape(labels), escape(scores))
    console.print(table)


@models_app.command("show")
def show_model(name: Name, models: Models = None) -> None:
    """Show a model's labels, scores, origin and capsule layers.

    Example: caps-med models show brain-t1-tissue
    """
    from rich.table import Table

    from caps_med.inference.passes import device_of
    from caps_med.routing import active_backend

    loaded = caps_med.load_model(name, models)
    card = loaded.bundle.card
    say(f"{loaded.bundle.reference}: {card.description or card.task}")
    say(f"takes: {card.input_description or 'not stated'}")
    say(f"labels: {', '.join(f'{i} {label}' for i, label in card.labels.items())}")
    if card.task == "segmentation":
        say(f"channels: {', '.join(card.shown_channels)}")
    for score, value in card.scores.items():
        say(f"{score}: {value:g}")
    say(f"preprocessing: {loaded.provenance.preprocessing}")
    say(f"routing here: {active_backend(device_of(loaded.network))}")
    say(f"trained by: {card.provenance.command} (seed {card.provenance.seed})")
    say(f"data: {card.provenance.data}")
    say(f"licence: {card.license}; sha256 {loaded.provenance.weights_sha256}")
    table = Table("layer", "capsule types", "atoms", "stride")
    for info in loaded.layers:
        table.add_row(info.name, str(info.types), str(info.atoms), str(info.stride))
    console.print(table)


@models_app.command("verify")
def verify_model(name: Name, models: Models = None) -> None:
    """Check the checksum of a model, and that its weights match its network.

    Example: caps-med models verify brain-t1-tissue
    """
    loaded = caps_med.load_model(name, models)
    say(f"{loaded.bundle.reference}: valid, {loaded.provenance.weights_sha256}")
