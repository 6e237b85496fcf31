"""Images and label maps told apart by their folders, or by their names in one folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from training.datasets.cases import Cases
from training.datasets.layouts.naming import entries, finished, is_label_name, paired

#: Pairs of folder names, without capitals and signs.
_IMAGE_FOLDERS = frozenset(
    (
        "images",
        "image",
        "imgs",
        "img",
        "originals",
        "original",
        "orig",
        "inputs",
        "input",
        "raw",
        "scans",
        "scan",
    )
)
_LABEL_FOLDERS = frozenset(
    (
        "labels",
        "label",
        "masks",
        "mask",
        "segmentations",
        "segmentation",
        "segs",
        "seg",
        "annotations",
        "annotation",
        "gt",
        "groundtruth",
        "targets",
        "target",
        "truth",
    )
)
#: Parts of a data set that are all learned from. What is kept for a last test is not.
_PARTS = frozenset(("train", "training", "val", "valid", "validation"))


def paired_folders(folder: Path) -> Cases | None:
    """``images/`` and ``labels/``, here or in ``train/`` and ``val/``."""
    pairs = list(_pairs(folder)) or [
        pair for part in _folders(folder) if _plain(part) in _PARTS for pair in _pairs(part)
    ]
    if not pairs:
        return None
    cases, unpaired = [], []
    for images, labels in pairs:
        (left, strange), (right, odd) = entries(images), entries(labels)
        found, alone = paired(left, right)
        cases += found
        unpaired += [*alone, *strange, *odd]
    names = " and ".join(f"{p.relative_to(folder).as_posix()}/" for p in pairs[0])
    return Cases(folder.name, folder, f"folders {names}", finished(cases), unpaired=tuple(unpaired))


def one_folder(folder: Path) -> Cases | None:
    """Label maps beside their images, told by names such as ``a_seg``; also a folder a case."""
    found, strange = entries(folder)
    labels = [entry for entry in found if is_label_name(entry.stem)]
    images = [entry for entry in found if not is_label_name(entry.stem)]
    cases, alone = paired(images, labels)
    if not cases:
        return None
    layout = "label maps beside their images"
    return Cases(folder.name, folder, layout, finished(cases), unpaired=(*alone, *strange))


def _pairs(folder: Path) -> Iterator[tuple[Path, Path]]:
    """The one folder of images and the one of label maps, if that is clear."""
    images = [f for f in _folders(folder) if _plain(f) in _IMAGE_FOLDERS]
    labels = [f for f in _folders(folder) if _plain(f) in _LABEL_FOLDERS]
    if len(images) == len(labels) == 1:
        yield images[0], labels[0]


def _folders(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.is_dir() and p.name[0] != ".")


def _plain(folder: Path) -> str:
    return "".join(c for c in folder.name.lower() if c.isalnum())
