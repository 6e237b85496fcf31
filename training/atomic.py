"""Files and folders that are whole or not there, whenever a process is killed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from caps_med.drafts import write_whole


def write_text(path: Path, text: str) -> None:
    """Replace a file atomically; missing folders are created."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text.encode())


@contextmanager
def refilled(folder: Path, mark: Path) -> Iterator[None]:
    """Make an empty folder, to be filled in the block; after an error or Ctrl-C it is gone.

    The file in it that says that it is whole goes first: what a killed process leaves is not taken
    for that.
    """
    mark.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
