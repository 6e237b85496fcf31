"""Data sets: opened by name or path, and read and checked only once per process."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from caps_med.errors import CapsMedError, InvalidInput, InvalidParameter
from caps_med.images import MedicalImage, is_grey
from caps_med.wording import as_text
from training.data.cases import Case, Cases
from training.data.check.card import DataCard
from training.data.check.check import Content, Report, check, quiet_libraries
from training.data.check.findings import Finding
from training.data.interpretation import Interpretation
from training.data.layouts import UnknownLayout, discover, label_maps_alone
from training.data.mni152 import load_mni152
from training.data.opened import Opened
from training.data.reading import (
    label_encoding,
    read_case,
    read_image_of,
    read_label,
    values_known_to,
)
from training.data.samples import Source
from training.data.unsupported import UNSUPPORTED

#: Data sets that need no folder, by their name for ``--data``.
REGISTERED: Mapping[str, Callable[[], Source]] = {"mni152": load_mni152}


class _Pass:
    """The single checking pass over a data set and the subsets taken before it."""

    def __init__(self, whole: Cases) -> None:
        self.whole = whole
        self.subsets: list[Cases] = []

    @cached_property
    def report(self) -> Report:
        """The result of the check; first access reads every file."""
        return check(self.whole, self.subsets)

    @property
    def done(self) -> bool:
        """Whether the files have been read."""
        return "report" in vars(self)

    @cached_property
    def label_values(self) -> Mapping[int, int]:
        """From the check if it has run, else from as few label maps as necessary."""
        return self.report.label_values if self.done else label_encoding(self.whole)

    @cached_property
    def grey(self) -> bool:
        """From the check if it has run, else from as few images as necessary."""
        if self.done:
            card = self.report.contents[0].card
            return card is not None and len(card.channels) == 1
        return all(is_grey(read_image_of(case)) for case in self.whole.cases)

    def content(self, cases: Cases) -> Content:
        """Card and sheet of the whole or a subset; one taken after the pass is read again."""
        for known, content in zip([self.whole, *self.subsets], self.report.contents, strict=True):
            if known is cases:
                return content
        return check(cases).contents[0]


@dataclass(frozen=True)
class Dataset(Cases):
    """Labelled images, or a registered data set; created by `open_dataset`.

    Files are found when it is opened, and checked on first access to the findings, the card or the
    sheet; subsets share the check. Images are read one case at a time and not kept.

    Attributes:
        data: the registered name or the path, as given.
        load: loads a registered data set, which has no cases; None for files.
    """

    data: str = ""
    load: Callable[[], Source] | None = None
    _pass: _Pass | None = field(default=None, repr=False, compare=False)

    @property
    def _checks(self) -> _Pass:
        assert self._pass is not None  # noqa: S101 - set by open_dataset
        return self._pass

    @property
    def recipe_values(self) -> dict[str, Any]:
        """See `training.data.interface.TrainingData`."""
        return {"data": as_text(self.data), "instances": self.instances, "ignored": self.ignored}

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All problems of the whole data set, errors first."""
        return () if self.load else self._checks.report.findings

    @property
    def trainable(self) -> bool:
        """Whether there are no errors."""
        return all(found.severity != "error" for found in self.findings)

    @property
    def card(self) -> DataCard | None:
        """The data card; None if no case is readable, and for registered data sets."""
        return self._content.card

    @property
    def sheet(self) -> MedicalImage | None:
        """An RGB picture of some cases with labels overlaid; None where there is no card."""
        return self._content.sheet

    @cached_property
    def _content(self) -> Content:
        return Content(None, None) if self.load else self._checks.content(self)

    @property
    def label_values(self) -> Mapping[int, int]:
        """Value in the label files -> label id, if they differ (masks of 0 and 255); else empty.

        Raises:
            BrokenCase: a label map cannot be read.
        """
        return self._checks.label_values

    @property
    def sides(self) -> tuple[tuple[int, int], ...]:
        """Pairs of labels of the whole data set that are left and right of each other."""
        return () if self.load else self._checks.report.sides

    @property
    def grey(self) -> bool:
        """Whether all images are grey, those included that were saved in colour.

        Raises:
            BrokenCase: an image cannot be read.
        """
        return self._checks.grey

    @property
    def groups(self) -> tuple[str, ...]:
        """Groups, not to be split between training and validation, in the order of the cases."""
        return tuple(dict.fromkeys(case.grouped for case in self.cases))

    def read(self, case: Case, *, flat: bool = True) -> tuple[MedicalImage, MedicalImage]:
        """Read the image ``[C, *S]`` and label map ``[1, *S]`` (label ids) of one case.

        In the label map what is `ignored` is background.

        Args:
            case: one of the cases.
            flat: whether volumes of a single slice become pictures; see
                `training.data.reading.read_case`.

        Raises:
            BrokenCase: a file is unreadable, or image and label map do not match.
        """
        return self.read_with_ids(case, flat=flat)[:2]

    def read_with_ids(
        self, case: Case, *, flat: bool = True, known: Container[int] = ()
    ) -> tuple[MedicalImage, MedicalImage, MedicalImage]:
        """As `read`, and third the label map as it is in its file, of instances their ids.

        In the second, but not in the third, what is `ignored` is background.

        Args:
            case, flat: as of `read`.
            known: ids of the model that is to be compared with the label map.
        """
        values = values_known_to(self.label_values, known)
        return read_case(case, values, self.instances, flat=flat, ignored=self.ignored)

    def read_label(self, case: Case) -> MedicalImage:
        """Read the label map ``[1, *S]`` (label ids) of one case, as `read` does.

        Raises:
            BrokenCase: the file is unreadable.
        """
        return read_label(case, self.label_values, self.instances, self.ignored)

    def subset(self, groups: Collection[str]) -> Self:
        """The cases of some groups, sharing the check of the whole, but not its folds.

        Take subsets before the check runs; the card of a later one reads its files again.
        """
        chosen = tuple(replace(c, folds=()) for c in self.cases if c.grouped in groups)
        subset = replace(self, cases=chosen)
        if self._pass is not None and not self._pass.done:
            self._pass.subsets.append(subset)
        return subset


