"""A folder of label maps alone, as data to train on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caps_med.errors import InvalidInput, InvalidParameter
from caps_med.images import LabelCode, SliceStack
from caps_med.images.labels import like_a_picture
from caps_med.wording import as_text
from training.data.check.check import SAVE_IDS, quiet_libraries
from training.data.check.findings import Finding, finding
from training.data.check.sides import SideSurvey, sides_findings
from training.data.interpretation import Interpretation
from training.data.layouts import label_maps_alone
from training.data.layouts.naming import name_of
from training.data.reading import BrokenCase, encoding_of, read_label
from training.progress import CHECKING, tracked
from training.randomization.label_maps import MOST_IDS
from training.randomization.scheme import LabelScheme, scheme_of

#: A file with this name among the label maps is their scheme.
SCHEME_FILE = "labels.yaml"


@dataclass(frozen=True)
class Stack:
    """One label map as axial slices.

    Attributes:
        name: of its case.
        labels: ids ``[D, H, W]``; of a picture D = 1.
        spacing: millimetres between slices, rows and columns; None for a picture.
    """

    name: str
    labels: NDArray[np.integer]
    spacing: tuple[float, float, float] | None


@dataclass(frozen=True)
class LabelMapData:
    """Label maps from which random images are drawn; created by `open_label_maps`.

    Attributes:
        data: the path, as given.
        given: the scheme that the user gave; None makes a label of every id, and masks of 0 and
            255 to masks of 0 and 1.
        names: names of labels, for ids without a scheme.
    """

    data: str
    given: LabelScheme | None
    names: dict[int, str]

    @property
    def name(self) -> str:
        """Of the folder."""
        return name_of(Path(self.data))

    @property
    def codes(self) -> dict[int, LabelCode]:
        """Label id -> what the label stands for, where the scheme says it."""
        found = {i: label.code for i, label in self.scheme.labels.items()}
        return {i: LabelCode.parse(code) for i, code in found.items() if code is not None}

    @property
    def recipe_values(self) -> dict[str, Any]:
        """See `training.data.interface.TrainingData`."""
        return {"data": as_text(self.data), "scheme": self.scheme.model_dump(mode="json")}

    @cached_property
    def _read(self) -> tuple[tuple[Stack, ...], tuple[Finding, ...]]:
        with quiet_libraries():
            stacks, findings = _stacks(Path(self.data))
        values = [set(np.unique(one.labels).tolist()) for one in stacks]
        if self.given is None and encoding_of(values, self.names):  # masks of 0 and 255
            stacks = tuple(replace(one, labels=np.minimum(one.labels, 1)) for one in stacks)
        return stacks, findings

    @property
    def stacks(self) -> tuple[Stack, ...]:
        """The label maps that can be read and are not empty, in the order of their names."""
        return self._read[0]

    @cached_property
    def ids(self) -> list[int]:
        """All ids that occur, in rising order."""
        return sorted(set().union(*(np.unique(one.labels).tolist() for one in self.stacks)))

    @cached_property
    def scheme(self) -> LabelScheme:
        """The given scheme; else every id is a label.

        Raises:
            InvalidInput: no label map holds an id above 0.
        """
        if self.given is not None:
            return self.given
        if not any(self.ids):
            raise InvalidInput(f"{self.data}: no label map in it can be read and is not empty")
        return LabelScheme.of_ids(self.ids, self.names)

    @cached_property
    def sides(self) -> tuple[tuple[int, int], ...]:
        """Pairs of labels that are left and right of each other; see `training.data.check.sides`.

        Raises:
            InvalidInput: as `scheme`.
        """
        survey = SideSurvey()
        labels = {i: label for label, one in self.scheme.labels.items() for i in one.ids}
        for one in self.stacks:
            survey.add(one.labels, one.spacing, labels)
        return survey.pairs()

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """All problems, errors first."""
        found = list(self._read[1])
        if not self.stacks:
            found.append(finding("no_cases", "", "no label map can be read", "check the files"))
        elif len({one.spacing is None for one in self.stacks}) > 1:
            what = "contains pictures and volumes"
            found.append(finding("mixed_dimensions", "", what, "keep one kind"))
        if len(self.ids) > MOST_IDS:
            what = f"the label maps have {len(self.ids)} ids, but at most {MOST_IDS} are possible"
            found.append(finding("label_values", "", what, "merge ids that look alike"))
        found += self._without_labels()
        if self.stacks and self.sides:
            names = self.scheme.names if self.given else self.names
            found += sides_findings(self.sides, names, self.codes.values(), "randomization")
        return tuple(sorted(found, key=lambda one: one.severity != "error"))

    @property
    def trainable(self) -> bool:
        """Whether there are no errors."""
        return all(one.severity != "error" for one in self.findings)

    @property
    def spacing_mm(self) -> tuple[float, float, float] | None:
        """Median distances between slices, rows and columns; None for pictures."""
        every = [one.spacing for one in self.stacks if one.spacing is not None]
        if not every:
            return None
        slices, rows, columns = (median(each) for each in zip(*every, strict=True))
        return slices, rows, columns

    def _without_labels(self) -> Iterator[Finding]:
        """Label maps with none of the scheme's labels; all of them are an error."""
        if self.given is None:
            return
        wanted = [i for label in self.given.labels.values() for i in label.ids]
        lacking = [one.name for one in self.stacks if not np.isin(one.labels, wanted).any()]
        fix = "check the ids in the scheme of the labels"
        if self.stacks and len(lacking) == len(self.stacks):
            yield finding("all_empty", "", "no label map holds an id to be segmented", fix)
            return
        for name in lacking:
            yield finding("empty_label", name, "holds no id to be segmented", fix)


