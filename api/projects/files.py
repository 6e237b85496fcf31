"""The files of projects: their names are ours, they are whole or not there, orphans are swept."""

from __future__ import annotations

import logging
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from api.projects.store import ProjectStore
from caps_med.drafts import write_durably
from caps_med.images import CODECS

log = logging.getLogger("caps_med.projects")

#: A file younger than this many seconds may not have its record yet.
FRESH = 600.0
_FOLDER = re.compile(r"[0-9a-f]{32}")


class ProjectFiles:
    """The folder of one project.

    Args:
        root: the folder of all projects.
        project: the project's id.
    """

    def __init__(self, root: Path, project: str) -> None:
        self.folder = root / project

    def path(self, name: str) -> Path:
        """A file that `write` has named."""
        return self.folder / name

    def write(self, content: bytes, format: str) -> str:
        """Write a new file, which is on disk when this returns; its name.

        Raises:
            OSError: the disk is full, or cannot be written.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = f"{uuid.uuid4().hex}{CODECS[format].suffixes[0]}"
        write_durably(self.folder / name, content)
        return name

    def remove(self, *names: str) -> None:
        """Remove files, if they are there."""
        for name in names:
            (self.folder / name).unlink(missing_ok=True)


def sweep(root: Path, store: ProjectStore) -> None:
    """Remove what a killed service has left: folders without a project, files without a record."""
    for folder in _entries(root):
        if not (folder.is_dir() and _FOLDER.fullmatch(folder.name)) or _fresh(folder):
            continue
        if store.project(folder.name) is None:
            log.info("removed the folder of a project that is no more")
            shutil.rmtree(folder.path, ignore_errors=True)
            continue
        for file in _entries(Path(folder.path)):
            if not _fresh(file) and not store.has_file(file.name):
                log.info("removed a file without a record")
                Path(file.path).unlink(missing_ok=True)


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    with suppress(FileNotFoundError), os.scandir(folder) as found:  # deleted meanwhile
        yield from found


def _fresh(entry: os.DirEntry[str]) -> bool:
    try:
        return time.time() - entry.stat(follow_symlinks=False).st_mtime < FRESH
    except FileNotFoundError:  # removed meanwhile
        return True
