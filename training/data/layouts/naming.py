"""File names: stems, and whether a name is that of an image or of a label map."""

from __future__ import annotations

import os
import re
import stat
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, TypeVar

from caps_med.images import CODECS, names_beside
from caps_med.wording import as_text
from training.data.cases import Unpaired

#: Suffixes of the supported formats, longest first.
SUFFIXES = tuple(
    sorted({s for codec in CODECS.values() for s in codec.read_suffixes}, key=len, reverse=True)
)
#: Formats of images that are not read; files of any other kind are no images.
_UNREAD = (
    ".gif", ".webp", ".heic", ".jp2", ".j2k", ".pgm", ".ppm", ".pnm",
    ".img", ".img.gz", ".mgz", ".mgh", ".mnc", ".vtk", ".vti", ".czi", ".nd2",
    ".lif", ".oib", ".oif", ".lsm", ".svs", ".ndpi", ".mrxs", ".scn", ".vsi", ".h5", ".hdf5",
    ".mat",
)  # fmt: skip
#: Words at the end or beginning of a name that mark a label map or an image.
LABEL_WORDS = (
    r"segmentations?|d?segs?|masks?|labelmap|labels?|gt|ground[-_ ]?truth|annotations?|annot|"
    r"manual\d?|targets?|truth"
)
IMAGE_WORDS = r"images?|imgs?|originals?|orig|raw|inputs?|scans?|data"
#: Of one of several label maps of an image.
_NUMBER = re.compile(r"[-_ ]\d+$")
_DICOM_MAGIC_AT = 128
#: In the folder of each training, which holds pictures and arrays, but no cases.
PLANNED_RECIPE = "planned-recipe.json"

T = TypeVar("T")


class Entry(NamedTuple):
    """A file or DICOM series folder, with its stem: the path without the format suffix."""

    path: Path
    stem: str


def stem_of(path: Path) -> str:
    """The name without its format suffix: ``a.b.nii.gz`` -> ``a.b``, its accents composed.

    macOS writes names decomposed (an accent follows its letter), other systems composed.
    """
    path = Path(composed(str(path)))
    lower = path.name.lower()
    for suffix in SUFFIXES:
        if lower.endswith(suffix) and len(lower) > len(suffix):
            return path.name[: -len(suffix)]
    return path.stem if path.suffix[1:].isalpha() else path.name  # 1.2.840.113 has no suffix


def suffix_of(path: Path) -> str:
    """The format suffix that `stem_of` leaves out, in small letters."""
    return composed(path.name)[len(stem_of(path)) :].lower()


def name_of(folder: Path) -> str:
    """The name of a folder, also of one given as ``.``."""
    return composed(folder.name if folder.name not in ("", "..") else folder.resolve().name)


def written_suffix(path: Path) -> str:
    """The suffix for new files like an original: the same, but PNG for JPEG and NIfTI for DICOM.

    A pair of files becomes one.
    """
    suffix = suffix_of(path)
    if path.is_dir() or suffix in CODECS["dicom"].suffixes or _is_dicom(path):
        return ".nii.gz"
    for codec in CODECS.values():
        if suffix in codec.only_read:
            return codec.suffixes[0]
    return ".png" if suffix in ("", ".jpg", ".jpeg") else suffix


def is_image_name(path: Path) -> bool:
    """Whether the suffix belongs to a supported format."""
    return path.name.lower().endswith(SUFFIXES)


def is_series(folder: Path) -> bool:
    """Whether a folder directly holds DICOM files, before images of other formats."""
    files = visible_files(folder)
    first = next((file for file in files if is_image_name(file) or _is_dicom(file)), None)
    return first is not None and _is_dicom(first)


def visible_files(folder: Path) -> list[Path]:
    """The files in a folder itself, by name, but for hidden ones; none of an unreadable folder."""
    _, _, names = next(os.walk(folder), ("", [], []))
    files = (folder / name for name in sorted(names) if name[0] != ".")
    return [file for file in files if not is_pipe(file)]


def is_pipe(path: Path) -> bool:
    """Whether it is a pipe, a socket or a device: opening one can wait without end."""
    try:
        mode = path.stat().st_mode
    except OSError:  # reading it says why
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def visible_folders(folder: Path) -> list[Path]:
    """The folders in a folder itself, by name, but for hidden ones and those of trainings."""
    found = sorted(p for p in folder.iterdir() if p.is_dir() and p.name[0] != ".")
    return [one for one in found if not any(one.glob(f"*/{PLANNED_RECIPE}"))]


