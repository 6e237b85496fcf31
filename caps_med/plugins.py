"""The commands that `training` and `api` add to ``caps-med``, and where these packages lie.

In a checkout they lie beside `caps_med`. A wheel installs them into ``caps_med/_plugins``, because
their names are common: no other distribution's `api` or `training` is overwritten, and our commands
import ours.
"""

from __future__ import annotations

import sys
from importlib.metadata import entry_points
from pathlib import Path

import typer
from rich.markup import escape

from caps_med.extras import has_extra, install_command, require_extra
from caps_med.registries import added_object

#: The entry-point group of functions that add commands to a Typer app.
COMMANDS = "caps_med.commands"
#: The extra that the commands of each package need.
_EXTRA = {"training": "train", "api": "api"}
#: The further commands of an entry point, beside that of its own name.
_BESIDE = {"serve": ("keys",)}


def add_plugins(app: typer.Typer) -> None:
    """Add the commands of all plugins; those without their extra show how to install it.

    Raises:
        InvalidPlugin: another package that adds commands cannot be imported.
    """
    put_plugins_first()
    for point in sorted(entry_points(group=COMMANDS), key=lambda point: point.name):
        extra = _EXTRA.get(point.module.partition(".")[0])
        if extra is None:
            added_object(point)(app)
        elif has_extra(extra):
            point.load()(app)
        else:
            for name in (point.name, *_BESIDE.get(point.name, ())):
                _add_missing(app, name, extra)


def put_plugins_first() -> None:
    """Make ``import training`` and ``import api`` find the packages of this installation.

    Every command calls this. A script that imports `training` must call it first if caps_med was
    installed from a wheel; in a checkout the packages are on the import path anyway.
    """
    installed = Path(__file__).resolve().parent / "_plugins"
    folder = str(installed if installed.is_dir() else installed.parents[1])
    if sys.path[0] != folder:
        sys.path.insert(0, folder)


def _add_missing(app: typer.Typer, name: str, extra: str) -> None:
    text = f"Not installed: {escape(install_command(extra))}"
    settings = {"ignore_unknown_options": True, "allow_extra_args": True}

    @app.command(name, help=text, context_settings=settings)
    def missing() -> None:
        require_extra(extra, name)
