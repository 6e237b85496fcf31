"""Stacks: CapsPix2Pix's pairs of npy arrays, and files that hold several pictures."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from training.datasets.cases import Case, Cases, FileRef, Unpaired
from training.datasets.layouts.pairing import finished
from training.datasets.stacks import channels_in, pictures_in

_STACK = re.compile(r"^(?P<name>.*?)_?(?P<kind>data|mask)_(?P<part>train|val|validation)$", re.I)


def npy_stacks(folder: Path) -> Cases | None:
    """``NAME_data_train.npy`` with ``NAME_mask_train.npy``, arrays ``[N, H, W]`` of N pictures."""
    found: dict[tuple[str, str], dict[str, Path]] = {}
    for path in sorted(folder.glob("*.npy")):
        if match := _STACK.match(path.stem):
            key = match["name"], match["part"].lower()
            found.setdefault(key, {})[match["kind"].lower()] = path
    if not any(len(pair) == 2 for pair in found.values()):
        return None
    cases: list[Case] = []
    unpaired: list[Unpaired] = []
    for (name, part), pair in found.items():
        if len(pair) == 1:
            ((kind, path),) = pair.items()
            other = path.name.replace(f"{kind}_", "mask_" if kind == "data" else "data_")
            what = f"has no counterpart {other}"
            unpaired.append(Unpaired(path, what, "add it, or take the stack out of the folder"))
            continue
        stem = name if part == "train" and name else f"{name or 'picture'}-{part}"
        images, labels = pair["data"], pair["mask"]
        made = _spread(stem, images, _length(images), labels, _length(labels))
        cases += made[0]
        unpaired += made[1]
    layout = "CapsPix2Pix stacks NAME_data_train.npy and NAME_mask_train.npy"
    return Cases(folder.name, folder, layout, finished(cases), unpaired=tuple(unpaired))


def with_stacks(cases: Cases) -> Cases:
    """Every picture of a multi-page file as a case of its own, every fourth axis as channels."""
    spread, unpaired, stacks = [], list(cases.unpaired), 0
    for case in cases.cases:
        image = case.images[0]
        counts = pictures_in(image.path), pictures_in(case.label.path)
        if image.index is not None or len(case.images) > 1 or counts == (None, None):
            spread.append(_with_channels(case))
            continue
        made, broken = _spread(case.name, image.path, counts[0], case.label.path, counts[1])
        stacks += 1
        spread += [replace(one, group=case.grouped) for one in made]
        unpaired += broken
    if stacks == 1 and len({case.group for case in spread}) == 1:
        spread = [replace(case, group="") for case in spread]
    return replace(cases, cases=finished(spread), unpaired=tuple(unpaired))


def _spread(
    name: str, images: Path, count: int | None, labels: Path, label_count: int | None
) -> tuple[Iterable[Case], list[Unpaired]]:
    if count is None or count != label_count:
        what = f"holds {count or 1} pictures, {labels.name} {label_count or 1}"
        return (), [Unpaired(images, what, "each picture needs its label map, in the same order")]
    digits = len(str(count - 1))
    return [
        Case(f"{name}-{i:0{digits}}", (FileRef(images, i),), FileRef(labels, i))
        for i in range(count)
    ], []


def _with_channels(case: Case) -> Case:
    if len(case.images) > 1 or case.images[0].index is not None:
        return case
    path = case.images[0].path
    count = channels_in(path)
    return case if count is None else replace(
        case, images=tuple(FileRef(path, i) for i in range(count))
    )  # fmt: skip


def _length(path: Path) -> int | None:
    """Pictures along the first axis; None where the array cannot be a stack of pictures."""
    try:
        shape = np.load(path, mmap_mode="r", allow_pickle=False).shape
    except (OSError, ValueError, EOFError):
        return None
    return int(shape[0]) if len(shape) in (3, 4) else None
