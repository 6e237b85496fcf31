"""What the names of files say: stems, roles, and which image and label map belong together."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import NamedTuple, TypeVar

from caps_med.images import CODECS
from training.datasets.cases import Case, FileRef, Unpaired

#: Suffixes of the formats that are read, the longest first.
SUFFIXES = tuple(
    sorted({s for codec in CODECS.values() for s in codec.suffixes}, key=len, reverse=True)
)
#: Files that lie beside images and are none: notes, tables, programs.
_BESIDE = frozenset(
    (".txt", ".md", ".json", ".csv", ".tsv", ".xml", ".db", ".ini", ".pdf", ".html", ".py", ".yaml",
     ".yml", ".log", ".xlsx", ".docx", ".zip")
)  # fmt: skip
_LABEL_WORDS = (
    r"segmentations?|segs?|masks?|labelmap|labels?|gt|ground[-_ ]?truth|annotations?|annot|"
    r"manual\d?|targets?|truth"
)
_IMAGE_WORDS = r"images?|imgs?|originals?|orig|raw|inputs?|scans?|data"
#: What follows the name of a patient or a volume in the name of a part of it.
_PART = re.compile(r"[-_ ](?:slices?|sl|z|frame|tile|patch|look|aug)[-_ ]?\d+$", re.IGNORECASE)
_DICOM_MAGIC_AT = 128

T = TypeVar("T")


class Entry(NamedTuple):
    """A file, or the folder of a DICOM series, with its stem: the path without format suffix."""

    path: Path
    stem: str


def stem_of(path: Path) -> str:
    """The name without its format's suffix: ``a.b.nii.gz`` -> ``a.b``."""
    lower = path.name.lower()
    for suffix in SUFFIXES:
        if lower.endswith(suffix) and len(lower) > len(suffix):
            return path.name[: -len(suffix)]
    return path.stem


def is_image_name(path: Path) -> bool:
    """Whether the suffix is of a format that is read."""
    return path.name.lower().endswith(SUFFIXES)


def is_series(folder: Path) -> bool:
    """Whether a folder directly holds DICOM files."""
    if not folder.is_dir():
        return False
    files = sorted(p for p in folder.iterdir() if p.is_file() and p.name[0] != ".")
    return bool(files) and _is_dicom(files[0])


def entries(folder: Path, *, deep: bool = True) -> tuple[list[Entry], list[Unpaired]]:
    """The images below a folder, stems relative to it, and the files of unknown formats."""
    found, strange = [], []
    for parent, folders, files in os.walk(folder):
        here = Path(parent)
        folders[:] = sorted(f for f in folders if f[0] != ".") if deep or here == folder else []
        series = [f for f in folders if is_series(here / f)]
        folders[:] = [f for f in folders if f not in series] if deep else []
        found += [Entry(here / f, _relative(here / f, folder, f)) for f in series]
        for path in sorted(here / f for f in files if f[0] != "."):
            if is_image_name(path) or (not path.suffix and _is_dicom(path)):
                found.append(Entry(path, _relative(path, folder, stem_of(path))))
            elif path.suffix.lower() not in _BESIDE:
                what = f"is of no format that is read ({', '.join(CODECS)})"
                strange.append(Unpaired(path, what, "convert it, or take it out of the folder"))
    return found, strange


def is_label_name(stem: str) -> bool:
    """Whether a stem says that this is a label map."""
    return without(_LABEL_WORDS, stem) != stem


def without(words: str, stem: str) -> str:
    """A stem without a word at its end, else at its beginning: ``a/x_seg`` -> ``a/x``."""
    parent, slash, name = stem.rpartition("/")
    shorter = re.sub(rf"(?:^|[-_. ]+)(?:{words})$", "", name, flags=re.IGNORECASE)
    if shorter == name:
        shorter = re.sub(rf"^(?:{words})(?:[-_. ]+|(?=\d))", "", name, flags=re.IGNORECASE)
    return parent + slash + shorter if shorter else parent


