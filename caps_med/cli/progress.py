"""The progress of a command on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.markup import escape

from caps_med.cli.options import errors

if TYPE_CHECKING:
    from rich.progress import Progress


@contextmanager
def progress_bar(text: str) -> Iterator[Callable[[int, int], None]]:
    """A bar with the time left, for one answer; yields the `progress` to pass to the model.

    It is shown on standard error, only if that is a terminal, and removed when the work is done.
    """
    with new_bars() as bars:
        task = bars.add_task(escape(text), total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)


def new_bars(*, rate: bool = False) -> Progress:
    """Bars with steps done and time left, on standard error if that is a terminal.

    Args:
        rate: also show how many are done per minute.
    """
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        """How many are done per minute, for bars that count whole cases."""

        def render(self, task: Task) -> Text:
            known = task.speed and task.fields.get("rate")
            return Text(f"{60 * task.speed:.3g}/min" if known and task.speed else "")

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        *([Rate()] if rate else []),
        TimeRemainingColumn(elapsed_when_finished=True),
        console=errors,
        transient=True,
        redirect_stdout=False,
        disable=not errors.is_terminal,
    )
