"""The corrected images of a project as a zip, streamed: one file is in memory at a time."""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np
from anyio import to_thread

from api.engine import Engine
from api.problems import DATA_NOT_FIT, Refusal
from api.projects.groups import group_of
from api.projects.label_maps import format_of
from api.projects.records import Image, LabelVersion, Project
from api.projects.retrying import retry_while_full
from api.projects.service import Projects
from api.projects.store import ProjectStore
from api.projects.training_data import CASES_PAGE
from caps_med.errors import ModelNotFound
from caps_med.images import CODECS, MedicalImage, encode_image
from caps_med.images.channels import COLOURS
from caps_med.images.labels import smallest_unsigned
from training.data.groups import group_numbers
from training.data.layouts.described import SPLITS
from training.data.reading import with_ids

Layout = Literal["nnunet", "pairs"]

_UNSAFE = re.compile(r"[^A-Za-z0-9]+")
_LONGEST_STEM = 60
#: Of nnU-Net's cross-validation.
_FOLDS = 5
#: Formats of pictures whose numbers PNG holds; floats, for one, it does not.
_LIKE_PNG = {"png", "jpeg", "bmp"}


def check_exportable(store: ProjectStore, project: Project, layout: Layout) -> None:
    """Refuse what the layout cannot hold.

    Raises:
        Refusal: nothing is corrected; pictures and volumes, or images of other channels, are mixed
            (422).
    """
    kinds = store.kinds(project.id)
    if not kinds:
        raise Refusal(DATA_NOT_FIT, "no image has been corrected yet: correct some, then export")
    if layout != "nnunet":
        return
    if len({axes for axes, _ in kinds}) > 1:
        detail = "nnU-Net takes either pictures or volumes, but here are both: export layout=pairs"
        raise Refusal(DATA_NOT_FIT, detail)
    if len(kinds) > 1:
        counts = " and ".join(str(channels) for _, channels in sorted(kinds))
        detail = (
            "nnU-Net takes images that all have the same channels, but there are images with "
            f"{counts} channels: export layout=pairs, or save all images with the same channels"
        )
        raise Refusal(DATA_NOT_FIT, detail)


async def archive(
    projects: Projects, engine: Engine, project: Project, layout: Layout
) -> AsyncIterator[bytes]:
    """The pieces of the zip.

    Images that are deleted meanwhile are left out, and of the layout nnunet those that are
    corrected meanwhile and of another kind than the first, or have numbers that its format may not
    hold.
    """
    stream = _Pieces()
    formats = await to_thread.run_sync(projects.store.formats, project.id)
    pictures = "png" if formats <= _LIKE_PNG else "tiff"
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as packed:
        first, groups = None, dict[str, str]()  # of the images by the stems of their files
        async for image in _corrected(projects, project):
            first = first or image
            form = None if layout == "pairs" else _form(image, pictures)
            if form and (_kind(image) != _kind(first) or not _holds(form, image)):
                continue
            try:
                files = await retry_while_full(
                    engine, partial(_files, projects, project, engine, image, form)
                )
            except Refusal:  # deleted meanwhile
                continue
            for name, content in files:
                await to_thread.run_sync(_add, packed, name, content)
                for piece in stream.taken():
                    yield piece
            groups[_stem(image)] = group_of(image)
        if layout == "nnunet" and first is not None:
            names = await _channel_names(engine, project, first)
            suffix = CODECS[_form(first, pictures)].suffixes[0]
            description = _description(project, names, len(groups), suffix)
            _add(packed, "dataset.json", json.dumps(description, indent=2).encode())
            if splits := _splits(groups, project.seed):
                _add(packed, SPLITS, json.dumps(splits, indent=2).encode())
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
    projects: Projects, project: Project, engine: Engine, image: Image, form: str | None
) -> list[tuple[str, bytes]]:
    """Name and content of an image, of nnU-Net's layout of each of its channels, and label map.

    Pictures are written anew for nnU-Net, which takes palettes for colours and an alpha channel for
    one more.

    Args:
        form: the format of nnU-Net's layout; None for pairs, which are as they are kept.
    """
    label = await to_thread.run_sync(projects.annotations.label, image)
    content = await to_thread.run_sync(projects.images.content, image.project, image.file)
    marked = await to_thread.run_sync(projects.images.content, image.project, label.file)
    stem, kept = _stem(image), format_of(image)
    if form is None:
        stem = f"{_folder(image)}{stem}"
        suffixes = [CODECS[one].suffixes[0] for one in (image.format, kept)]
        return [(f"images/{stem}{suffixes[0]}", content), (f"labels/{stem}{suffixes[1]}", marked)]
    contents = [content]
    if image.is_picture or image.format != form or image.channels > 1:
        decoded = await engine.decode([content], "image")
        parts = [decoded] if _in_one_file(image) else _channels(decoded)
        contents = [await engine.run("encode", partial(encode_image, one, form)) for one in parts]
    if image.is_picture or [*project.ids] != [*range(len(project.ids))]:
        counted = partial(_counted, projects, project, image, label, form)
        marked = await engine.run("encode", counted)
    suffix = CODECS[form].suffixes[0]
    named = [(f"imagesTr/{stem}_{k:04}{suffix}", one) for k, one in enumerate(contents)]
    return [*named, (f"labelsTr/{stem}{suffix}", marked)]