_opened: Opened[Dataset] = Opened(Cases)


def open_dataset(
    data: str | Path,
    *,
    images: bool = True,
    interpretation: Interpretation | None = None,
) -> Dataset:
    """Open a registered data set by name, or labelled images by path.

    Opening it again in the same process returns the same object while its files are unchanged. A
    folder without a supported layout can be opened too: this is reported as a finding, and is an
    error where its cases are needed.

    Args:
        data: a name in `REGISTERED`, a folder, or a JSON or CSV list; for the layouts see
            `training.data.layouts`. A `Path` is never taken as a name.
        images: False also accepts a folder of label maps without images.
        interpretation: what the user knows and the files do not say.

    Raises:
        InvalidInput: no data set has this name, and the path does not exist.
        InvalidParameter: a registered data set is to be interpreted.
    """
    if isinstance(data, str) and data in REGISTERED:
        if interpretation not in (None, Interpretation()):
            raise InvalidParameter(
                f"{data} has labels and channels of its own: leave out labels, channels, "
                "binary, instances and ignore_label"
            )
        return Dataset(data, Path(data), "registered", (), data=data, load=REGISTERED[data])
    path = Path(data)
    if not path.exists():
        raise InvalidInput(
            f"{data}: no such folder or list of labelled images; the only built-in data set is "
            f"{' or '.join(REGISTERED)}"
        )
    with quiet_libraries():
        cases = (interpretation or Interpretation()).applied_to(_found(path, images))
    return _opened.same_or(
        (str(path.absolute()), images), cases, lambda: _unchecked(cases, str(data))
    )


def _unchecked(cases: Cases, data: str) -> Dataset:
    checks = _Pass(cases)
    dataset = Dataset(**vars(cases), data=data, _pass=checks)
    checks.whole = dataset
    return dataset


def _found(path: Path, images: bool) -> Cases:
    try:
        return discover(path)
    except (CapsMedError, OSError) as error:
        if not images and (alone := label_maps_alone(path)):
            return alone
        layout = UNSUPPORTED if isinstance(error, UnknownLayout) else "unreadable"
        return Cases(path.name, path, layout, (), error=str(error))
