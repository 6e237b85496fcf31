"""How the command line words what typer finds wrong with an option, and how Ctrl-C ends it."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from caps_med.cli.interrupts import end_stopped

#: What newer versions of typer, which check options by pydantic, begin a message with.
_EXCEPTION = "Value error, "


class PlainGroup(TyperGroup):
    """Commands whose messages do not begin with the name of an exception, and that Ctrl-C ends."""

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
