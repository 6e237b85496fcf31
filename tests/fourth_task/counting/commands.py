"""``caps-med train counting`` and ``caps-med count``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import caps_med
from caps_med.cli.options import Models, say_json
from training.cli.train import Candidate, Epochs, Resume, Runs, Seed, train, train_task


def register(app: typer.Typer) -> None:
    """Add ``count``; `train` has its command by the import above."""
    app.command("count")(count)


@train.command("counting")
def train_counting(
    data: Annotated[str, typer.Option(help="Folder with images and counts.csv.")],
    name: Annotated[str, typer.Option(help="Name of the new model.")],
    models: Models = None,
    runs: Runs = Path("runs"),
    resume: Resume = False,
    candidate: Candidate = False,
    epochs: Epochs = None,
    seed: Seed = None,
) -> None:
    """Train a network that counts cells."""
    train_task("counting", locals())


def count(
    image: Annotated[Path, typer.Argument(help="Image.")],
    model: Annotated[str, typer.Option(help="Counting model.")],
    models: Models = None,
) -> None:
    """Count the cells of an image."""
    say_json(caps_med.load_model(model, models)(image).numbers())
