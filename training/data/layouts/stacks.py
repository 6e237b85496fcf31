"""Stacks: CapsPix2Pix's pairs of npy arrays, and files that contain several pictures."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from caps_med.wording import counted
from training.data.cases import PARTS, Case, Cases, FileRef, Unpaired
from training.data.layouts.naming import is_pipe, stem_of
from training.data.layouts.pairing import finished
from training.data.stacks import array_shape, pictures_in, slices_in

_STACK = re.compile(r"^(?P<name>.*?)_?(?P<kind>data|mask)_(?P<part>train|val|validation)$", re.I)
#: Cases, and files that cannot be used.
_Found = tuple[list[Case], list[Unpaired]]


def npy_stacks(folder: Path) -> Cases | None:
    """``NAME_data_train.npy`` with ``NAME_mask_train.npy``, arrays ``[N, H, W]`` of N pictures."""
    found: dict[tuple[str, str], dict[str, Path]] = {}
    for path in sorted(folder.glob("*.npy")):
        if (match := _STACK.match(stem_of(path))) and not is_pipe(path):
            key = match["name"], match["part"].lower()
            found.setdefault(key, {})[match["kind"].lower()] = path
    if not any(len(pair) == 2 for pair in found.values()):
        return None
    pairs = [_cases_of_pair(*key, pair) for key, pair in found.items()]
    cases = [case for some, _ in pairs for case in some]
    unpaired = tuple(one for _, some in pairs for one in some)
    layout = "CapsPix2Pix stacks NAME_data_train.npy and NAME_mask_train.npy"
    return Cases(folder.name, folder, layout, finished(cases), unpaired=unpaired)


def with_stacks(cases: Cases) -> Cases:
    """Make each page of a multi-page file a case."""
    spread, unpaired, stacks = [], list(cases.unpaired), 0
    for case in cases.cases:
        image = case.images[0]
        if image.index is not None or len(case.images) > 1:
            spread.append(case)
            continue
        counts = _counts(image.path, case.label.path)
        if counts == (None, None):
            spread.append(case)
            continue
        pages, broken = _spread(case.name, image.path, counts[0], case.label.path, counts[1])
        stacks += 1
        spread += [
            replace(one, group=case.grouped, part=case.part, folds=case.folds) for one in pages
        ]
        unpaired += broken
    if stacks == 1 and len({case.group for case in spread}) == 1:
        spread = [replace(case, group="") for case in spread]
    return replace(cases, cases=finished(spread), unpaired=tuple(unpaired))


def _counts(images: Path, labels: Path) -> tuple[int | None, int | None]:
    """How many pictures each file holds; None for a single image.

    An array of three axes is a volume, but beside a stack it is one: label maps of colour pictures.
    Pages of a label map that nothing describes are slices if those of its image are.
    """
    counts = pictures_in(images), pictures_in(labels)
    if counts == (None, None) or (counts[0] is None and slices_in(images) == counts[1]):
        return None, None
    first, second = (
        _length(path) if count is None else count
        for path, count in zip((images, labels), counts, strict=True)
    )
    return first, second


def _cases_of_pair(name: str, part: str, pair: Mapping[str, Path]) -> _Found:
    """The cases of one pair of arrays."""
    if len(pair) == 1:
        ((kind, path),) = pair.items()
        other = path.name.replace(f"{kind}_", "mask_" if kind == "data" else "data_")
        fix = "add it or remove the stack from the folder"
        return [], [Unpaired(path, f"has no counterpart {other}", fix)]
    images, labels = pair["data"], pair["mask"]
    counts = {path: _length(path) for path in (images, labels)}
    what = "is truncated or corrupt, or not an array [N, H, W] or [N, H, W, C]"
    if broken := [Unpaired(p, what, "save it again") for p, n in counts.items() if n is None]:
        return [], broken
    stem = name if part == "train" and name else f"{name or 'picture'}-{part}"
    cases, unpaired = _spread(stem, images, counts[images], labels, counts[labels])
    return [replace(case, part=PARTS[part]) for case in cases], unpaired


def _spread(
    name: str, images: Path, count: int | None, labels: Path, label_count: int | None
) -> _Found:
    if count is None or count != label_count:
        this, other = (
            f"contains {counted(n, 'picture')}"
            if n
            else "is a single picture or volume, or corrupt"
            for n in (count, label_count)
        )
        what = f"{this}, while {labels.name} {other}"
        return [], [Unpaired(images, what, "provide one label map per picture, in the same order")]
    digits = len(str(count - 1))
    return [
        Case(f"{name}-{i:0{digits}}", (FileRef(images, i),), FileRef(labels, i))
        for i in range(count)
    ], []


def _length(path: Path) -> int | None:
    """Pictures along the first axis; None if the array is not a stack of pictures."""
    shape = array_shape(path)
    return shape[0] if shape is not None and len(shape) in (3, 4) else None
