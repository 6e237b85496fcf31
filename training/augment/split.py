"""What of the data is learned from, and what is set aside for the last comparison."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

from caps_med.errors import InvalidParameter
from training.atomic import write_text
from training.augment.config import AugmentOrder, Workshop
from training.data.cases import Cases
from training.data.dataset import HELD_OUT
from training.data.reading import open_cases
from training.labelmaps.originals import Originals, read_originals

#: A comparison on fewer groups says nothing at all, and so many must be left to learn from.
_LEAST_APART, _LEAST_LEFT = 2, 3


@dataclass(frozen=True)
class Parts:
    """The data of a run.

    Attributes:
        path: of the labelled images that everything is learned from.
        cases: of these.
        originals: their label maps.
        test: the labelled images of the comparison, and where; None without one.
    """

    path: Path
    cases: Cases
    originals: Originals
    test: Cases | None


def divide(order: AugmentOrder, workshop: Workshop) -> Parts:
    """All of the data to learn from, or, where a part is set aside, the rest of it.

    Raises:
        InvalidParameter: the data cannot be divided.
        InvalidInput: they cannot be read.
    """
    data = Path(order.data)
    cases = open_cases(data)
    if not order.test_apart:
        test = open_cases(Path(order.test)) if order.train_segmenter and order.test else None
        return Parts(data, cases, read_originals(data), test)
    apart = _set_aside(cases)
    left = replace(cases, cases=tuple(c for c in cases.cases if c.grouped not in apart))
    test = replace(cases, cases=tuple(c for c in cases.cases if c.grouped in apart))
    listed = workshop.work / "training.json"
    _write_list(listed, left)
    return Parts(listed, open_cases(listed), read_originals(listed), test)


def _set_aside(cases: Cases) -> frozenset[str]:
    """Every fifth group, and at least two, evenly spread."""
    groups = list(dict.fromkeys(case.grouped for case in cases.cases))
    count = max(_LEAST_APART, len(groups) // HELD_OUT)
    if len(groups) - count < _LEAST_LEFT:
        raise InvalidParameter(
            f"--train-segmenter: {len(groups)} independent cases are too few to set {count} aside; "
            "give labelled images of their own for the comparison: --test DIR"
        )
    return frozenset(groups[(2 * k + 1) * len(groups) // (2 * count)] for k in range(count))


def _write_list(path: Path, cases: Cases) -> None:
    """The cases as a list that `training.data.layouts` understands."""
    if any(ref.index is not None for case in cases.cases for ref in (*case.images, case.label)):
        raise InvalidParameter(
            "--train-segmenter: pictures in stacks cannot be set aside one by one; give labelled "
            "images of their own for the comparison: --test DIR"
        )
    entries = [
        {
            "name": case.name,
            "image": [str(ref.path.resolve()) for ref in case.images],
            "label": str(case.label.path.resolve()),
            "group": case.grouped,
        }
        for case in cases.cases
    ]
    labels = {str(k): v for k, v in cases.labels.items()}
    write_text(path, json.dumps({"training": entries, "labels": labels}, indent=2) + "\n")