class _Reading(NamedTuple):
    """One way to read names: which words are left out of an image's and of a label map's."""

    image_words: tuple[str, ...]
    label_words: tuple[str, ...]

    def image_name(self, entry: Entry) -> str:
        return reduce(lambda stem, words: without(words, stem), self.image_words, entry.stem)

    def label_name(self, entry: Entry) -> str:
        return reduce(lambda stem, words: without(words, stem), self.label_words, entry.stem)

    def image_key(self, entry: Entry) -> str:
        return self._key(self.image_name(entry))

    def label_key(self, entry: Entry) -> str:
        return self._key(self.label_name(entry))

    def _key(self, name: str) -> str:
        """Capitals count only where nothing is left out."""
        return name.casefold() if self.label_words else name


#: Tried one after another on the names that are left, the first in its own capitals.
_READINGS = (
    _Reading((), ()),
    _Reading((), (_LABEL_WORDS,)),
    _Reading((_IMAGE_WORDS,), (_LABEL_WORDS,)),
    _Reading((_IMAGE_WORDS,), (_LABEL_WORDS, _IMAGE_WORDS)),
)


def paired(images: Iterable[Entry], labels: Iterable[Entry]) -> tuple[list[Case], list[Unpaired]]:
    """Images with the label maps of the same name, and what stays alone.

    Names are equal, or equal without the words for images and label maps at an end, in any case.
    """
    left, right = list(images), list(labels)
    cases = []
    for reading in _READINGS:
        by_image, by_label = by_key(left, reading.image_key), by_key(right, reading.label_key)
        keys = {k for k in by_image if len(by_image[k]) == len(by_label.get(k, ())) == 1}
        for key in keys:
            image, label = by_image[key][0], by_label[key][0]
            name = reading.image_name(image) or image.stem
            cases.append(Case(name, (FileRef(image.path),), FileRef(label.path)))
        left = [entry for k, group in by_image.items() if k not in keys for entry in group]
        right = [entry for k, group in by_label.items() if k not in keys for entry in group]
    return cases, _alone(left, right)


def _alone(images: Sequence[Entry], labels: Sequence[Entry]) -> list[Unpaired]:
    """What to do about entries without a counterpart, or with too many."""
    by_image = by_key(images, _READINGS[-1].image_key)
    by_label = by_key(labels, _READINGS[-1].label_key)
    unpaired = []
    for own, others, kind, other in (
        (by_image, by_label, "image", "label map"), (by_label, by_image, "label map", "image")
    ):  # fmt: skip
        for key, group in own.items():
            for entry in group:
                rivals = [e.path.name for e in (*group, *others.get(key, ())) if e != entry]
                if others.get(key):
                    what = f"shares its name with {', '.join(rivals)}"
                    fix = "leave one image and one label map of each name"
                else:
                    what = f"has no {other} of its name"
                    fix = f"add the {other}, or take the {kind} out of the folder"
                unpaired.append(Unpaired(entry.path, what, fix))
    return unpaired


def finished(cases: Sequence[Case]) -> tuple[Case, ...]:
    """Cases sorted by unique names, those that are parts of one whole in one group."""
    counted = by_key(cases, lambda case: case.name)
    unique = [
        replace(case, name=case.name if len(same) == 1 else f"{case.name}-{number}")
        for same in counted.values()
        for number, case in enumerate(same, 1)
    ]
    return tuple(sorted(_grouped(unique), key=lambda case: case.name))


def _grouped(cases: list[Case]) -> list[Case]:
    """Groups from folders and from names such as ``p1_slice03``, unless all were one group."""
    parents = by_key(cases, lambda case: case.name.rpartition("/")[0])
    shared = {parent for parent, members in parents.items() if parent and len(members) > 1}
    guessed = []
    for case in cases:
        parent = case.name.rpartition("/")[0]
        group = case.group or (parent if parent in shared else _PART.sub("", case.name))
        guessed.append(replace(case, group="" if group == case.name else group))
    if len({case.grouped for case in guessed}) > 1 or any(case.group for case in cases):
        return guessed
    return cases


def by_key(items: Iterable[T], key: Callable[[T], str]) -> dict[str, list[T]]:
    """Items that have a key in common, in order."""
    groups: dict[str, list[T]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return dict(groups)


def _relative(path: Path, folder: Path, stem: str) -> str:
    return path.parent.joinpath(stem).relative_to(folder).as_posix()


def _is_dicom(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(_DICOM_MAGIC_AT + 4)[_DICOM_MAGIC_AT:] == b"DICM"
    except OSError:
        return False
