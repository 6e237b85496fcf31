"""TensorBoard's files of a run, without which it goes on where they cannot be written."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from ignite.handlers import TensorboardLogger


class Board(TensorboardLogger):
    """Ignite's logger that an error of the disk ends, and not the training.

    The files are written by a thread of TensorBoard. As a context, what it fails with is told in
    one line, in place of a traceback; and nothing further is written.

    Args:
        folder: of the files.
        notify: prints a line.
        options: of `torch.utils.tensorboard.SummaryWriter`.
    """

    def __init__(self, folder: Path, notify: Callable[[str], None], **options: object) -> None:
        self.writer: Any = _Writer(None, notify)
        try:
            super().__init__(str(folder), **options)
        except OSError as error:
            self.writer.end(error)
        else:
            self.writer = _Writer(self.writer, notify)
        self._usual = threading.excepthook

    def __enter__(self) -> Self:
        self._usual = threading.excepthook
        threading.excepthook = self._note
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        threading.excepthook = self._usual

    def _note(self, failed: threading.ExceptHookArgs) -> None:
        ours = type(failed.thread).__module__.startswith("tensorboard.")
        if ours and isinstance(failed.exc_value, OSError):
            self.writer.end(failed.exc_value)
        else:
            self._usual(failed)


class _Writer:
    """A `SummaryWriter`, whose methods do nothing once the disk has failed."""

    def __init__(self, writer: object | None, notify: Callable[[str], None]) -> None:
        self._writer, self._notify, self._ended = writer, notify, False

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def guarded(*arguments: object, **named: object) -> Any:  # noqa: ANN401 - the method's
            if self._ended:
                return None
            try:
                return getattr(self._writer, name)(*arguments, **named)
            except OSError as error:
                self.end(error)
                return None

        return guarded

    def end(self, error: OSError) -> None:
        """Say why nothing more is written."""
        if not self._ended:
            self._ended = True
            reason = error.strerror or str(error)
            self._notify(f"TensorBoard: {reason}: the training continues without it")
