"""Images and label maps in two folders, or in one folder and distinguished by name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from caps_med.errors import InvalidInput
from caps_med.wording import listed
from training.data.cases import PARTS, Cases, Part, Unpaired
from training.data.layouts.naming import Entry, composed, entries, is_label_name, visible_folders
from training.data.layouts.pairing import Pairing, finished, paired

#: Words in folder names; a word for labels takes precedence (``image_masks`` holds labels).
_IMAGE_WORDS = frozenset(
    ("images", "image", "imgs", "img", "originals", "original", "orig", "inputs", "input", "raw",
     "scans", "scan")
)  # fmt: skip
_LABEL_WORDS = frozenset(
    ("labels", "label", "masks", "mask", "segmentations", "segmentation", "segs", "seg",
     "annotations", "annotation", "gt", "groundtruth", "truth", "targets", "target", "manual")
)  # fmt: skip
#: Used whatever other folders there are.
_USUAL = ("images", "labels")
#: Subsets of a data set that are read; a test set is left out.
READ_PARTS = {name: part for name, part in PARTS.items() if part != "test"}
#: Most folders that the name of a layout lists; the rest are counted.
_LISTED = 4
#: ``SegmentationClass`` and ``2d_images`` are two words each.
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def paired_folders(folder: Path) -> Cases | None:
    """``images/`` and ``labels/``, here or in ``train/`` and ``val/``.

    Raises:
        InvalidInput: several folders could contain the images or the label maps.
    """
    pairs = folder_pairs(folder)
    return _of_pairs(folder, pairs) if pairs else None


def pairs_in_subfolders(folder: Path) -> Cases | None:
    """``images/`` and ``masks/`` in subfolders, of patients or findings, where they match."""
    below = (pair_in(one) for one in visible_folders(folder) if one.name.lower() not in PARTS)
    cases = _of_pairs(folder, [pair for pair in below if pair is not None])
    return cases if cases.cases else None


def pair_in(folder: Path) -> tuple[Path, Path] | None:
    """The folders of images and of their label maps in a folder, if it is clear which these are."""
    try:
        return next(_pairs(folder), None)
    except InvalidInput:
        return None


def _of_pairs(folder: Path, pairs: Sequence[tuple[Path, Path]]) -> Cases:
    """The cases in pairs of folders, named with the subfolder of a pair that is no part."""
    names = listed(
        [
            " and ".join(f"{p.relative_to(folder).as_posix()}/" for p in pair) for pair in pairs
        ], _LISTED,
    )  # fmt: skip
    found = Pairing([], [])
    unusable: list[Unpaired] = []
    for images, labels in pairs:
        (left, unusable_left), (right, unusable_right) = entries(images), entries(labels)
        pairing = _parted(paired(_without_tests(left), _without_tests(right)))
        unusable += [*unusable_left, *unusable_right]
        below = images.parent.name if images.parent != folder else ""
        part = READ_PARTS.get(below.lower())
        above = f"{composed(below)}/" if below and part is None else ""
        cases = [replace(c, name=f"{above}{c.name}", part=part or c.part) for c in pairing.cases]
        found = Pairing(found.cases + cases, found.unpaired + pairing.unpaired, pairing.channels)
    whole = _as_cases(folder, f"folders {names}", found, unusable)
    return replace(whole, has_test=any(map(_has_test, (folder, *(images for images, _ in pairs)))))


def folder_pairs(folder: Path) -> list[tuple[Path, Path]]:
    """Folders of images, each with that of their label maps, by their names.

    Raises:
        InvalidInput: several folders could contain the images or the label maps.
    """
    return list(_pairs(folder)) or [
        pair
        for part in visible_folders(folder)
        if part.name.lower() in READ_PARTS
        for pair in _pairs(part)
    ]


def one_folder(folder: Path) -> Cases | None:
    """Label maps next to their images, named like ``a_seg``; also one folder per case."""
    every, unusable = entries(folder)
    found = _without_tests(every)
    labels = [entry for entry in found if is_label_name(entry.stem)]
    images = [entry for entry in found if not is_label_name(entry.stem)]
    pairing = _parted(paired(images, labels))
    if not pairing.cases:
        return None
    whole = _as_cases(folder, "label maps next to their images", pairing, unusable)
    return replace(whole, has_test=_has_test(folder))


def _has_test(folder: Path) -> bool:
    return any(PARTS.get(one.name.lower()) == "test" for one in visible_folders(folder))


def _without_tests(found: Iterable[Entry]) -> list[Entry]:
    """The files but for those in a folder ``test/``."""
    return [entry for entry in found if _part_of(entry.stem) != "test"]


def _parted(pairing: Pairing) -> Pairing:
    """The cases in ``train/`` and ``val/`` with that part, which is left out of their names."""
    cases = [
        replace(case, name=case.name.partition("/")[2], part=part)
        if (part := _part_of(case.name))
        else case
        for case in pairing.cases
    ]
    return pairing._replace(cases=cases)


def _part_of(stem: str) -> Part | None:
    folder, slash, _ = stem.partition("/")
    return PARTS.get(folder.lower()) if slash else None


def no_label_maps(path: Path) -> str:
    """A sentence that says so, if there are images without anything that looks like labels."""
    found = entries(path)[0] if path.is_dir() else []
    if not found or any(_of_labels(entry.path.relative_to(path)) for entry in found):
        return ""
    return "There are images, but no label maps."


def _of_labels(path: Path) -> bool:
    stem = path.name.partition(".")[0]
    return is_label_name(stem) or any(_words(folder) & _LABEL_WORDS for folder in path.parents)


def _as_cases(folder: Path, layout: str, pairing: Pairing, unusable: list[Unpaired]) -> Cases:
    return Cases(
        folder.name,
        folder,
        layout,
        finished(pairing.cases),
        channels=pairing.channels,
        unpaired=(*pairing.unpaired, *unusable),
    )


def _pairs(folder: Path) -> Iterator[tuple[Path, Path]]:
    """The folder of images and the folder of label maps, if both exist."""
    candidates = visible_folders(folder)
    by_name = {candidate.name.lower(): candidate for candidate in candidates}
    if all(name in by_name for name in _USUAL):
        yield by_name[_USUAL[0]], by_name[_USUAL[1]]
        return
    labels = [c for c in candidates if _words(c) & _LABEL_WORDS]
    images = [c for c in candidates if c not in labels and _words(c) & _IMAGE_WORDS]
    if not (images and labels):
        return
    for kind, found in (("images", images), ("label maps", labels)):
        if len(found) > 1:
            raise InvalidInput(
                f"{folder}: several folders could contain the {kind}: "
                f"{', '.join(f.name for f in found)}"
                "\nrename the two to use to images and labels, or give a list"
            )
    yield images[0], labels[0]


def _words(folder: Path) -> set[str]:
    return {word.lower() for word in _WORD.findall(folder.name)}
