"""A data set that is opened once: found, encoded and checked once, whoever asks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Self

from caps_med.errors import CapsMedError, InvalidInput
from caps_med.images import MedicalImage
from training.data.cases import Case, Cases, Track
from training.data.check.card import DataCard
from training.data.check.check import Content, Report, check, quiet_libraries
from training.data.check.findings import Finding
from training.data.layouts import discover, label_maps_alone
from training.data.mni152 import load_mni152
from training.data.reading import label_encoding, read_case, read_label
from training.data.samples import Source

#: Data sets that need no folder, by the name that ``--data`` takes.
REGISTERED: Mapping[str, Callable[[], Source]] = {"mni152": load_mni152}


class _Pass:
    """The one pass of the check over a data set and the subsets taken before it."""

    def __init__(self, whole: Cases, track: Track[Case]) -> None:
        self.whole, self.track = whole, track
        self.subsets: list[Cases] = []

    @cached_property
    def report(self) -> Report:
        """What the check found; reads every file when first asked for."""
        return check(self.whole, self.subsets, self.track)

    @property
    def done(self) -> bool:
        """Whether the files have been read."""
        return "report" in vars(self)

    @cached_property
    def label_values(self) -> Mapping[int, int]:
        """From the check where it has been made, else from as few label maps as tell it."""
        return self.report.label_values if self.done else label_encoding(self.whole)

    def content(self, cases: Cases) -> Content:
        """Of the whole or a subset; one taken after the pass is read once more."""
        for known, content in zip([self.whole, *self.subsets], self.report.contents, strict=True):
            if known is cases:
                return content
        return check(cases).contents[0]


@dataclass(frozen=True)
class Dataset(Cases):
    """Labelled images, or a registered data set; `open_dataset` makes one.

    Files are found when it is opened and checked when a finding, the card or the sheet is first
    asked for; subsets share the check. Images are read one case at a time and not kept.

    Attributes:
        data: the registered name or the path, as given.
        load: makes the samples of a registered data set, which has no cases; None for files.
    """

    data: str = ""
    load: Callable[[], Source] | None = None
    _pass: _Pass | None = field(default=None, repr=False, compare=False)

    @property
    def _checks(self) -> _Pass:
        assert self._pass is not None  # noqa: S101 - open_dataset gave one
        return self._pass

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Everything that is wrong with the whole data set, errors first."""
        return () if self.load else self._checks.report.findings

    @property
    def trainable(self) -> bool:
        """Whether there is no error."""
        return all(found.severity != "error" for found in self.findings)

    @property
    def card(self) -> DataCard | None:
        """The data in numbers; None without a readable case, and of registered data sets."""
        return self._content.card

    @property
    def sheet(self) -> MedicalImage | None:
        """Some cases with their labels drawn over, an RGB picture; None where there is no card."""
        return self._content.sheet

    @cached_property
    def _content(self) -> Content:
        return Content(None, None) if self.load else self._checks.content(self)

    @property
    def label_values(self) -> Mapping[int, int]:
        """Value in the label files -> label id, where they differ (masks of 0 and 255).

        Empty where the values are the ids.

        Raises:
            BrokenCase: a label map cannot be read.
        """
        return self._checks.label_values

    @property
    def groups(self) -> tuple[str, ...]:
        """What must not be split between training and validation, in the order of the cases."""
        return tuple(dict.fromkeys(case.grouped for case in self.cases))

    def read(self, case: Case) -> tuple[MedicalImage, MedicalImage]:
        """Image ``[C, *S]`` and label map ``[1, *S]`` of ids of one case.

        Raises:
            BrokenCase: a file is unreadable, or the two do not fit.
        """
        return read_case(case, self.label_values)

    def read_label(self, case: Case) -> MedicalImage:
        """The label map ``[1, *S]`` of ids of one case.

        Raises:
            BrokenCase: the file is unreadable.
        """
        return read_label(case, self.label_values)

    def subset(self, groups: Collection[str]) -> Self:
        """The cases of some groups; nothing is read again.

        A subset that is to have a card is taken before the data are checked.
        """
        chosen = replace(self, cases=tuple(c for c in self.cases if c.grouped in groups))
        if self._pass is not None and not self._pass.done:
            self._pass.subsets.append(chosen)
        return chosen


_opened: dict[tuple[str, bool], tuple[list[list[str | int]], Dataset]] = {}


def open_dataset(data: str | Path, *, images: bool = True, track: Track[Case] = iter) -> Dataset:
    """The registered data set of that name, or the labelled images at that path.

    Opening it again in the same process gives the same object while its files stay the same. A
    folder without a known layout opens, too: that is its first finding, and an error where its
    cases are needed.

    Args:
        data: a name in `REGISTERED`, a folder, or a JSON or CSV list; layouts are those of
            `training.data.layouts`. A `Path` is never a name.
        images: False takes a folder of label maps alone, too.
        track: wraps the iteration over cases while they are checked, to show progress.

    Raises:
        InvalidInput: there is nothing of that name or path.
    """
    if isinstance(data, str) and data in REGISTERED:
        return Dataset(data, Path(data), "registered", (), data=data, load=REGISTERED[data])
    path = Path(data)
    if not path.exists():
        raise InvalidInput(
            f"{data}: neither a folder or list of labelled images nor one of "
            f"{', '.join(REGISTERED)}"
        )
    with quiet_libraries():
        cases = _found(path, images)
    key, fingerprint = (str(path.absolute()), images), cases.fingerprint()
    if key in _opened:
        before, dataset = _opened[key]
        if before == fingerprint and all(
            getattr(cases, each.name) == getattr(dataset, each.name) for each in fields(Cases)
        ):
            return dataset
    checks = _Pass(cases, track)
    dataset = Dataset(**vars(cases), data=str(data), _pass=checks)
    checks.whole = dataset
    _opened[key] = fingerprint, dataset
    return dataset


def _found(path: Path, images: bool) -> Cases:
    try:
        return discover(path)
    except (CapsMedError, OSError) as error:
        if not images and (alone := label_maps_alone(path)):
            return alone
        return Cases(path.name, path, "not understood", (), error=str(error))
