"""Copies of an image, which must not be on both sides of a split: files with the same content."""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from caps_med.errors import CapsMedError
from caps_med.images import names_beside
from training.data.cases import Cases, FileRef
from training.data.groups import joined
from training.data.stacks import read_reference

#: Bytes at the beginning, in the middle and at the end of files of one size that are compared
#: before all of them are.
_PROBE = 4096


def with_copies_joined(cases: Cases) -> Cases:
    """Cases whose images are copies of each other in one group, unless all would be in one."""
    marks = content_marks([case.images for case in cases.cases])
    groups = joined((case.grouped, mark) for case, mark in zip(cases.cases, marks, strict=True))
    moved = {group for group, into in groups.items() if group != into}
    if not moved or len({*groups.values()}) == 1:
        return cases
    return replace(
        cases,
        cases=tuple(
            replace(case, group=groups[case.grouped]) if case.grouped in moved else case
            for case in cases.cases
        ),
    )


def content_marks(images: Sequence[Sequence[FileRef]]) -> list[Hashable]:
    """Of each image, given by its files, what it shares with its copies and with no other image."""
    first = _firsts({file.path for files in images for file in files})
    return [tuple(replace(file, path=first[file.path]) for file in files) for files in images]


def _firsts(paths: Iterable[Path]) -> dict[Path, Path]:
    """Of each file the first of those with the same content.

    Folders and headers whose voxels are in another file are their own, as are images of one value,
    such as the outermost slices of volumes: they are alike, but no copies.
    """
    found = {path: Path(os.path.realpath(path)) for path in paths}
    alike: list[dict[Path, tuple[int, int]]] = [{}]
    for path in found:
        with suppress(OSError):
            if path.is_file() and not names_beside(path.name):
                stat = path.stat()
                alike[0][path] = stat.st_size, stat.st_mtime_ns
    for mark_of in (lambda _, size, __: size, _probe, _digest):
        alike = [part for files in alike for part in _divided(files, mark_of)]
    for files in alike:
        first = min(files)
        if _has_content(first, *files[first]):
            found.update(dict.fromkeys(files, found[first]))
    return found


def _divided(
    files: dict[Path, tuple[int, int]], mark_of: Callable[[Path, int, int], Hashable]
) -> Iterable[dict[Path, tuple[int, int]]]:
    """Files by their mark, without those that are alone with it or cannot be read."""
    by_mark: dict[Hashable, dict[Path, tuple[int, int]]] = defaultdict(dict)
    for path, stat in files.items():
        try:
            by_mark[mark_of(path, *stat)][path] = stat
        except OSError:
            continue
    return (part for part in by_mark.values() if len(part) > 1)


@lru_cache(maxsize=65_536)
def _probe(path: Path, size: int, changed: int) -> bytes:
    """Parts of a file of this size, last changed then."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for place in (0, size // 2, max(0, size - _PROBE)):
            file.seek(place)
            digest.update(file.read(_PROBE))
    return digest.digest()


@lru_cache(maxsize=65_536)
def _digest(path: Path, size: int, changed: int) -> bytes:
    """All of a file of this size, last changed then."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


@lru_cache(maxsize=65_536)
def _has_content(path: Path, size: int, changed: int) -> bool:
    """Whether an image has more than one value; of a file of several, or a broken one, yes."""
    try:
        array = read_reference(FileRef(path), "image").array
    except (CapsMedError, OSError, MemoryError):
        return True
    return bool((array != array.flat[0]).any())
