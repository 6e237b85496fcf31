"""The cases of a data set, each an image and its label map, before any pixels are read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Self, TypeAlias

from caps_med.errors import InvalidInput
from caps_med.images import LabelCode, names_beside
from caps_med.wording import listed

#: What label ids are learned as: as classes, or of instances their foreground, or that with the
#: borders between touching objects.
Instances = Literal["classes", "binary", "borders"]

#: The part of a data set that an image was published in.
Part: TypeAlias = Literal["train", "validation", "test"]

#: Names of parts in folders, files and lists.
PARTS: Mapping[str, Part] = {
    "train": "train",
    "training": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "dev": "validation",
    "test": "test",
    "testing": "test",
    "t10k": "test",
}

#: What nnU-Net's descriptions call a label of voxels that are not labelled.
IGNORE = "ignore"

#: Most names listed in an error message; the rest are counted.
_LISTED = 10


@dataclass(frozen=True)
class FileRef:
    """A file, one picture in a stack, or a folder of masks that are one label map.

    Attributes:
        path: the file, or the folder of a DICOM series or of masks.
        index: the picture in an npy stack ``[N, H, W(, C)]`` or a multi-page TIFF; None for the
            whole file.
        objects: of a label map that is a folder of masks, one for each object: the masks.
    """

    path: Path
    index: int | None = None
    objects: tuple[Path, ...] = ()

    @property
    def file(self) -> Path:
        """The path, or the first of masks, whose format the others have."""
        return self.objects[0] if self.objects else self.path

    def __str__(self) -> str:
        """The file's name, with the picture's index in a stack and the folder above masks."""
        if self.objects:
            return f"{self.path.parent.name}/{self.path.name}"
        return self.path.name if self.index is None else f"{self.path.name}[{self.index}]"


@dataclass(frozen=True)
class Case:
    """One labelled image.

    Attributes:
        name: unique within the data set; the file stem without words such as ``_seg``.
        images: one file, or one per channel (nnU-Net's ``_0000``, ``_0001``).
        label: its label map.
        group: cases of one group (a patient, a volume) must not be split between training and
            validation; the case's own name by default.
        segments: of a label map that is a DICOM SEG: number, label id and name of each segment; see
            `training.data.segments`.
        part: as the user divided the data: "train" or "validation"; None where they are not
            divided. Test cases are left out when a data set is found.
        folds: numbers of the folds of a cross-validation, counted from 0, in which it is held out,
            as far as the data give folds.
    """

    name: str
    images: tuple[FileRef, ...]
    label: FileRef
    group: str = ""
    segments: tuple[tuple[int, int, str], ...] = ()
    part: Part | None = None
    folds: tuple[int, ...] = ()

    @property
    def grouped(self) -> str:
        """The group, or the case's name if it has none."""
        return self.group or self.name


@dataclass(frozen=True)
class Unpaired:
    """A file that belongs to no case, `what` is wrong with it, and how to `fix` it."""

    path: Path
    what: str
    fix: str


@dataclass(frozen=True)
class Cases:
    """A data set found on disk.

    Attributes:
        name: the name of the folder or list.
        root: its path.
        layout: the detected layout, described for the user.
        cases: sorted by name.
        labels: label id -> name, if the layout has names (``dataset.json``); else empty.
        channels: names of the image channels, if the layout has them; else empty.
        unpaired: files that cannot be used, and why.
        strangers: files beside the cases that are no images, such as notes and ``Thumbs.db``.
        instances: what the label ids are learned as; None for classes, unless they look like
            instances, which the check then reports.
        codes: label id -> what it stands for, where label maps are DICOM SEG.
        chosen_channels: whether the user chose the names of the channels.
        ignored: value in label maps of what is not labelled, which is left out where segmentation
            is learned and scored; None if there is none.
        has_test: whether the user divided the data and there is a test part, which is left out.
        error: why no layout applies, in which case there are no cases; else empty.
    """

    name: str
    root: Path
    layout: str
    cases: tuple[Case, ...]
    labels: Mapping[int, str] = field(default_factory=dict)
    channels: tuple[str, ...] = ()
    unpaired: tuple[Unpaired, ...] = ()
    strangers: tuple[Path, ...] = ()
    instances: Instances | None = None
    codes: Mapping[int, LabelCode] = field(default_factory=dict)
    chosen_channels: bool = False
    ignored: int | None = None
    has_test: bool = False
    error: str = ""

    def require_complete(self) -> Self:
        """Return the data set if every file has a counterpart.

        Raises:
            InvalidInput: no layout applies, there are no cases, or a file has no counterpart.
        """
        if self.error:
            raise InvalidInput(self.error)
        if self.unpaired:
            first, names = self.unpaired[0], [u.path.name for u in self.unpaired]
            raise InvalidInput(
                f"{self.root}: files without a counterpart: {listed(names, _LISTED)}. "
                f"{first.path.name}: {first.what}: {first.fix}"
            )
        if not self.cases:
            but = " but those of a test part; to use them, take their part away" * self.has_test
            raise InvalidInput(f"{self.root}: contains no labelled images{but} ({self.layout})")
        return self

    def fingerprint(self) -> list[list[str | int]]:
        """Path, size and modification time (ns) of every file."""
        paths = {ref.path for case in self.cases for ref in (*case.images, case.label)}
        return files_at_present({file for path in paths for file in files_of(path)})


def given_folds(held_out: Iterable[tuple[str, Iterable[int]]]) -> tuple[frozenset[str], ...]:
    """What is held out in each fold that the data give; empty if they give none.

    >>> [sorted(fold) for fold in given_folds([("a", [0]), ("b", [1]), ("a", [1]), ("c", [])])]
    [['a'], ['a', 'b']]

    Args:
        held_out: groups, with the folds in which one of their cases is held out.
    """
    folds: dict[int, set[str]] = {}
    for group, numbers in held_out:
        for number in numbers:
            folds.setdefault(number, set()).add(group)
    return tuple(frozenset(folds.get(number, ())) for number in range(max(folds, default=-1) + 1))


def files_of(path: Path) -> list[Path]:
    """The files of one image: of a DICOM series those of its folder, of a header the voxels, too.

    Not all of them need exist.
    """
    if path.is_dir():
        return list(path.iterdir())
    return [path, *(path.with_name(name) for name in names_beside(path.name))]


def files_at_present(files: Iterable[Path]) -> list[list[str | int]]:
    """Path, size and modification time (ns) of those files that exist, in the order of paths."""
    stats = [(file, file.stat()) for file in sorted(files) if file.exists()]
    return [[str(file), stat.st_size, stat.st_mtime_ns] for file, stat in stats]


def files_sha256(fingerprint: Iterable[Sequence[str | int]]) -> str:
    """A hash of files by name, size and time, in whatever folder they are; empty for no files.

    Args:
        fingerprint: see `files_at_present`.
    """
    found = sorted([Path(str(path)).name, *more] for path, *more in fingerprint)
    return hashlib.sha256(json.dumps(found).encode()).hexdigest() if found else ""
