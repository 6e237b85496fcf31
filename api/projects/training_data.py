"""Corrected images in the layouts that `caps-med data check` knows."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from anyio import to_thread

from api.projects.annotations import Annotations
from api.projects.groups import groups_of
from api.projects.images import ProjectImages
from api.projects.records import Image
from caps_med.images import CODECS
from caps_med.inference import Model
from training.data.groups import group_numbers

#: Images that are looked up at a time.
CASES_PAGE = 500


async def write_cases(
    folder: Path,
    images: Sequence[Image],
    files: ProjectImages,
    annotations: Annotations,
    model: Model,
) -> None:
    """``images/`` and ``labels/`` below a new folder, by links where the disk can hold them.

    Images of one patient or volume are in a folder of their own, so that no training divides them.
    Colours for a grey `model`, and grey for a model of colours, are written as it takes them.
    """
    others: list[tuple[Image, Path]] = []

    def link() -> None:
        for image, number in zip(images, group_numbers(groups_of(images)), strict=True):
            label = annotations.label(image)
            path = annotations.path(image, label)
            _link(path, folder / "labels" / str(number) / f"{image.id}{''.join(path.suffixes)}")
            target = folder / "images" / str(number) / image.id
            if image.channels == model.image_reader.channels:
                source = files.files(image.project).path(image.file)
                _link(source, target.with_suffix(CODECS[image.format].suffixes[0]))
            else:
                others.append((image, target))

    await to_thread.run_sync(link)
    for image, target in others:
        form, content = await files.as_taken(image, model)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        await to_thread.run_sync(target.with_suffix(CODECS[form].suffixes[0]).write_bytes, content)


def _link(source: Path, target: Path) -> None:
    """Link, or copy to another disk: our files are never changed, only removed."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
