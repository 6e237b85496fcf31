"""The wording of the command line's help and of typer's messages about options, and how Ctrl-C
ends a command.
"""

from __future__ import annotations

import inspect
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from caps_med.cli.interrupts import end_stopped

#: What newer versions of typer, which check options by pydantic, begin a message with.
_EXCEPTION = "Value error, "


class PlainGroup(TyperGroup):
    """Commands with help that fits any terminal, messages that do not begin with the name of an
    exception, and a clean end on Ctrl-C.
    """

    def __init__(self, **arguments: Any) -> None:  # noqa: ANN401 - typer's own, passed on
        super().__init__(**arguments)
        flow(self)

    def make_context(self, *args: Any, **more: Any) -> Any:  # noqa: ANN401 - as `invoke`
        """Parse the command line, for which typer imports a large part of itself.

        Raises:
            SystemExit: Ctrl-C.
        """
        try:
            return super().make_context(*args, **more)
        except KeyboardInterrupt:
            end_stopped()

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - typer's own context, which it does not export
        """Run the requested command.

        Raises:
            typer.BadParameter: an option's value is wrong, in plain words.
            SystemExit: Ctrl-C.
        """
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix(_EXCEPTION)
            raise
        except KeyboardInterrupt:
            end_stopped()


def flow(command: TyperCommand | TyperGroup) -> None:
    """Let the terminal break the lines in the help of a command and its subcommands.

    Typer keeps the line breaks of all paragraphs except the first, so source lines that are longer
    than the terminal would wrap raggedly. Lists of examples keep their line breaks.
    """
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    command.help = "\n\n".join(
        one if one.startswith("Examples:") else one.replace("\n", " ") for one in paragraphs
    )
    for below in getattr(command, "commands", {}).values():
        flow(below)
