"""Corrected images in the layouts that `caps-med data check` knows."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from api.projects.groups import groups_of
from api.projects.images import ProjectImages
from api.projects.records import Image, LabelVersion
from caps_med.images import CODECS
from training.data.groups import group_numbers

#: Images that are looked up at a time.
CASES_PAGE = 500
#: An image with the version of its label map that is learned.
Labelled = tuple[Image, LabelVersion]


def write_cases(
    folder: Path, cases: Sequence[Labelled], files: ProjectImages
) -> dict[str, Labelled]:
    """``images/`` and ``labels/`` below a new folder, by links where the disk can hold them.

    Images of one patient or volume are in a folder of their own, so that no training divides them.

    Returns:
        The cases by the paths of their images below `folder`, without those that have been deleted
        meanwhile.
    """
    written: dict[str, Labelled] = {}
    numbers = group_numbers(groups_of([image for image, _ in cases]))
    for (image, label), number in zip(cases, numbers, strict=True):
        path = files.files(image.project).path
        name = f"images/{number}/{image.id}{CODECS[image.format].suffixes[0]}"
        suffixes = "".join(Path(label.file).suffixes)
        try:
            _link(path(image.file), folder / name)
            _link(path(label.file), folder / "labels" / str(number) / f"{image.id}{suffixes}")
        except FileNotFoundError:
            (folder / name).unlink(missing_ok=True)  # if its label map alone is gone by now
            continue
        written[name] = image, label
    return written


def _link(source: Path, target: Path) -> None:
    """Link, or copy to another disk: our files are never changed, only removed."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
