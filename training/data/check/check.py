"""One pass over a data set: all that is wrong with it at once, and its data card.

Nothing is written, and no input makes it fail: what cannot be read is a finding.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from nibabel import imageglobals

from caps_med.errors import CapsMedError, InvalidInput
from caps_med.images import MedicalImage
from training.data.cases import Case, Cases, FileRef
from training.data.check.card import CardMaker, DataCard
from training.data.check.findings import Finding, Likeness, finding, of_card
from training.data.layouts import discover
from training.data.reading import BrokenCase, encoding_of, read_case
from training.pictures.sheet import Thumbnail, case_sheet, thumbnail

#: A label map is a photograph if it holds more values than these, and fewer of its neighbouring
#: pixels than this share are equal.
PICTURE_VALUES, PICTURE_EQUAL = 16, 0.8
_AT_ONCE = 2**22
#: Cases shown on the contact sheet, evenly spaced.
SHOWN = 12

Track = Callable[[Iterable[Case]], Iterable[Case]]


@dataclass(frozen=True)
class Report:
    """What is in a data set and what is wrong with it.

    Attributes:
        cases: as found, their label encoding decided; readable ones and broken ones.
        findings: errors first.
        card: of the readable cases; None without any.
        sheet: some cases with their labels drawn over, an RGB picture; None without any.
    """

    cases: Cases
    findings: tuple[Finding, ...]
    card: DataCard | None
    sheet: MedicalImage | None

    @property
    def trainable(self) -> bool:
        """Whether there is no error."""
        return all(found.severity != "error" for found in self.findings)


def check(path: Path, track: Track = iter) -> Report:
    """Look at every file below `path` once, one case in memory at a time.

    Args:
        path: a folder, or a JSON or CSV list.
        track: wraps the iteration over cases, to show progress.

    Raises:
        InvalidInput: there is nothing at `path`.
    """
    path = Path(path)
    if not path.exists():
        raise InvalidInput(f"{path}: there is no such folder or file")
    with _quiet_libraries():
        return _checked(path, track)


@contextmanager
def _quiet_libraries() -> Iterator[None]:
    """What they say about broken files stands in the findings."""
    before, imageglobals.logger.disabled = imageglobals.logger.disabled, True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        imageglobals.logger.disabled = before


def _checked(path: Path, track: Track) -> Report:
    try:
        cases = discover(path)
    except (CapsMedError, OSError) as error:
        what, _, fix = str(error).partition("\n")
        nothing = Cases(path.name, path, "not understood", ())
        found = finding("layout", "", what, fix or "correct the description of the data set")
        return Report(nothing, (found,), None, None)
    survey = _Survey(cases)
    for case in track(cases.cases):
        survey.look_at(case)
    return survey.report()


class _Survey:
    """What has been seen so far."""

    def __init__(self, cases: Cases) -> None:
        self._cases = cases
        self._card = CardMaker()
        self._likeness = Likeness()
        self._findings: list[Finding] = [
            finding("unpaired", _name(one.path, cases), one.what, one.fix) for one in cases.unpaired
        ]
        self._values: set[frozenset[int]] = set()
        self._seen: dict[bytes, tuple[str, bytes]] = {}
        steps = np.linspace(0, len(cases.cases) - 1, min(SHOWN, len(cases.cases)))
        self._shown = {cases.cases[i].name for i in np.rint(steps).astype(int)}
        self._tiles: list[Thumbnail] = []

    def look_at(self, case: Case) -> None:
        """Read one case, and keep numbers alone."""
        try:
            image, label = read_case(case, self._cases)
        except BrokenCase as error:
            self._say(error.finding, error.file, error.what, error.fix)
        except Exception as error:  # a library's own failure on this file must not end the pass
            what = f"cannot be read: {type(error).__name__}"
            self._say("unreadable", case.images[0], what, "save it again, or take it out")
        else:
            self._count(case, image, label)

    def _count(self, case: Case, image: MedicalImage, label: MedicalImage) -> None:
        counted = _counted(label)
        values = list(counted)
        if len(values) > PICTURE_VALUES and _equal_neighbours(label) < PICTURE_EQUAL:
            what = f"holds {len(values)} values that vary like a photograph"
            self._say("label_picture", case.label, what, "save label ids: 0, 1, 2, ...")
            return
        self._values.add(frozenset(counted))
        self._card.add(case.grouped, image, counted, label)
        self._likeness.add(self._file(case.images[0]), image)
        if set(counted) == {0}:
            fix = "label it, or keep it as an example of nothing"
            self._say("empty_label", case.label, "holds no label", fix)
        if image.array.min() == image.array.max():
            what = f"holds the value {image.array.flat[0]:g} everywhere"
            self._say("constant_image", case.images[0], what, "take it out")
        self._compare(case, image, label)
        if case.name in self._shown:
            self._tiles.append(thumbnail(case.name, image, label))

    def _compare(self, case: Case, image: MedicalImage, label: MedicalImage) -> None:
        """Whether the same image was seen before."""
        content = _digest(image), _digest(label)
        file = self._file(case.images[0])
        first, its_label = self._seen.setdefault(content[0], (file, content[1]))
        if first == file:
            return
        if its_label == content[1]:
            fix = "keep one, or it may stand on both sides of a split"
            self._say("duplicate", case.images[0], f"is the same image as {first}", fix)
        else:
            what = f"is the same image as {first}, with other labels"
            self._say("contradiction", case.images[0], what, "keep the right label map")

    def report(self) -> Report:
        """The findings and the card, label values decided over all cases."""
        encoding = encoding_of(self._values, self._cases.labels)
        cases = replace(self._cases, label_values=encoding)
        card = self._card.card(encoding)
        findings = [*self._findings, *self._likeness.findings()]
        if card is None:
            fix = "mend the files above" if findings else "add images with label maps"
            findings.append(finding("no_cases", "", "no labelled image can be read", fix))
        else:
            findings += of_card(card, cases)
        if {1, 255} <= set(encoding):
            what = "some masks hold 0 and 1, others 0 and 255: 1 and 255 are read as one label"
            findings.append(finding("mixed_masks", "", what, "if they differ, renumber them"))
        findings.sort(key=lambda found: found.severity != "error")
        sheet = case_sheet(self._tiles, encoding) if self._tiles else None
        return Report(cases, tuple(findings), card, sheet)

    def _say(self, code: str, file: FileRef, what: str, fix: str) -> None:
        self._findings.append(finding(code, self._file(file), what, fix))

    def _file(self, reference: FileRef) -> str:
        name = _name(reference.path, self._cases)
        return name if reference.index is None else f"{name}[{reference.index}]"


def _name(path: Path, cases: Cases) -> str:
    """Relative to the data set where it lies inside."""
    root = cases.root if cases.root.is_dir() else cases.root.parent
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)


def _counted(label: MedicalImage) -> dict[int, int]:
    """Value -> voxels."""
    flat = label.array.ravel()
    if flat.dtype.itemsize > 2:
        values, counts = np.unique(flat, return_counts=True)
        return dict(zip(values.tolist(), counts.tolist(), strict=True))
    total = np.zeros(np.iinfo(flat.dtype).max + 1, np.int64)
    for start in range(0, flat.size, _AT_ONCE):
        total += np.bincount(flat[start : start + _AT_ONCE], minlength=len(total))
    return {int(value): int(total[value]) for value in np.flatnonzero(total)}


def _equal_neighbours(label: MedicalImage) -> float:
    """The share of pixels that equal the next one along the longest axis."""
    along = np.moveaxis(label.array, int(np.argmax(label.array.shape)), 0)
    return float((along[1:] == along[:-1]).mean())


def _digest(image: MedicalImage) -> bytes:
    """Of size and values, whatever their dtype."""
    values = np.ascontiguousarray(image.array, dtype=np.float32)
    return hashlib.sha256(str(values.shape).encode() + values.tobytes()).digest()


def problems(report: Report) -> Iterator[tuple[str, list[Finding]]]:
    """Findings by code, errors first."""
    for code in dict.fromkeys(found.code for found in report.findings):
        yield code, [found for found in report.findings if found.code == code]
