"""Files and folders that appear whole or not at all."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NAMES = f".{'[0-9a-f]' * 16}.draft"


@contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """Write under a hidden name beside `path`, then rename; after an error nothing is left.

    The hidden name does not grow with that of `path`: whatever name the file system takes can be
    written. A folder replaces the folder or file that is there.
    """
    draft = path.with_name(f".{secrets.token_hex(8)}.draft")
    try:
        yield draft
        if draft.is_dir():
            _remove(path)
        draft.replace(path)
    finally:
        _remove(draft)


def remove_drafts(folder: Path) -> None:
    """Delete what a killed process has left half written in a folder that no other writes to."""
    for draft in folder.glob(_NAMES):
        _remove(draft)


def _remove(draft: Path) -> None:
    if draft.is_dir():
        shutil.rmtree(draft, ignore_errors=True)
    draft.unlink(missing_ok=True)