def _form(image: Image, pictures: str) -> str:
    """The format of an image in nnU-Net's layout, in which all files have one.

    Args:
        pictures: the format of pictures.
    """
    return pictures if image.is_picture else "nifti"


def _holds(form: str, image: Image) -> bool:
    """Whether a format surely holds the numbers of an image."""
    return form != "png" or image.format in _LIKE_PNG


def _stem(image: Image) -> str:
    return f"{_safe(image.name.partition('.')[0])}-{image.id[:8]}"


def _safe(name: str) -> str:
    return _UNSAFE.sub("-", name)[:_LONGEST_STEM]


def _folder(image: Image) -> str:
    """The folder of its patient or volume, which no training divides; "" if it is of none."""
    if not (group := group_of(image)):
        return ""
    return f"{_safe(group)}-{hashlib.sha256(group.encode()).hexdigest()[:8]}/"


def _kind(image: Image) -> tuple[int, int]:
    """Numbers of axes and of channels, as `ProjectStore.kinds` has them."""
    return len(image.shape), image.channels


def _in_one_file(image: Image) -> bool:
    """Whether nnU-Net wants all channels in one file: of grey, and of colour pictures."""
    return _kind(image) == (2, COLOURS) or image.channels == 1


def _counted(
    projects: Projects, project: Project, image: Image, label: LabelVersion, form: str
) -> bytes:
    """A label map with the places of its ids in `Project.ids`, which nnU-Net wants; in a picture as
    grey levels, without a palette.
    """
    places = {number: place for place, number in enumerate(project.ids)}
    found = with_ids(projects.annotations.read(image, label), places)
    counted = found.with_array(smallest_unsigned(found.array))
    return encode_image(replace(counted, kind="image") if image.is_picture else counted, form)


def _channels(image: MedicalImage) -> list[MedicalImage]:
    return [image.with_array(image.array[k : k + 1]) for k in range(len(image.array))]


async def _channel_names(engine: Engine, project: Project, image: Image) -> Sequence[str]:
    """What the channels of an image, and so of all, are called."""
    if image.channels == 1:
        return ("image",)
    if _in_one_file(image):
        return ("R", "G", "B")
    try:
        return (await engine.bundle(project.model)).card.shown_channels
    except ModelNotFound:  # it was deleted
        return [f"channel {n}" for n in range(1, image.channels + 1)]


def _description(
    project: Project, names: Sequence[str], count: int, suffix: str
) -> dict[str, object]:
    """What nnU-Net wants to know of a data set.

    It refuses ids that are not 0, 1, 2, ..., and another name of 0 than background.

    Args:
        names: of the channels.
        suffix: of all files.
    """
    return {
        "name": project.name,
        "channel_names": {str(i): name for i, name in enumerate(names)},
        "labels": {"background": 0}
        | {name: k for k, name in enumerate([*project.ids.values()][1:], start=1)},
        "numTraining": count,
        "file_ending": suffix,
    }


def _splits(groups: Mapping[str, str], seed: int) -> list[dict[str, list[str]]]:
    """Folds for nnU-Net's cross-validation that divide no patient or volume; none if any would do.

    Args:
        groups: of the images by the stems of their files; "" for an image of its own.
        seed: of the order of the groups.
    """
    numbers = group_numbers([*groups.values()])
    count = len(np.unique(numbers))
    if count in (1, len(groups)):
        return []
    folds = np.random.default_rng(seed).permutation(count)[numbers] % _FOLDS
    return [
        {
            "train": [stem for stem, fold in zip(groups, folds, strict=True) if fold != k],
            "val": [stem for stem, fold in zip(groups, folds, strict=True) if fold == k],
        }
        for k in range(min(_FOLDS, count))
    ]


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
