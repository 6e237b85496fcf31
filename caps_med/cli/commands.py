"""The library's own subcommands of ``caps-med``, and those of its plugins.

Nothing heavy is imported before a command runs, so that ``--help`` responds immediately.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.markup import escape

from caps_med._version import __version__
from caps_med.allocator import keep_freed_memory
from caps_med.cli import inference, models, weights
from caps_med.cli.group import PlainGroup
from caps_med.cli.options import Models, console, errors, print_what_the_terminal_lacks
from caps_med.collector import collect_rarely_at_start
from caps_med.disk import FULL
from caps_med.errors import OUT_OF_MEMORY, CapsMedError, is_out_of_memory
from caps_med.plugins import add_plugins

app = typer.Typer(
    name="caps-med",
    cls=PlainGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Medical image-to-image with capsule networks: segment images, synthesize them, see what "
    "each capsule sees, and train on your own data.\n\nFor a first look: caps-med demo --out "
    "demo",
)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if version:
        console.print(f"caps_med {__version__}")
        raise typer.Exit


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", help="Folder for the pictures.")] = Path("demo"),
    models: Models = None,
) -> None:
    """Segment a brain slice, synthesize images of its labels, and show its capsules.

    Example: caps-med demo --out demo
    """
    from caps_med.demo import run_demo

    run_demo(out, models)


inference.register(app)
models.register(app)
weights.register(app)


def run() -> None:
    """Run the command line; a user's error is one line and exit status 2, without a traceback."""
    os.environ.setdefault("PYTHONWARNINGS", "ignore::DeprecationWarning")
    # OpenMP threads that spin while they wait slow down a busy machine or a container with a CPU
    # quota: 20 s were measured instead of 0.4 s. Torch, which reads this, is not imported yet.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    collect_rarely_at_start()
    keep_freed_memory()
    print_what_the_terminal_lacks()
    if not _has_folder():  # MKL would end the process without a word about the cause
        _fail("file", "the current folder no longer exists: change to another one")
    try:
        add_plugins(app)
        app()
    except CapsMedError as error:
        _fail(error.code, str(error))
    except OSError as error:
        _fail("file", _told(error))
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        _fail("out_of_memory", OUT_OF_MEMORY)


def _has_folder() -> bool:
    """Whether the folder that the command is run from is still there."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True


def _told(error: OSError) -> str:
    """The disk's error, and the file concerned."""
    if isinstance(error, shutil.Error):  # of a folder: source, copy and reason of each file
        (_, copy, reason), *_ = error.args[0]
        return f"{copy}: {reason}"
    told = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    if error.errno not in FULL:
        return told
    return f"{told}; free some space, then repeat the command, with --resume if it has that option"


def _fail(code: str, message: str) -> NoReturn:
    errors.print(f"[red]{code}[/red]: {escape(message)}", highlight=False, soft_wrap=True)
    sys.exit(2)
