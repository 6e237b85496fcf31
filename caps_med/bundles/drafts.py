"""Hidden folders in the model repository, for models that are being written or deleted.

Unlike with `caps_med.drafts`, nothing is replaced: the second of two writers of one model gets the
next version.
"""

from __future__ import annotations

import shutil
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path

_DRAFT, _REMOVED = ".draft-", ".removed-"
#: After this many seconds without a new file, a hidden folder is that of a killed process.
ABANDONED = 3600.0


def new_draft(home: Path) -> Path:
    """A new empty hidden folder; those that killed processes left in `home` are deleted."""
    return _hidden(home, _DRAFT)


def remove_whole(folder: Path) -> None:
    """Delete a folder, which disappears under its name at a single moment."""
    removed = _hidden(folder.parent, _REMOVED)
    with suppress(OSError):
        make_writable(folder)
    folder.rename(removed / folder.name)
    shutil.rmtree(removed, ignore_errors=True)


def remove_left(home: Path, age: float = ABANDONED) -> None:
    """Delete the hidden folders in `home` that have had no new file for `age` seconds."""
    for kind in (_DRAFT, _REMOVED):
        for folder in home.glob(f"{kind}*"):
            with suppress(OSError):  # another process deletes it, too
                if time.time() - folder.stat().st_mtime >= age:
                    shutil.rmtree(folder)


def copy_writable(source: Path, target: Path) -> None:
    """Copy a folder without links that lead nowhere; the owner can change the copy even if the
    source is write-protected.
    """
    shutil.copytree(source, target, ignore_dangling_symlinks=True)
    make_writable(target)


def make_writable(folder: Path) -> None:
    """Let the owner change a folder and its contents."""
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | stat.S_IWUSR)


def _hidden(home: Path, prefix: str) -> Path:
    remove_left(home)
    return Path(tempfile.mkdtemp(prefix=prefix, dir=home))
