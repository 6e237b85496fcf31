"""How the command line words its help and what typer finds wrong with an option, and how Ctrl-C
ends it.
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
    """Commands whose help fits any terminal, whose messages do not begin with the name of an
    exception, and that Ctrl-C ends.
    """

    def __init__(self, **arguments: Any) -> None:  # noqa: ANN401 - typer's own, passed on
        super().__init__(**arguments)
        flow(self)

    def make_context(self, *args: Any, **more: Any) -> Any:  # noqa: ANN401 - as `invoke`
        """Read the command line, for which typer imports a good part of itself.

        Raises:
            SystemExit: Ctrl-C.
        """
        try:
            return super().make_context(*args, **more)
        except KeyboardInterrupt:
            end_stopped()

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - typer's own context, which it does not export
        """Run the command that was asked for.

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
    """Let the terminal break the lines of a command's help, and of the commands below it.

    Typer keeps the line breaks of all paragraphs but the first, so that lines of the source that
    are longer than the terminal end in a ragged rest. Lists of examples keep theirs.
    """
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    command.help = "\n\n".join(
        one if one.startswith("Examples:") else one.replace("\n", " ") for one in paragraphs
    )
    for below in getattr(command, "commands", {}).values():
        flow(below)
