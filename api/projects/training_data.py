"""Corrected images in the layouts that `caps-med data check` knows."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from api.projects.annotations import Annotations
from api.projects.groups import groups_of
from api.projects.images import ProjectImages
from api.projects.records import Image
from caps_med.images import CODECS
from training.data.groups import group_numbers

#: Images that are looked up at a time.
CASES_PAGE = 500


def write_cases(
    folder: Path,
    images: Sequence[Image],
    files: ProjectImages,
    annotations: Annotations,
    channels: int,
) -> list[str]:
    """``images/`` and ``labels/`` below a new folder, by links where the disk can hold them.

    Images of one patient or volume are in a folder of their own, so that no training divides them.

    Returns:
        The images that have another number of channels than a model takes, as paths below `folder`.
    """
    others: list[str] = []
    for image, number in zip(images, group_numbers(groups_of(images)), strict=True):
        label = annotations.label(image)
        path = annotations.path(image, label)
        _link(path, folder / "labels" / str(number) / f"{image.id}{''.join(path.suffixes)}")
        name = f"images/{number}/{image.id}{CODECS[image.format].suffixes[0]}"
        _link(files.files(image.project).path(image.file), folder / name)
        if image.channels != channels:
            others.append(name)
    return others


def _link(source: Path, target: Path) -> None:
    """Link, or copy to another disk: our files are never changed, only removed."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