def entries(folder: Path, *, deep: bool = True) -> tuple[list[Entry], list[Unpaired]]:
    """The images below a folder, with stems relative to it, and those that cannot be read.

    Links are followed, but not those that lead back. Folders of trainings are not entered: they may
    be in that of the data.
    """
    found: list[Entry] = []
    unusable: list[Unpaired] = []
    above: dict[Path, frozenset[str]] = {}

    def unreadable(error: OSError) -> None:
        what = f"cannot be opened: {error.strerror}"
        unusable.append(Unpaired(Path(error.filename), what, "grant yourself read permission"))

    for parent, folders, files in os.walk(folder, onerror=unreadable, followlinks=True):
        here, real = Path(parent), os.path.realpath(parent)
        ways = above.get(here.parent, frozenset())
        if real in ways or PLANNED_RECIPE in files:
            folders.clear()
            continue
        above[here] = ways | {real}
        folders[:] = sorted(f for f in folders if f[0] != ".") if deep or here == folder else []
        series = [f for f in folders if is_series(here / f)]
        folders[:] = [f for f in folders if f not in series] if deep else []
        found += [Entry(here / f, _relative(here / f, folder, f)) for f in series]
        for path in sorted(here / f for f in files if f[0] != "."):
            if is_pipe(path):
                if is_image_name(path):
                    unusable.append(Unpaired(path, "is a pipe or a device", "remove it"))
            elif is_image_name(path) or _is_dicom(path):
                found.append(Entry(path, _relative(path, folder, stem_of(path))))
            elif path.name.lower().endswith(_UNREAD):
                what = f"is not in a supported format ({', '.join(CODECS)})"
                unusable.append(Unpaired(path, what, "convert it or remove it from the folder"))
    beside = {e.path.with_name(name) for e in found for name in names_beside(e.path.name)}
    return found, [one for one in unusable if one.path not in beside]


def is_label_name(stem: str) -> bool:
    """Whether a stem marks a label map."""
    return without(LABEL_WORDS, stem) != stem


def without(words: str, stem: str) -> str:
    """A stem without one of `words` at its end, else at its beginning: ``a/x_seg`` -> ``a/x``."""
    parent, slash, name = stem.rpartition("/")
    shorter = re.sub(rf"(?:^|[-_. ]+)(?:{words})$", "", name, flags=re.IGNORECASE)
    if shorter == name:
        shorter = re.sub(rf"^(?:{words})(?:[-_. ]+|(?=\d))", "", name, flags=re.IGNORECASE)
    return parent + slash + shorter if shorter else parent


def unnumbered(stem: str) -> str:
    """A stem without the number at its end: ``x_mask_1`` -> ``x_mask``."""
    return _NUMBER.sub("", stem)


def by_key(items: Iterable[T], key: Callable[[T], str]) -> dict[str, list[T]]:
    """Items grouped by key, in order."""
    groups: dict[str, list[T]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return dict(groups)


def composed(name: str) -> str:
    """A name in Unicode's composed form (NFC), as it can be written into tables."""
    return as_text(unicodedata.normalize("NFC", name))


def as_on_disk(path: Path) -> Path:
    """A path with the accents of its names as they are on disk; itself if it is not there.

    A list that was written on Windows separates names by backslashes.
    """
    if path.exists():
        return path
    if "\\" in (text := str(path)):
        other = as_on_disk(Path(text.replace("\\", "/")))
        return other if other.exists() else path
    found = Path(path.anchor)
    for part in path.parts[len(found.parts) :]:
        here = found / part
        if not here.exists() and found.is_dir():
            alike = (other for other in found.iterdir() if composed(other.name) == composed(part))
            here = next(alike, here)
        found = here
    return found if found.exists() else path


def _relative(path: Path, folder: Path, stem: str) -> str:
    return composed(path.parent.joinpath(stem).relative_to(folder).as_posix())


def _is_dicom(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(_DICOM_MAGIC_AT + 4)[_DICOM_MAGIC_AT:] == b"DICM"
    except OSError:
        return False
