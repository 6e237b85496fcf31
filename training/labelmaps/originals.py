"""The label maps of a data set, with or without images beside them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from caps_med.errors import InvalidInput
from caps_med.images import MedicalImage
from training.data.cases import Case, Cases, FileRef
from training.data.layouts import discover
from training.data.layouts.naming import entries
from training.data.reading import label_encoding, read_label


class Original(NamedTuple):
    """One label map of the data: its case, and the map ``[1, *S]`` of label ids."""

    case: Case
    label: MedicalImage


class Originals(NamedTuple):
    """The label maps of a data set, in the order of their names.

    Attributes:
        cases: as found, their label encoding decided.
        maps: those that hold a label.
    """

    cases: Cases
    maps: tuple[Original, ...]

    def in_file_values(self, label: MedicalImage) -> MedicalImage:
        """A map of label ids with the values that the files of this data set hold (0 and 255)."""
        back: dict[int, int] = {}
        for value, one in sorted(self.cases.label_values.items()):
            back.setdefault(one, value)
        if not back:
            return label
        values = np.zeros(max(back) + 1, np.uint8)
        values[list(back)] = list(back.values())
        return label.with_array(values[label.array])


def read_originals(path: Path) -> Originals:
    """Every label map of labelled images in any known layout, or of a folder of label maps alone.

    Args:
        path: a folder or a list; label maps alone lie in it or in its folder ``labels``.

    Raises:
        InvalidInput: there is no label map, all are empty, or pictures and volumes are mixed.
        BrokenCase: one cannot be read.
    """
    cases = _found(Path(path))
    cases = replace(cases, label_values=label_encoding(cases))
    maps = [Original(case, read_label(case, cases)) for case in cases.cases]
    labelled = tuple(one for one in maps if one.label.array.any())
    if not labelled:
        raise InvalidInput(
            f"{path}: every label map is empty (all 0): nothing to learn shapes from"
        )
    if len({one.label.spatial_dims for one in labelled}) > 1:
        raise InvalidInput(f"{path}: holds pictures and volumes: take one kind")
    return Originals(cases, labelled)


def _found(path: Path) -> Cases:
    try:
        found = discover(path)
    except InvalidInput as error:
        if alone := _label_maps_alone(path):
            return alone
        raise InvalidInput(f"{path}: holds no label maps that are understood. {error}") from error
    return found.require_complete()


def _label_maps_alone(path: Path) -> Cases | None:
    folder = path / "labels" if (path / "labels").is_dir() else path
    if not folder.is_dir():
        return None
    found, _ = entries(folder, deep=False)
    cases = tuple(Case(e.stem, (), FileRef(e.path)) for e in sorted(found, key=lambda e: e.stem))
    return Cases(path.name, path, "label maps alone", cases) if cases else None