def open_label_maps(data: str | Path, labels: Sequence[str] = ()) -> LabelMapData:
    """Open a folder of label maps, or its subfolder ``labels``.

    Args:
        data: the folder.
        labels: a scheme (a built-in one's name or a YAML file), or names of ids (``3=cortex``).
            Without a scheme that of ``labels.yaml`` in the folder, else every id is a label.

    Raises:
        InvalidInput: there are no label maps, or the scheme cannot be read.
        InvalidParameter: a name of an id has another form, two ids have one name, or a scheme has
            the names.
    """
    folder = Path(data)
    if label_maps_alone(folder) is None:
        raise InvalidInput(f"{data}: holds no label maps: give a folder of label maps")
    named = [one for one in labels if "=" in one]
    schemes = [one for one in labels if "=" not in one and one.strip()]
    if len(schemes) > 1:
        raise InvalidInput(f"{' and '.join(schemes)}: give one scheme of the labels")
    scheme = scheme_of(schemes[0]) if schemes else None
    own = [place / SCHEME_FILE for place in (folder, folder / "labels")]
    if scheme is None and (files := [file for file in own if file.is_file()]):
        scheme = scheme_of(files[0])
    names = Interpretation.parse(None, named).labels
    if names and scheme is not None:
        where = schemes[0] if schemes else SCHEME_FILE
        raise InvalidParameter(
            f"labels={','.join(named)}: the names of the labels come from {where}; change them "
            "there"
        )
    return LabelMapData(str(data), scheme, dict(names))


def _stacks(folder: Path) -> tuple[tuple[Stack, ...], tuple[Finding, ...]]:
    """All label maps of a folder, and what is wrong with the others."""
    cases = label_maps_alone(folder)
    stacks, findings = [], []
    for case in tracked(cases.cases if cases else (), CHECKING):
        if case.label.path.name == SCHEME_FILE:
            continue
        try:
            image = read_label(case)
        except BrokenCase as error:
            findings.append(finding(error.finding, str(error.file), error.what, error.fix))
            continue
        stack = SliceStack.from_image(image)
        if not stack.array.any():
            what, fix = "is empty (all 0)", "remove it"
            findings.append(finding("empty_label", str(case.label), what, fix))
            continue
        if what := like_a_picture(image, len(np.unique(image.array))):
            findings.append(finding("label_picture", str(case.label), what, SAVE_IDS))
            continue
        stacks.append(Stack(case.name, stack.array[:, 0], stack.lengths))
    return tuple(stacks), tuple(findings)
