"""The files of smallNORB: stereo pairs of toys, their categories, and which toy each shows.

LeCun, Huang & Bottou 2004, "Learning methods for generic object recognition with invariance to pose
and lighting"; https://cs.nyu.edu/~ylclab/data/norb-v1.0-small/ describes the files.
"""

from __future__ import annotations

import re
from pathlib import Path

from training.data.cases import PARTS, Unpaired
from training.data.classified.arrays import ArrayRef, read_array
from training.data.classified.images import ClassifiedImages, Found, collected, files_by_part

CATEGORIES = ("animal", "human", "plane", "truck", "car")
_NAME = re.compile(
    r"^.*norb.*-(?P<part>training|testing)-(?P<kind>dat|cat|info)\.mat(\.gz)?$", re.I
)


def small_norb(folder: Path) -> ClassifiedImages | None:
    """``smallnorb-...-training-dat.mat`` with ``-cat.mat`` and ``-info.mat``, and for testing.

    An image has two channels, the left and the right camera's. With ``-info.mat`` the views of one
    toy are one group, so that training and validation see different toys.
    """
    if not folder.is_dir():
        return None
    files = norb_files(folder)
    complete = {part: found for part, found in files.items() if {"dat", "cat"} <= found.keys()}
    if not complete:
        return None
    found: list[Found] = []
    unusable = [
        Unpaired(path, "has no dat.mat and cat.mat of the same part", "add them or remove it")
        for part, others in files.items()
        if part not in complete
        for path in others.values()
    ]
    for part, three in sorted(complete.items(), reverse=True):
        found += _of_part(part, three, unusable)
    return collected(folder, "binary matrices of smallNORB", found, CATEGORIES, unusable)


def norb_files(folder: Path) -> dict[str, dict[str, Path]]:
    """``training`` and ``testing`` -> ``dat``, ``cat`` and ``info`` -> the file in a folder."""
    return files_by_part(folder, _NAME)


def _of_part(part: str, files: dict[str, Path], unusable: list[Unpaired]) -> list[Found]:
    """The images of ``training`` or ``testing``."""
    count = len(read_array(files["dat"]))
    labels = read_array(files["cat"]).reshape(-1)
    toys = read_array(files["info"]) if "info" in files else None
    if toys is not None and (toys.ndim != 2 or len(toys) != count):
        what = f"has the shape {toys.shape} for {count} images"
        unusable.append(Unpaired(files["info"], what, "copy it again, or remove it"))
        toys = None
    known = labels.dtype.kind in "iu" and labels.size and 0 <= labels.min() <= labels.max() < 5
    if len(labels) != count or not known:
        what = f"does not hold a category from 0 to 4 for each of {count} images"
        unusable.append(Unpaired(files["cat"], what, "copy it again"))
        return []
    digits = len(str(max(count - 1, 0)))
    return [
        Found(
            f"{part}-{index:0{digits}}",
            ArrayRef(files["dat"], index),
            (CATEGORIES[label],),
            "" if toys is None else f"{CATEGORIES[label]} {int(toys[index, 0])}",
            PARTS[part],
        )
        for index, label in enumerate(labels.astype(int).tolist())
    ]
