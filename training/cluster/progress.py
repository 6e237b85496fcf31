"""The progress of several trainings: one bar of all epochs, a line for each training."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from caps_med.printing import print_line


class Bar:
    """A bar of epochs, and lines above it."""

    def __init__(self, progress: Progress, what: str, epochs: int) -> None:
        self._progress = progress
        self._task = progress.add_task(what, total=epochs)

    def advance_to(self, epochs: int) -> None:
        """Show how many are done."""
        self._progress.update(self._task, completed=epochs)

    def say(self, text: str) -> None:
        """Print a line."""
        print_line(self._progress.console, text)


@contextmanager
def progress_bar(what: str, epochs: int, console: Console) -> Iterator[Bar]:
    """A bar until the block ends, in a terminal; elsewhere its lines alone."""
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("epochs"),
        TimeRemainingColumn(),
    )  # fmt: skip
    hidden = not sys.stderr.isatty() and not console.is_terminal
    with Progress(*columns, console=console, disable=hidden) as progress:
        yield Bar(progress, what, epochs)
