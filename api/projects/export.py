"""The corrected images of a project as a zip, streamed: one file is in memory at a time."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Literal

from anyio import to_thread

from api.engine import Engine
from api.problems import DATA_NOT_FIT, Refusal
from api.projects.label_maps import format_of
from api.projects.patience import patiently
from api.projects.records import Image, Project
from api.projects.service import Projects
from api.projects.store import ProjectStore
from api.projects.training_data import CASES_PAGE
from caps_med.images import CODECS, encode_image
from caps_med.images.channels import COLOURS

Layout = Literal["nnunet", "pairs"]

_UNSAFE = re.compile(r"[^A-Za-z0-9]+")
_LONGEST_STEM = 60


def check_exportable(store: ProjectStore, project: Project, layout: Layout) -> None:
    """Refuse what the layout cannot hold.

    Raises:
        Refusal: nothing is corrected, or pictures and volumes are mixed (422).
    """
    if not store.images(project.id, "corrected", 0, 1):
        raise Refusal(DATA_NOT_FIT, "no image is corrected yet")
    if layout == "nnunet" and len(store.dimensions(project.id)) > 1:
        detail = "nnU-Net takes either pictures or volumes, here are both: export layout=pairs"
        raise Refusal(DATA_NOT_FIT, detail)


async def archive(
    projects: Projects, engine: Engine, project: Project, layout: Layout
) -> AsyncIterator[bytes]:
    """The pieces of the zip.

    Images that are deleted meanwhile are left out.
    """
    stream = _Pieces()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as packed:
        count, ending, channels = 0, "", 1
        async for image in _corrected(projects, project):
            try:
                files = await patiently(engine, partial(_files, projects, engine, image, layout))
            except Refusal:  # deleted meanwhile
                continue
            for name, content in files:
                await to_thread.run_sync(_add, packed, name, content)
                for piece in stream.taken():
                    yield piece
            count, channels = count + 1, image.channels
            ending = CODECS[format_of(image)].suffixes[0]
        if layout == "nnunet":
            description = _description(project, count, ending, channels)
            _add(packed, "dataset.json", json.dumps(description, indent=2).encode())
    for piece in stream.taken():
        yield piece


async def _corrected(projects: Projects, project: Project) -> AsyncIterator[Image]:
    after = 0
    while page := await to_thread.run_sync(
        projects.store.images, project.id, "corrected", after, CASES_PAGE
    ):
        for image in page:
            yield image
        after = page[-1].number


async def _files(
    projects: Projects, engine: Engine, image: Image, layout: Layout
) -> list[tuple[str, bytes]]:
    """Name and content of an image and its label map."""
    label = await to_thread.run_sync(projects.annotations.label, image)
    form = format_of(image) if layout == "nnunet" else image.format
    content = await to_thread.run_sync(projects.images.content, image.project, image.file)
    if form != image.format:
        decoded = await engine.decode([content], "image")
        content = await engine.run("encode", lambda: encode_image(decoded, form))
    marked = await to_thread.run_sync(projects.images.content, image.project, label.file)
    suffix, kept = CODECS[form].suffixes[0], CODECS[format_of(image)].suffixes[0]
    stem = f"{_UNSAFE.sub('-', image.name.partition('.')[0])[:_LONGEST_STEM]}-{image.id[:8]}"
    if layout == "nnunet":
        named = f"imagesTr/{stem}_0000{suffix}", f"labelsTr/{stem}{kept}"
    else:
        named = f"images/{stem}{suffix}", f"labels/{stem}{kept}"
    return list(zip(named, (content, marked), strict=True))


def _description(project: Project, count: int, ending: str, channels: int) -> dict[str, object]:
    """What nnU-Net wants to know of a data set."""
    names = ("R", "G", "B") if channels == COLOURS else ("image",)
    return {
        "name": project.name,
        "channel_names": {str(i): name for i, name in enumerate(names)},
        "labels": {name: label for label, name in project.labels.items()},
        "numTraining": count,
        "file_ending": ending,
    }


def _add(packed: zipfile.ZipFile, name: str, content: bytes) -> None:
    packed.writestr(zipfile.ZipInfo(name), content)


class _Pieces(io.RawIOBase):
    """A file that is only written; what was written is taken away piece by piece."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, piece: object) -> int:
        content = bytes(piece)  # type: ignore[call-overload]  # any buffer
        self._pieces.append(content)
        return len(content)

    def taken(self) -> Iterator[bytes]:
        """What was written since the last call."""
        while self._pieces:
            yield self._pieces.pop(0)
