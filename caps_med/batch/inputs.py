"""Find cases in folders, patterns, lists and files; other files are skipped and listed."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from caps_med.arguments import as_list
from caps_med.batch.cases import CHANNEL, Case, split_suffix
from caps_med.batch.places import (
    absolute,
    common_folder,
    each,
    head_of,
    matching,
    objects_below,
    place_of,
)
from caps_med.batch.series import header_of
from caps_med.errors import InvalidInput
from caps_med.images import CODECS, Kind, names_beside
from caps_med.images.codecs.dicom_headers import Header
from caps_med.images.series import Series, series_of
from caps_med.wording import as_text, counted

if TYPE_CHECKING:
    from upath import UPath

    from caps_med.batch.places import Place

#: Suffixes of a text file that lists inputs, one a line.
LIST_SUFFIXES = (".txt", ".lst")
_START = 2**10
#: Why a list is skipped: what the shell makes of a pattern may be other text files, too.
_LIST_AMONG_OTHERS = "a text file; as a list of inputs it must be the only input"


@dataclass(frozen=True)
class Skipped:
    """A file that is not an input.

    Attributes:
        path: relative to the common folder of all inputs.
        reason: why it is skipped.
    """

    path: str
    reason: str


@dataclass(frozen=True)
class Found:
    """All cases ordered by name, and the skipped files."""

    cases: tuple[Case, ...]
    skipped: tuple[Skipped, ...]


def find_cases(
    inputs: str | Path | Sequence[str | Place],
    *,
    kind: Kind = "image",
    channels: int = 0,
    leave_out: Place | None = None,
) -> Found:
    """The cases in files, folders (with their subfolders), patterns and text lists.

    A file with the suffix of an image format is a case. The files of a DICOM series are one case;
    so are ``a_0000.nii.gz``, ``a_0001.nii.gz``, ... if a model takes several channels. If it takes
    one, and all images of a folder are named like ``a_0000.nii.gz``, each file is the case ``a``,
    as in nnU-Net. Hidden files, other files and links that lead out of a folder are skipped.
    Outputs are named relative to the common folder of all inputs.

    Args:
        inputs: one or several: files, folders, patterns with ``*``, on this machine or as
            ``s3://bucket/prefix``; or one ``.txt`` or ``.lst`` file with one of these per line,
            relative to the list itself; ``#`` begins a comment.
        kind: "labels" also accepts DICOM SEG.
        channels: channels that the model takes; 0 without a model.
        leave_out: a folder that is neither searched nor matched by patterns: that of the
            outputs.

    Raises:
        InvalidInput: an input does not exist, or none of them contains an image.
    """
    inputs = as_list(inputs)
    paths = _expanded(inputs, leave_out)
    root = _common_folder(paths)
    walked = [
        (file, path)
        for path in paths
        for file in (_walk(path, leave_out) if path.is_dir() else [path])
    ]
    looks = each(lambda pair: _look(*pair), walked, lambda pair: pair[0])
    found = {file: look for (file, _), look in zip(walked, looks, strict=True) if look.is_input}
    beside = {file.with_name(name) for file in found for name in names_beside(file.name)}
    named = {absolute(place_of(given)) for given in inputs}
    lists = {path for path in named if path.suffix.lower() in LIST_SUFFIXES}
    passed = {  # each once, even where it lies in several of the given folders
        file: _LIST_AMONG_OTHERS if file in lists else look.reason
        for (file, _), look in zip(walked, looks, strict=True)
        if file not in found and file not in beside
    }
    skipped = [Skipped(as_text(_below(root, file)), reason) for file, reason in passed.items()]
    dicom = [(file, look.header) for file, look in found.items() if look.header is not None]
    images = [file for file, look in found.items() if look.header is None]
    series, others = series_of(dicom, kind)
    skipped += [Skipped(_below(root, file), reason) for file, reason in others]
    channels = channels if kind == "image" else 0
    cases = [*_picture_cases(images, root, channels), *_series_cases(series, root)]
    if not cases:
        names = ", ".join(str(each) for each in inputs)
        raise InvalidInput(f"{names}: no image found{_said(skipped)}")
    return Found(tuple(sorted(cases, key=lambda case: (case.name, case.input))), tuple(skipped))


def _said(skipped: Sequence[Skipped]) -> str:
    """How many files were skipped, and for which reasons."""
    if not skipped:
        return ""
    reasons = "; ".join(dict.fromkeys(one.reason for one in skipped))
    return f", {counted(len(skipped), 'other file')} skipped ({reasons})"


def _expanded(
    inputs: Sequence[str | Place], leave_out: Place | None, base: Place | None = None
) -> list[Place]:
    """Absolute paths of existing files and folders."""
    paths: list[Place] = []
    for given in inputs:
        path = absolute(place_of(given), base if isinstance(base, Path) else None)
        if base is not None and not isinstance(base, Path) and "://" not in str(given):
            path = base / str(given)
        if path.exists():
            paths.append(path)
        elif matches := matching(path):
            paths += _without(leave_out, path, matches)
        else:
            raise InvalidInput(f"{given}: no such file or folder")
    single = paths[0] if base is None and len(paths) == 1 and paths[0].is_file() else None
    if single is not None and single.suffix.lower() in LIST_SUFFIXES:
        return _expanded(_listed(single), leave_out, single.parent)
    return paths


def _without(folder: Place | None, pattern: Place, matches: list[Place]) -> list[Place]:
    """The matches that are not in that folder, unless the pattern itself lies there."""
    if folder is None:
        return matches
    hidden = folder.resolve()

    def lies_there(path: Place) -> bool:
        return hidden in (path.resolve(), *path.parent.resolve().parents, path.parent.resolve())

    return matches if lies_there(pattern) else [one for one in matches if not lies_there(one)]


def _listed(path: Place) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()  # with Notepad's mark or not
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"{path}: not a list of inputs, which is a UTF-8 text file with one input per line"
        ) from error
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


def _common_folder(paths: Sequence[Place]) -> Place:
    """The folder of a single input, or the common folder of several."""
    if not paths:
        raise InvalidInput("no input given: name files, folders or patterns")
    return common_folder({path if path.is_dir() else path.parent for path in paths})


def _walk(folder: Place, leave_out: Place | None) -> Iterator[Place]:
    """All files below a folder, ordered by name, and links to folders, which are not followed."""
    if isinstance(folder, Path):
        yield from _walk_here(folder, leave_out.resolve() if isinstance(leave_out, Path) else None)
        return
    for file in objects_below(folder):
        *parents, _ = _parts(folder, file)
        inside = leave_out is not None and leave_out in file.parents
        if not inside and not any(name.startswith(".") and name != ".." for name in parents):
            yield file


def _parts(folder: Place, file: Place) -> list[str]:
    """The path components below the folder; for an object, even those that no file can have."""
    if isinstance(file, Path):
        return list(file.relative_to(cast(Path, folder)).parts)
    below: str = file.path[len(cast("UPath", folder).path.rstrip("/")) + 1 :]
    return below.split("/")


def _walk_here(folder: Path, hidden: Path | None) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        here = Path(parent)
        folders.sort()
        links = [name for name in folders if (here / name).is_symlink()]
        yield from (here / name for name in links)
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".") and name not in links and (here / name).resolve() != hidden
        ]
        yield from (here / name for name in sorted(files))


@dataclass(frozen=True)
class _Look:
    """The result of inspecting a file.

    Attributes:
        reason: why it is not an input; empty if it is one.
        header: of a DICOM file.
    """

    reason: str
    header: Header | None = None

    @property
    def is_input(self) -> bool:
        return not self.reason


def _look(file: Place, given: Place) -> _Look:
    """Inspect a file; in a store, with one request.

    An image is recognized by its suffix, or as DICOM whatever its name, or, if named explicitly, by
    its content (including a zip, with a series or one image).

    Args:
        given: the folder in which it was found, or the file itself if named explicitly.
    """
    named = file == given
    name = file.name if named else "/".join(_parts(given, file))
    if name != as_text(name):
        return _Look("a name that is no text in UTF-8: rename it")
    if not named and (reason := _unfit(file, given)):
        return _Look(reason)
    if named and isinstance(file, Path) and file.exists() and not file.is_file():
        return _Look("not a file")  # a pipe, say, of a pattern: opening it can wait without end
    header = header_of(file)
    if header is None and not split_suffix(file.name)[1] and not (named and _is_image(file)):
        return _Look("not an image")
    return _Look("", header)


def _unfit(file: Place, folder: Place) -> str:
    """Why a file in a folder cannot be an input, whatever its content; empty if it can."""
    if {"", ".", ".."} & set(_parts(folder, file)):
        return "a name that leads out of the folder"
    if file.name.startswith("."):
        return "hidden"
    if file.is_symlink() and not _real(file).is_relative_to(_real(folder)):
        return "a link out of the folder"
    if not file.is_file():
        return "a link to a folder" if file.is_dir() else "not a file"
    return ""


def _real(file: Place) -> Path:
    """The target of links; for circular links, at which `Path.resolve` raises, one of them."""
    return Path(os.path.realpath(str(file)))


def _is_image(file: Place) -> bool:
    """Whether the content is that of an image."""
    start = head_of(file, _START)
    zipped = file.suffix.lower() == ".zip"
    return zipped or any(codec.recognises(start) for codec in CODECS.values())


def _picture_cases(files: Sequence[Place], root: Place, channels: int) -> Iterator[Case]:
    """One case for each file, or for each set of channel files."""
    grouped: dict[Place, dict[int, Place]] = defaultdict(dict)
    for file in files:
        stem, suffix = split_suffix(file.name)
        if match := CHANNEL.fullmatch(stem):
            grouped[file.with_name(match["case"] + suffix)][int(match["number"])] = file
    whole = {name: group for name, group in grouped.items() if len(group) == channels}
    if channels == 1:  # beside other names it may be the first picture of a series
        first = {group[0] for group in whole.values() if 0 in group}
        mixed = {file.parent for file in files if file not in first}
        whole = {name: group for name, group in whole.items() if name.parent not in mixed}
    in_groups = {file for group in whole.values() for file in group.values()}
    for file in files:
        if file not in in_groups:
            yield _case(file, (file,), root)
    for name, group in whole.items():
        yield _case(name, tuple(group[number] for number in sorted(group)), root)


def _case(file: Place, files: tuple[Place, ...], root: Place) -> Case:
    stem, suffix = split_suffix(file.name)
    name = _below(root, file.with_name(stem))
    return Case(name, files, _below(root, files[0]), suffix)


def _series_cases(series: Sequence[Series[Place]], root: Place) -> Iterator[Case]:
    """A series alone in its folder is named like the folder; one of several by its number."""
    in_folder = Counter(one.folder for one in series)
    for one in series:
        if len(one.files) == 1:
            yield _case(one.files[0], one.files, root)
            continue
        below = _below(root, one.folder)
        name = below if below != "." else one.folder.name or "series"
        if in_folder[one.folder] > 1:
            name = f"{'' if below == '.' else below + '/'}{one.label}"
        yield Case(name, one.files, below)


def _below(root: Place, path: Place) -> str:
    return "/".join(_parts(root, path)) or "."
