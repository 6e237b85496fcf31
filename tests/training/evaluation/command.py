"""``caps-med evaluate``, called in this process."""

from __future__ import annotations

import typer
from typer.testing import CliRunner, Result

from training.cli.evaluate import register

app = typer.Typer()
app.callback()(lambda: None)
register(app)


def run(*arguments: object) -> Result:
    return CliRunner(env={"COLUMNS": "250"}).invoke(app, ["evaluate", *map(str, arguments)])
