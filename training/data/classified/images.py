"""The images of a data set and their classes, before any pixels are read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from training.data.cases import FileRef, Part, Unpaired, files_at_present, files_of
from training.data.copies import content_marks
from training.data.groups import joined, whole_of
from training.data.layouts.naming import composed, is_pipe, stem_of
from training.data.patients import patient_of


class Found(NamedTuple):
    """One image as a layout finds it, with the names of its classes."""

    name: str
    image: FileRef
    classes: tuple[str, ...]
    group: str = ""
    part: Part | None = None
    folds: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ClassifiedImage:
    """One image and its classes.

    Attributes:
        name: unique within the data set.
        image: its file, or its place in a file of many.
        classes: indices into the names of the data set's classes; exactly one if they exclude one
            another.
        group: images of one group (a patient) must not be split between training and validation;
            empty for an image on its own.
        part: as published; None if the data set is not divided.
        folds: see `training.data.cases.Case`.
    """

    name: str
    image: FileRef
    classes: tuple[int, ...]
    group: str = ""
    part: Part | None = None
    folds: tuple[int, ...] = ()


@dataclass(frozen=True)
class ClassifiedImages:
    """A data set found on disk.

    Attributes:
        name: of the folder or file.
        root: its path.
        layout: the detected layout, described for the user.
        images: in the order in which they were found.
        classes: the names of the classes.
        exclusive: whether each image belongs to exactly one class.
        unusable: files and entries of lists that cannot be used, and why.
        error: why no layout applies, in which case there are no images; else empty.
        strangers: other files, which are ignored.
    """

    name: str
    root: Path
    layout: str
    images: tuple[ClassifiedImage, ...]
    classes: tuple[str, ...]
    exclusive: bool = True
    unusable: tuple[Unpaired, ...] = ()
    error: str = ""
    strangers: tuple[Path, ...] = ()

    def of(self, *parts: Part | None) -> tuple[ClassifiedImage, ...]:
        """The images of some parts."""
        return tuple(image for image in self.images if image.part in parts)

    def fingerprint(self) -> list[list[str | int]]:
        """Path, size and modification time (ns) of every file."""
        paths = dict.fromkeys(image.image.path for image in self.images)
        return files_at_present(file for path in paths for file in files_of(path))


def files_by_part(folder: Path, name: re.Pattern[str]) -> dict[str, dict[str, Path]]:
    """Part of a data set -> kind of file -> the file in a folder.

    Args:
        name: matches the names of the files; its groups are ``part`` and ``kind``.
    """
    files: dict[str, dict[str, Path]] = {}
    for path in sorted(folder.iterdir()):
        if (match := name.match(path.name)) and not is_pipe(path):
            files.setdefault(match["part"].lower(), {})[match["kind"].lower()] = path
    return files


def collected(
    path: Path,
    layout: str,
    found: Iterable[Found],
    classes: Sequence[str] | None = None,
    unusable: Iterable[Unpaired] = (),
) -> ClassifiedImages:
    """What a layout found as a data set, with patients also from names such as ``p1_slice03``.

    Args:
        classes: the names of all classes in their order; None sorts those of the images.
    """
    listed = _with_patients(list(found))
    if classes is None:
        classes = sorted({name for each in listed for name in each.classes}, key=natural)
    index = {name: k for k, name in enumerate(classes)}
    sets = {each.classes: tuple(sorted(index[name] for name in each.classes)) for each in listed}
    images = tuple(
        ClassifiedImage(f.name, f.image, sets[f.classes], f.group, f.part, f.folds) for f in listed
    )
    return ClassifiedImages(
        name=composed(path.stem if path.is_file() else path.resolve().name),
        root=path,
        layout=layout,
        images=images,
        classes=tuple(classes),
        exclusive=all(len(each) == 1 for each in sets.values()),
        unusable=tuple(unusable),
    )


def _with_patients(found: list[Found]) -> list[Found]:
    """Images without a patient get the one that their names say, joined where DICOM files have one
    Patient ID, unless none of the classes would have two: names such as ``benign_patch_1`` say the
    class.
    """
    guessed = [
        f if f.group or f.image.index is not None
        else f._replace(group=whole_of(stem_of(f.image.path)))
        for f in found
    ]  # fmt: skip
    free = [number for number, f in enumerate(found) if not f.group]
    possible = (_joined(guessed, free), guessed)
    return next(
        (some for some in possible if _several_groups((f.classes, f.group) for f in some)), found
    )


def _joined(found: Sequence[Found], free: Iterable[int]) -> list[Found]:
    """Images, those of one Patient ID in one group.

    Args:
        free: numbers of the images of which nobody has said whose they are.
    """
    own = {number: found[number].group or found[number].name for number in free}
    groups = joined((group, patient_of(found[number].image)) for number, group in own.items())
    members = Counter(groups.values())
    grouped = list(found)
    for number, group in own.items():
        if members[groups[group]] > 1:
            grouped[number] = found[number]._replace(group=groups[group])
    return grouped


def groups_with_copies(images: Sequence[ClassifiedImage]) -> list[str]:
    """The group of each image, in which its copies are, too; "" for an image on its own.

    The patients alone, if otherwise none of the classes would have two groups.
    """
    own = [image.group or image.name for image in images]
    marks = content_marks([(image.image,) for image in images])
    into = joined(zip(own, marks, strict=True))
    members = Counter(into[group] for group in own)
    groups = [
        into[group] if image.group or members[into[group]] > 1 else ""
        for image, group in zip(images, own, strict=True)
    ]
    pairs = zip([image.classes for image in images], groups, strict=True)
    return groups if _several_groups(pairs) else [image.group for image in images]


def _several_groups(found: Iterable[tuple[Sequence[Hashable], str]]) -> bool:
    """Whether one of the classes has images of several groups.

    Args:
        found: classes and group of each image; "" for an image on its own.
    """
    groups: dict[Hashable, set[str]] = {}
    for number, (classes, group) in enumerate(found):
        for name in classes:
            groups.setdefault(name, set()).add(group or f"\0{number}")
    return any(len(known) > 1 for known in groups.values())


def natural(name: str) -> list[tuple[int, int | str]]:
    """A key for sorting names that sorts ``stage 2`` before ``stage 10``."""
    parts = re.split(r"(\d+)", name.casefold())
    return [(0, int(p)) if p.isdecimal() and len(p) < 10 else (1, p) for p in parts]
