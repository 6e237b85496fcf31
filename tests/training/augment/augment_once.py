"""``caps-med augment`` in a process of its own, for tests that kill it."""

from __future__ import annotations

import torch
import typer

from training.cli.augment import register

app = typer.Typer()
register(app)


@app.callback()
def _root() -> None:
    """More than one command, as the real one has."""


if __name__ == "__main__":
    torch.set_num_threads(1)
    app()
