"""What the names of files say: stems, and whether they are images or label maps."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, TypeVar

from caps_med.images import CODECS
from training.data.cases import Unpaired

#: Suffixes of the formats that are read, the longest first.
SUFFIXES = tuple(
    sorted({s for codec in CODECS.values() for s in codec.suffixes}, key=len, reverse=True)
)
#: Files that lie beside images and are none: notes, tables, programs.
_BESIDE = frozenset(
    (".txt", ".md", ".json", ".csv", ".tsv", ".xml", ".db", ".ini", ".pdf", ".html", ".py", ".yaml",
     ".yml", ".log", ".xlsx", ".docx", ".zip")
)  # fmt: skip
#: Words that tell of a label map, or of an image, at the end or the beginning of a name.
LABEL_WORDS = (
    r"segmentations?|segs?|masks?|labelmap|labels?|gt|ground[-_ ]?truth|annotations?|annot|"
    r"manual\d?|targets?|truth"
)
IMAGE_WORDS = r"images?|imgs?|originals?|orig|raw|inputs?|scans?|data"
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
    return path.stem if path.suffix[1:].isalpha() else path.name  # 1.2.840.113 has no suffix


def written_suffix(path: Path) -> str:
    """Of new files like an original: its own; PNG or NIfTI where that is JPEG or DICOM."""
    suffix = path.name[len(stem_of(path)) :].lower()
    if path.is_dir() or suffix in CODECS["dicom"].suffixes or _is_dicom(path):
        return ".nii.gz"
    return ".png" if suffix in ("", ".jpg", ".jpeg") else suffix


def is_image_name(path: Path) -> bool:
    """Whether the suffix is of a format that is read."""
    return path.name.lower().endswith(SUFFIXES)


def is_series(folder: Path) -> bool:
    """Whether a folder directly holds DICOM files."""
    _, _, files = next(os.walk(folder), ("", [], []))  # of a closed folder: nothing
    seen = sorted(name for name in files if name[0] != ".")
    return bool(seen) and _is_dicom(folder / seen[0])


def entries(folder: Path, *, deep: bool = True) -> tuple[list[Entry], list[Unpaired]]:
    """The images below a folder, stems relative to it, and the files of unknown formats."""
    found: list[Entry] = []
    strange: list[Unpaired] = []

    def closed(error: OSError) -> None:
        what = f"cannot be entered: {error.strerror}"
        strange.append(Unpaired(Path(error.filename), what, "give yourself the right to read it"))

    for parent, folders, files in os.walk(folder, onerror=closed):
        here = Path(parent)
        folders[:] = sorted(f for f in folders if f[0] != ".") if deep or here == folder else []
        series = [f for f in folders if is_series(here / f)]
        folders[:] = [f for f in folders if f not in series] if deep else []
        found += [Entry(here / f, _relative(here / f, folder, f)) for f in series]
        for path in sorted(here / f for f in files if f[0] != "."):
            if path.suffix.lower() in _BESIDE:
                continue
            if is_image_name(path) or _is_dicom(path):
                found.append(Entry(path, _relative(path, folder, stem_of(path))))
            else:
                what = f"is of no format that is read ({', '.join(CODECS)})"
                strange.append(Unpaired(path, what, "convert it, or take it out of the folder"))
    return found, strange


def is_label_name(stem: str) -> bool:
    """Whether a stem says that this is a label map."""
    return without(LABEL_WORDS, stem) != stem


def without(words: str, stem: str) -> str:
    """A stem without a word at its end, else at its beginning: ``a/x_seg`` -> ``a/x``."""
    parent, slash, name = stem.rpartition("/")
    shorter = re.sub(rf"(?:^|[-_. ]+)(?:{words})$", "", name, flags=re.IGNORECASE)
    if shorter == name:
        shorter = re.sub(rf"^(?:{words})(?:[-_. ]+|(?=\d))", "", name, flags=re.IGNORECASE)
    return parent + slash + shorter if shorter else parent


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
